// Products of warp groups, four warps at once: 64 rows x 16 contracted (8 of 4 bytes) by as many
// contracted x N produced.
//
// Warp w of the warp group holds rows 16 w to 16 w + 15 of the sums as in mma.cuh: element 2 h + r
// of sums[n] is row g + 8 h, produced index 8 n + 2 t + r. The left operand is in registers, as in
// mma.cuh and half_mma.cuh, or in shared memory like the right one. A matrix there has rows of 32,
// 64 or 128 bytes:
//   contracted index contiguous: a row is one wide index; the next MMAs are further along it.
//   wide index contiguous (operands of 16 bits that both come from shared memory): a row is one
//   contracted index and 64 wide ones; the next 64 wide ones are one part further on.
// Rows are swizzled. Piece p (16 bytes) of row r is at this position in the row:
//   rows of 128 bytes: p ^ r % 8
//   rows of 64 bytes:  p ^ r / 2 % 4
//   rows of 32 bytes:  p ^ r / 4 % 2
// A matrix that is aligned to 1024 bytes is then free of bank conflicts in both directions.
// NOTE: measured on one H200: wgmma reaches its full rate with the swizzle and without it.
// Asynchronous copies of 16 bytes profit: 10 bytes a cycle where each goes to another line of 128
// bytes, up to 30 with the swizzle.
#pragma once

#include "half_mma.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// The descriptor of a matrix in shared memory: its address, the stride from eight rows to the next
// eight, the bytes of a row, which select the swizzle, and the stride to the next part where 64
// wide indices are one part. Descriptors of higher addresses differ in the lower half only.
struct WarpGroupMatrix {
  unsigned start, rest;
  KRONOP_INLINE WarpGroupMatrix(const void* from, int eight_rows, int row_bytes, int part = 16) {
    start = (unsigned(__cvta_generic_to_shared(from)) & 0x3ffff) >> 4 | unsigned(part >> 4) << 16;
    const int swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    rest = unsigned(eight_rows >> 4) | unsigned(swizzle) << 30;
  }
  KRONOP_INLINE unsigned long long after(int bytes) const {
    return (unsigned long long)rest << 32 | (start + (bytes >> 4));
  }
};

// Waits until all but the last N committed sets of MMAs have ended.
template <int N>
KRONOP_INLINE void wait_for_warp_group_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define KRONOP_SUMS(i) "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
#define KRONOP_SUMS_2(i) KRONOP_SUMS(i), KRONOP_SUMS(i + 1)
#define KRONOP_SUMS_4(i) KRONOP_SUMS_2(i), KRONOP_SUMS_2(i + 2)
#define KRONOP_SUMS_8(i) KRONOP_SUMS_4(i), KRONOP_SUMS_4(i + 4)
#define KRONOP_SUMS_16(i) KRONOP_SUMS_8(i), KRONOP_SUMS_8(i + 8)
#define KRONOP_SUMS_32(i) KRONOP_SUMS_16(i), KRONOP_SUMS_16(i + 16)
// The instruction's operands for so many accumulators.
// clang-format off
#define KRONOP_PLACES_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KRONOP_PLACES_3 KRONOP_PLACES_2 ", %8, %9, %10, %11"
#define KRONOP_PLACES_4 KRONOP_PLACES_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KRONOP_PLACES_6 KRONOP_PLACES_4 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define KRONOP_PLACES_8 KRONOP_PLACES_6 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KRONOP_PLACES_12 KRONOP_PLACES_8 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define KRONOP_PLACES_16 KRONOP_PLACES_12 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KRONOP_PLACES_24 KRONOP_PLACES_16                                              \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KRONOP_PLACES_32 KRONOP_PLACES_24                                                          \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Products with left operands in registers; `columns` is 8 n, as in the instruction's name.
#define KRONOP_FROM_REGISTERS(n, columns, step, type, tail, a0, a1, a2, a3, b0, m0, ...)         \
  asm volatile("{.reg .pred more; setp.ne.b32 more, " m0 ", 0;\n"                                \
      "wgmma.mma_async.sync.aligned.m64n" columns step ".f32." type "." type                     \
      " {" KRONOP_PLACES_##n "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b0 ", more, 1, 1" tail ";}" \
      : __VA_ARGS__                                                                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(more)))
