// Products of warp groups (wgmma), four warps at once, with the right operand in shared memory.
//
// A warp holds 16 of the 64 rows, and accumulators as in mma.cuh. The right operand is a matrix of
// 8 contracted rows and `columns` columns, of which the first 64 or 32 are multiplied. It consists
// of core matrices of 8 columns x 4 rows: [row / 4][column / 8][column % 8][row % 4].
#pragma once

#include "mma.cuh"

namespace kronop {

KRONOP_INLINE constexpr unsigned place_in_cores(unsigned row, unsigned column, unsigned columns) {
  return (row / 4 * (columns / 8) + column / 8) * 32 + column % 8 * 4 + row % 4;
}

#if !defined(KRONOP_EMULATION)
// The descriptor of a matrix in shared memory: its address, and the bytes from one core matrix to
// the next along the contracted and along the produced index.
KRONOP_INLINE unsigned long long matrix_of(const void* from, int columns) {
  const unsigned long long start = (__cvta_generic_to_shared(from) & 0x3ffff) >> 4;
  return start | (unsigned long long)(columns * 16 >> 4) << 16 | (128ull >> 4) << 32;
}
KRONOP_INLINE void warp_group_multiply_add(float (&sums)[8][4], const float (&a)[4],
                                           const float* from, int columns, bool more) {
  const unsigned long long b = matrix_of(from, columns);
  // clang-format off
  asm volatile("{.reg .pred more; setp.ne.b32 more, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, more, 1, 1;}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]),
        "+f"(sums[1][0]), "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]),
        "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]),
        "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
        "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]),
        "+f"(sums[7][0]), "+f"(sums[7][1]), "+f"(sums[7][2]), "+f"(sums[7][3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "l"(b), "r"(int(more)));
  // clang-format on
}
KRONOP_INLINE void warp_group_multiply_add(float (&sums)[4][4], const float (&a)[4],
                                           const float* from, int columns, bool more) {
  const unsigned long long b = matrix_of(from, columns);
  // clang-format off
  asm volatile("{.reg .pred more; setp.ne.b32 more, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, more, 1, 1;}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]),
        "+f"(sums[1][0]), "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]),
        "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "l"(b), "r"(int(more)));
  // clang-format on
}
// Opens a commit group of MMAs, after writes to their register operands.
KRONOP_INLINE void begin_warp_group_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Commits them. Their operands must not change until they have ended.
KRONOP_INLINE void commit_warp_group_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
KRONOP_INLINE void wait_for_warp_group_products() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Makes what this thread has written to shared memory visible to the products of warp groups.
KRONOP_INLINE void publish_to_warp_group_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

}  // namespace kronop
