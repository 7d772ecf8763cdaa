// Products of the tensor cores with 16-bit operands: 16 lanes x 16 contracted by 16 contracted x 8
// produced.
//
// Two neighbours along the contracted index share a register. Thread t of a quad, t = lane % 4, in
// quad g = lane / 4, holds
//   of a 16 x 16 operand, as register h + 2 i: lane g + 8 h, contracted 8 i + 2 t + {0, 1}
//   of a 16 x 8 operand, as register i: contracted 8 i + 2 t + {0, 1}, produced g
//   of the sums: what mma.cuh says.
// So a 16 x 16 operand is four matrices of 8 rows of 16 bytes, which the threads of a warp load and
// store together: thread l gives the address of row l % 8 of matrix l / 8.
#pragma once

#include "warp_group_mma.cuh"

namespace kronop {

// Two numbers, rounded to nearest even, in one register.
template <class T>
KRONOP_INLINE unsigned pack(float low, float high) {
#if defined(KRONOP_EMULATION) || !defined(KRONOP_HAS_BFLOAT16)
  return convert<T>(low).bits | unsigned(convert<T>(high).bits) << 16;
#else
  unsigned word;
  if constexpr (detail::same<T, half_t>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
#endif
}

#if !defined(KRONOP_HAS_WIDE_PRODUCTS)
#if defined(KRONOP_HAS_HALF_PRODUCTS) && !defined(KRONOP_EMULATION)
KRONOP_INLINE void half_multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(b));
}
#endif
// An MMA of 8 contracted indices; for bfloat16 on the ordinary cores.
template <class T>
KRONOP_INLINE void short_multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
#if defined(KRONOP_HAS_HALF_PRODUCTS)
  if constexpr (detail::same<T, half_t>) {
    half_multiply_add(sums, a0, a1, b);
    return;
  }
#endif
  const auto wide = [](unsigned bits) {
    return convert<float>(__builtin_bit_cast(T, static_cast<unsigned short>(bits)));
  };
  const float left[4] = {wide(a0), wide(a1), wide(a0 >> 16), wide(a1 >> 16)},
              right[2] = {wide(b), wide(b >> 16)};
  threads_multiply_add(sums, left, right);
}
template <class T>
KRONOP_INLINE void warp_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                     unsigned b1) {
  short_multiply_add<T>(sums, a[0], a[1], b0);
  short_multiply_add<T>(sums, a[2], a[3], b1);
}
#endif

#if !defined(KRONOP_EMULATION)
// A row of a matrix is along the contracted index or, where kTurned, along the lanes: then the
// matrix is transposed by the load, and the two elements of a register are from two rows.
template <bool kTurned>
KRONOP_INLINE void load_matrices(unsigned (&words)[4], const void* row) {
  const unsigned from = unsigned(__cvta_generic_to_shared(row));
#if !defined(KRONOP_HAS_HALF_PRODUCTS)
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto there = [&](int at) {
      return static_cast<const char*>(__cvta_shared_to_generic(__shfl_sync(~0u, from, 8 * i + at)));
    };
    if constexpr (kTurned) {
      const char *first = there(lane % 4 * 2), *second = there(lane % 4 * 2 + 1);
      const auto at = [&](const char* place) {
        return unsigned(reinterpret_cast<const unsigned short*>(place)[lane / 4]);
      };
      words[i] = at(first) | at(second) << 16;
    } else {
      words[i] = reinterpret_cast<const unsigned*>(there(lane / 4))[lane % 4];
    }
  }
#else
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  }
#endif
}
template <bool kTurned>
KRONOP_INLINE void store_matrices(void* row, const unsigned (&words)[4]) {
  const unsigned to = unsigned(__cvta_generic_to_shared(row));
  if constexpr (kTurned) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
}

#if defined(KRONOP_HAS_WIDE_PRODUCTS)
#define KRONOP_WARP_PRODUCT(type)                                  \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T>
KRONOP_INLINE void warp_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                     unsigned b1) {
  if constexpr (detail::same<T, half_t>) {
    KRONOP_WARP_PRODUCT("f16");
  } else {
    KRONOP_WARP_PRODUCT("bf16");
  }
}
#undef KRONOP_WARP_PRODUCT
#endif

// As in warp_group_mma.cuh, with core matrices of 8 columns x 8 rows: [row / 8][column][row % 8].
#define KRONOP_SUMS(i) "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
// clang-format off
#define KRONOP_WARP_GROUP_PRODUCT_64(type)                                                     \
  asm volatile("{.reg .pred more; setp.ne.b32 more, %37, 0;\n"                            \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
      "{%32, %33, %34, %35}, %36, more, 1, 1, 0;}"                                        \
      : KRONOP_SUMS(0), KRONOP_SUMS(1), KRONOP_SUMS(2), KRONOP_SUMS(3),                   \
        KRONOP_SUMS(4), KRONOP_SUMS(5), KRONOP_SUMS(6), KRONOP_SUMS(7)                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(more)))
#define KRONOP_WARP_GROUP_PRODUCT_32(type)                                             \
  asm volatile("{.reg .pred more; setp.ne.b32 more, %21, 0;\n"                    \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " \
      "{%16, %17, %18, %19}, %20, more, 1, 1, 0;}"                                \
      : KRONOP_SUMS(0), KRONOP_SUMS(1), KRONOP_SUMS(2), KRONOP_SUMS(3)            \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(more)))
// clang-format on
// The descriptor of a matrix, computed once: descriptors at higher addresses differ from it in the
// lower half only.
struct Matrix {
  unsigned start, rest;
  KRONOP_INLINE Matrix(const void* from, int columns) {
    const unsigned long long description = matrix_of(from, columns);
    start = unsigned(description);
    rest = unsigned(description >> 32);
  }
  KRONOP_INLINE unsigned long long after(int bytes) const {
    return (unsigned long long)rest << 32 | (start + (bytes >> 4));
  }
};
template <class T, int N>
KRONOP_INLINE void warp_group_multiply_add(float (&sums)[N][4], const unsigned (&a)[4],
                                           const Matrix& matrix, int bytes, bool more) {
  const unsigned long long b = matrix.after(bytes);
  if constexpr (N == 8 && detail::same<T, half_t>) {
    KRONOP_WARP_GROUP_PRODUCT_64("f16");
  } else if constexpr (N == 8) {
    KRONOP_WARP_GROUP_PRODUCT_64("bf16");
  } else if constexpr (detail::same<T, half_t>) {
    KRONOP_WARP_GROUP_PRODUCT_32("f16");
  } else {
    KRONOP_WARP_GROUP_PRODUCT_32("bf16");
  }
}
#undef KRONOP_WARP_GROUP_PRODUCT_32
#undef KRONOP_WARP_GROUP_PRODUCT_64
#undef KRONOP_SUMS
#endif

}  // namespace kronop