#define KRONOP_FROM_SHARED(n, columns, type, a0, b0, m0, t0, t1, ...)          \
  asm volatile("{.reg .pred more; setp.ne.b32 more, " m0 ", 0;\n"              \
      "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type     \
      " {" KRONOP_PLACES_##n "}, " a0 ", " b0 ", more, 1, 1, " t0 ", " t1 ";}" \
      : __VA_ARGS__                                                            \
      : "l"(a), "l"(b), "r"(int(more)), "n"(int(kTurned)), "n"(int(kTurnedRight)))
// clang-format on
#define KRONOP_WARP_GROUP_PRODUCTS(n, columns, a0, a1, a2, a3, b0, m0, ...)                        \
  template <class T>                                                                               \
  KRONOP_INLINE void warp_group_product(float (&sums)[n][4], const unsigned (&a)[4],               \
                                        unsigned long long b, bool more) {                         \
    if constexpr (detail::same<T, half_t>) {                                                       \
      KRONOP_FROM_REGISTERS(n, columns, "k16", "f16", ", 0", a0, a1, a2, a3, b0, m0, __VA_ARGS__); \
    } else if constexpr (detail::same<T, bfloat16_t>) {                                            \
      KRONOP_FROM_REGISTERS(n, columns, "k16", "bf16", ", 0", a0, a1, a2, a3, b0, m0,              \
                            __VA_ARGS__);                                                          \
    } else {                                                                                       \
      KRONOP_FROM_REGISTERS(n, columns, "k8", "tf32", "", a0, a1, a2, a3, b0, m0, __VA_ARGS__);    \
    }                                                                                              \
  }                                                                                                \
  template <class T, bool kTurned, bool kTurnedRight = false>                                      \
  KRONOP_INLINE void warp_group_product(float (&sums)[n][4], unsigned long long a,                 \
                                        unsigned long long b, bool more) {                         \
    if constexpr (detail::same<T, half_t>) {                                                       \
      KRONOP_FROM_SHARED(n, columns, "f16", a0, a1, a2, a3, b0, __VA_ARGS__);                      \
    } else {                                                                                       \
      KRONOP_FROM_SHARED(n, columns, "bf16", a0, a1, a2, a3, b0, __VA_ARGS__);                     \
    }                                                                                              \
  }
KRONOP_WARP_GROUP_PRODUCTS(2, "16", "%8", "%9", "%10", "%11", "%12", "%13", KRONOP_SUMS_2(0))
KRONOP_WARP_GROUP_PRODUCTS(3, "24", "%12", "%13", "%14", "%15", "%16", "%17", KRONOP_SUMS_2(0),
                           KRONOP_SUMS(2))
KRONOP_WARP_GROUP_PRODUCTS(4, "32", "%16", "%17", "%18", "%19", "%20", "%21", KRONOP_SUMS_4(0))
KRONOP_WARP_GROUP_PRODUCTS(6, "48", "%24", "%25", "%26", "%27", "%28", "%29", KRONOP_SUMS_4(0),
                           KRONOP_SUMS_2(4))
KRONOP_WARP_GROUP_PRODUCTS(8, "64", "%32", "%33", "%34", "%35", "%36", "%37", KRONOP_SUMS_8(0))
KRONOP_WARP_GROUP_PRODUCTS(12, "96", "%48", "%49", "%50", "%51", "%52", "%53", KRONOP_SUMS_8(0),
                           KRONOP_SUMS_4(8))
KRONOP_WARP_GROUP_PRODUCTS(16, "128", "%64", "%65", "%66", "%67", "%68", "%69", KRONOP_SUMS_16(0))
KRONOP_WARP_GROUP_PRODUCTS(24, "192", "%96", "%97", "%98", "%99", "%100", "%101", KRONOP_SUMS_16(0),
                           KRONOP_SUMS_8(16))
KRONOP_WARP_GROUP_PRODUCTS(32, "256", "%128", "%129", "%130", "%131", "%132", "%133",
                           KRONOP_SUMS_32(0))
#undef KRONOP_WARP_GROUP_PRODUCTS
#undef KRONOP_FROM_SHARED
#undef KRONOP_FROM_REGISTERS
#undef KRONOP_PLACES_2
#undef KRONOP_PLACES_3
#undef KRONOP_PLACES_4
#undef KRONOP_PLACES_6
#undef KRONOP_PLACES_8
#undef KRONOP_PLACES_12
#undef KRONOP_PLACES_16
#undef KRONOP_PLACES_24
#undef KRONOP_PLACES_32
#undef KRONOP_SUMS_2
#undef KRONOP_SUMS_4
#undef KRONOP_SUMS_8
#undef KRONOP_SUMS_16
#undef KRONOP_SUMS_32
#undef KRONOP_SUMS
#endif

}  // namespace kronop
