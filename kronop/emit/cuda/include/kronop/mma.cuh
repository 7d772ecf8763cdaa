// Warp-wide multiply-adds of the tensor cores: 16 lanes x 8 contracted by 8 contracted x 8
// produced.
//
// Thread t of a quad, t = lane % 4, in quad g = lane / 4, holds
//   of a 16 x 8 operand, as element h + 2 r: lane g + 8 h, contracted index (t, r)
//   of an 8 x 8 operand, as element r: contracted index (t, r), produced index g
//   of the 16 x 8 sums, as element 2 h + r: lane g + 8 h, produced index 2 t + r.
// Which contracted index (t, r) is, is free as long as both operands agree.
#pragma once

#include "memory.cuh"

namespace kronop {

// The same product on the ordinary cores; operands are exchanged by shuffles. The loop is not
// unrolled: otherwise all operands are exchanged before the first multiplication, and threads spill
// up to 39 KB.
template <class T>
KRONOP_INLINE void threads_multiply_add(T (&sums)[4], const T (&a)[4], const T (&b)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int t = 0; t < 4; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T left[2], right[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        left[i] = from_lane(a[i + 2 * r], lane / 4 * 4 + t);
        right[i] = from_lane(b[r], (2 * (lane % 4) + i) * 4 + t);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = multiply_add(left[i / 2], right[i % 2], sums[i]);
    }
  }
}
#if !defined(KRONOP_HAS_WIDE_PRODUCTS)
KRONOP_INLINE void warp_multiply_add(double (&sums)[4], const double (&a)[4],
                                     const double (&b)[2]) {
  threads_multiply_add(sums, a, b);
}
// On tensor cores, which ignore the low bits of their float32 operands (TF32).
KRONOP_INLINE void warp_multiply_add(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  const auto cut = [](float x) {
    return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0xffffe000u);
  };
  const float left[4] = {cut(a[0]), cut(a[1]), cut(a[2]), cut(a[3])},
              right[2] = {cut(b[0]), cut(b[1])};
  threads_multiply_add(sums, left, right);
}
#elif !defined(KRONOP_EMULATION)
KRONOP_INLINE void warp_multiply_add(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
KRONOP_INLINE void warp_multiply_add(double (&sums)[4], const double (&a)[4],
                                     const double (&b)[2]) {
#if defined(KRONOP_HAS_DEEP_DOUBLE_PRODUCTS)
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
          : "+d"(sums[2 * half]), "+d"(sums[2 * half + 1])
          : "d"(a[half + 2 * r]), "d"(b[r]));
    }
  }
#endif
}
#endif

#if !defined(KRONOP_EMULATION)
KRONOP_INLINE float round_to_tf32(float x) {
  return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}
KRONOP_INLINE double round_to_tf32(double x) { return x; }
// The same value, opaque to the compiler: nothing that was computed from it is kept for later.
KRONOP_INLINE float renewed(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
KRONOP_INLINE double renewed(double x) { return x; }
#endif

// The rounded value, for products without the rest. NOTE: a NaN from a GPU has all bits set, and
// adding half of the last kept bit to it would give -0.
template <class T>
KRONOP_INLINE T rounded_alone(T x) {
  return x == x ? round_to_tf32(x) : x;
}

// An operand of the tensor cores: its rounded value and, where kSplit, the remainder. NOTE: the
// cores ignore the low 13 bits of a float32 operand; `rest` fits into the others except for its
// last bit.
template <class T, int N, bool kSplit>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Split {
  T value[N];
  Split() = default;
  KRONOP_INLINE explicit Split(const T (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = rounded_alone(from[i]);
  }
};
template <class T, int N>
struct alignas(sizeof(T) * 2 * N > 16 ? 16 : sizeof(T) * 2 * N) Split<T, N, true> {
  T value[N];
  T rest[N];
  Split() = default;
  KRONOP_INLINE explicit Split(const T (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = round_to_tf32(from[i]);
      rest[i] = from[i] - value[i];
    }
  }
};

// How many MMAs make one product of split operands, small ones first. The product of both
// remainders is omitted: the error is that of float32 arithmetic without it.
template <bool kSplit>
inline constexpr int products_of = kSplit ? 3 : 1;

// Adds MMA `kIndex` of them. MMAs with one accumulator depend on each other, so callers interleave
// several accumulators.
template <int kIndex, class T, bool kSplit>
KRONOP_INLINE void add_product(T (&sums)[4], const Split<T, 4, kSplit>& a,
                               const Split<T, 2, kSplit>& b) {
  if constexpr (kSplit && kIndex == 0) {
    warp_multiply_add(sums, a.rest, b.value);
  } else if constexpr (kSplit && kIndex == 1) {
    warp_multiply_add(sums, a.value, b.rest);
  } else {
    warp_multiply_add(sums, a.value, b.value);
  }
}

// Adds all MMAs of one left operand with several right ones.
template <int kIndex = 0, class T, bool kSplit, int N>
KRONOP_INLINE void add_row(T (&sums)[N][4], const Split<T, 4, kSplit>& a,
                           const Split<T, 2, kSplit> (&b)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) add_product<kIndex>(sums[n], a, b[n]);
  if constexpr (kIndex + 1 < products_of<kSplit>) add_row<kIndex + 1>(sums, a, b);
}

}  // namespace kronop
