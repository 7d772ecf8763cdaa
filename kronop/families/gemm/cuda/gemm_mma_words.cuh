// Fragments of a warp, loaded from slabs in shared memory, and their products.
//
// In a step of 32 bytes along k (8 elements of 4 bytes, 16 of 2, 32 of 1), thread t of a quad,
// t = lane % 4, in quad g = lane / 4, has words h + 2 r of 16 rows of A: of row g + 8 h the bytes
// from 16 r + 4 t on; and words r of 8 columns of B: of column g the same bytes.
#pragma once

#include "gemm_mma_feed.cuh"
#include "kronop/byte_mma.cuh"
#include "kronop/half_mma.cuh"
#include "kronop/mma.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// An MMA of 16-bit floats with float16 sums: those of two columns of row g, then of row g + 8.
KRONOP_INLINE void warp_multiply_add_halves(unsigned (&sums)[2], const unsigned (&a)[4],
                                            const unsigned (&b)[2]) {
#if defined(KRONOP_HAS_WIDE_PRODUCTS)
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
      : "+r"(sums[0]), "+r"(sums[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
        : "+r"(sums[0]), "+r"(sums[1])
        : "r"(a[2 * r]), "r"(a[2 * r + 1]), "r"(b[r]));
  }
#endif
}
// An MMA of 8-bit floats. Hopper has no warp-level instruction for it: the compiler makes two MMAs
// of float16. NOTE: the compiler of CUDA 12.4 adds them to themselves, not to the sums, if a loop
// carries the sums. For it they are written out, which is slower (docs/gotchas.md).
#if defined(KRONOP_HAS_WARP_GROUPS) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 5
template <class T>
KRONOP_INLINE void warp_multiply_add_quarters(float (&sums)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const auto wide = [&](unsigned word) { return detail::widen_pair<T>(word, upper); };
    const unsigned left[4] = {wide(a[0]), wide(a[1]), wide(a[2]), wide(a[3])};
    warp_multiply_add<half_t>(sums, left, wide(b[0]), wide(b[1]));
  }
}
#else
// NOTE: the instructions need Feature.float8.
#define KRONOP_QUARTER_PRODUCT(type)                               \
  asm("mma.sync.aligned.m16n8k32.row.col.f32." type "." type       \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <class T>
KRONOP_INLINE void warp_multiply_add_quarters(float (&sums)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
  if constexpr (detail::same<T, float_e4m3_t>) {
    KRONOP_QUARTER_PRODUCT("e4m3");
  } else {
    KRONOP_QUARTER_PRODUCT("e5m2");
  }
}
#undef KRONOP_QUARTER_PRODUCT
#endif
#endif

namespace gemm {

// Loads the fragment of 16 rows of A (kLeft) or of 16 columns of B from `row` on, for step `step`
// of a slab. Word h + 2 r is of row g + 8 h of A; of B, word r + 2 h is of column g + 8 h.
template <class Room, bool kAcross, bool kLeft>
KRONOP_INLINE void load_words(unsigned (&words)[4], const unsigned char* slab, int row, int step) {
  const int lane = threadIdx.x % 32, matrix = lane / 8;
  if constexpr (kAcross && Room::kSize == 4) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        words[kLeft ? h + 2 * r : r + 2 * h] = *reinterpret_cast<const unsigned*>(
            slab + Room::place(step * 8 + lane % 4 + 4 * r, (row + lane / 4 + 8 * h) * 4));
      }
    }
  } else {
    const int h = kLeft ? matrix % 2 : matrix / 2, r = kLeft ? matrix / 2 : matrix % 2;
    if constexpr (kAcross) {
      load_matrices<true>(words,
                          slab + Room::place(step * 16 + r * 8 + lane % 8, (row + h * 8) * 2));
    } else {
      load_matrices<false>(words, slab + Room::place(row + h * 8 + lane % 8, step * 32 + r * 16));
    }
  }
}

// For bytes that are contiguous across k: loads those of 32 rows, of which this thread gets rows 4
// g to 4 g + 3 for the two halves r of a step.
template <class Room>
KRONOP_INLINE void load_bytes(unsigned (&words)[2][4], const unsigned char* slab, int row,
                              int step) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int32_t items[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      items[i] = *reinterpret_cast<const int32_t*>(
          slab + Room::place(step * 32 + r * 16 + lane % 4 * 4 + i, row + lane / 4 * 4));
    turn_bytes(words[r], items);
  }
}

// The fragments of a step: kM x 16 rows by kN x 8 columns.
template <class Step, class RoomOfA, class RoomOfB>
struct Words {
  static constexpr int kM = Step::kWarpM / 16, kN = Step::kWarpN / 8, kDeep = 32 / RoomOfA::kSize;
  static constexpr bool kTurnsA = Step::kAcrossA && RoomOfA::kSize == 1,
                        kTurnsB = Step::kAcrossB && RoomOfB::kSize == 1;
  unsigned a[kM][4], b[kN][2];

  KRONOP_INLINE void load(const unsigned char* of_a, const unsigned char* of_b, int row, int column,
                          int step) {
    if constexpr (kTurnsA) {
#pragma unroll
      for (int i = 0; i < kM; i += 2) {
        unsigned words[2][4];
        load_bytes<RoomOfA>(words, of_a, row + i * 16, step);
#pragma unroll
        for (int e = 0; e < 8; ++e) a[i + e / 4][e % 4] = words[e % 4 / 2][e / 4 * 2 + e % 2];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kM; ++i)
        load_words<RoomOfA, Step::kAcrossA, true>(a[i], of_a, row + i * 16, step);
    }
    if constexpr (kTurnsB) {
#pragma unroll
      for (int j = 0; j < kN; j += 4) {
        unsigned words[2][4];
        load_bytes<RoomOfB>(words, of_b, column + j * 8, step);
#pragma unroll
        for (int e = 0; e < 8; ++e) b[j + e / 2][e % 2] = words[e % 2][e / 2];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kN; j += 2) {
        unsigned words[4];
        load_words<RoomOfB, Step::kAcrossB, false>(words, of_b, column + j * 8, step);
#pragma unroll
        for (int e = 0; e < 4; ++e) b[j + e / 2][e % 2] = words[e];
      }
    }
  }
};

// The same for float32, 16 elements deep, rounded to Step::Rounded when loaded. The order of
// contracted indices is free: a register has two of one half of a step. NOTE: if elements were
// rounded only when they are multiplied, the fragments of two steps would take twice the registers,
// which spilled from 64 x 64 sums on.
template <class Step, class RoomOfA, class RoomOfB>
struct RoundedWords {
  static constexpr int kM = Step::kWarpM / 16, kN = Step::kWarpN / 8, kDeep = 16;
  static constexpr bool kTurnsA = false, kTurnsB = false;
  unsigned a[kM][4], b[kN][2];

  KRONOP_INLINE void load(const unsigned char* of_a, const unsigned char* of_b, int row, int column,
                          int step) {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      unsigned words[2][4];
      load_words<RoomOfA, Step::kAcrossA, true>(words[0], of_a, row + i * 16, 2 * step);
      load_words<RoomOfA, Step::kAcrossA, true>(words[1], of_a, row + i * 16, 2 * step + 1);
#pragma unroll
      for (int e = 0; e < 4; ++e) a[i][e] = rounded(words[e / 2][e % 2], words[e / 2][e % 2 + 2]);
    }
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      unsigned words[2][4];
      load_words<RoomOfB, Step::kAcrossB, false>(words[0], of_b, column + j * 8, 2 * step);
      load_words<RoomOfB, Step::kAcrossB, false>(words[1], of_b, column + j * 8, 2 * step + 1);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        b[j + e / 2][e % 2] = rounded(words[e % 2][e / 2 * 2], words[e % 2][e / 2 * 2 + 1]);
    }
  }

 private:
  KRONOP_INLINE static unsigned rounded(unsigned low, unsigned high) {
    return pack<typename Step::Rounded>(detail::bits_to_float(low), detail::bits_to_float(high));
  }
};

// The same for float64, 8 elements deep. Contracted index (t, r) is t + 4 r. NOTE: an MMA needs an
// operand in neighbouring registers; elements that are loaded one by one can be loaded there, while
// pairs along k would have to be moved.
template <class Step, class RoomOfA, class RoomOfB>
struct Doubles {
  static constexpr int kM = Step::kWarpM / 16, kN = Step::kWarpN / 8, kDeep = 8;
  static constexpr bool kTurnsA = false, kTurnsB = false;
  double a[kM][4], b[kN][2];

  KRONOP_INLINE void load(const unsigned char* of_a, const unsigned char* of_b, int row, int column,
                          int step) {
#pragma unroll
    for (int e = 0; e < 4 * kM; ++e)
      a[e / 4][e % 4] = element<RoomOfA, Step::kAcrossA>(of_a, row, e / 4 * 16 + e % 2 * 8,
                                                         step * 8 + e % 4 / 2 * 4);
#pragma unroll
    for (int e = 0; e < 2 * kN; ++e)
      b[e / 2][e % 2] =
          element<RoomOfB, Step::kAcrossB>(of_b, column, e / 2 * 8, step * 8 + e % 2 * 4);
  }

 private:
  // The element `row` rows (a multiple of 8) and `k` indices (a multiple of 4) behind the thread's
  // first one.
  template <class Room, bool kAcross>
  KRONOP_INLINE static double element(const unsigned char* slab, int first, int row, int k) {
    const int lane = threadIdx.x % 32, of_first = first + lane / 4,
              from = kAcross ? Room::place(lane % 4, of_first * 8)
                             : Room::place(of_first, lane % 4 * 8);
    return *reinterpret_cast<const double*>(
        slab + (kAcross ? Room::further(from, k, row * 8) : Room::further(from, row, k * 8)));
  }
};

}  // namespace gemm
}  // namespace kronop
