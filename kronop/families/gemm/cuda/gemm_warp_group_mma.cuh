// wgmma for elements of 4 bytes and of 1 byte, with both operands in shared memory: 64 rows x 32
// bytes of contracted elements by as many x 128 or 256 columns. Both operands are contiguous along
// the contracted index, in rows as in warp_group_products.cuh.
#pragma once

#include "kronop/warp_group_products.cuh"

namespace kronop {
namespace gemm {

#if !defined(KRONOP_EMULATION)
// clang-format off
#define KRONOP_PLACES_16                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KRONOP_PLACES_32 KRONOP_PLACES_16                                                        \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on
#define KRONOP_SUMS(i) \
  KRONOP_HELD(sums[i][0]), KRONOP_HELD(sums[i][1]), KRONOP_HELD(sums[i][2]), KRONOP_HELD(sums[i][3])
#define KRONOP_SUMS_4(i) KRONOP_SUMS(i), KRONOP_SUMS(i + 1), KRONOP_SUMS(i + 2), KRONOP_SUMS(i + 3)
#define KRONOP_SUMS_16(i) \
  KRONOP_SUMS_4(i), KRONOP_SUMS_4(i + 4), KRONOP_SUMS_4(i + 8), KRONOP_SUMS_4(i + 12)
// For n x 8 columns; the operands of the instruction follow its sums.
// clang-format off
#define KRONOP_PRODUCT(Sum, Input, kind, tail, n, columns, a0, b0, m0, ...)                    \
  KRONOP_INLINE void product_of(Sum (&sums)[n][4], unsigned long long a, unsigned long long b, \
                                bool more, Input) {                                            \
    asm volatile("{.reg .pred more; setp.ne.b32 more, " m0 ", 0;\n"                            \
        "wgmma.mma_async.sync.aligned.m64n" columns kind                                       \
        " {" KRONOP_PLACES_##n "}, " a0 ", " b0 ", more" tail ";}"                             \
        : __VA_ARGS__                                                                          \
        : "l"(a), "l"(b), "r"(int(more)));                                                     \
  }
// clang-format on
#define KRONOP_PRODUCTS(Sum, Input, kind, tail)                                                \
  KRONOP_PRODUCT(Sum, Input, kind, tail, 16, "128", "%64", "%65", "%66", KRONOP_SUMS_16(0))    \
  KRONOP_PRODUCT(Sum, Input, kind, tail, 32, "256", "%128", "%129", "%130", KRONOP_SUMS_16(0), \
                 KRONOP_SUMS_16(16))
#define KRONOP_HELD(sum) "+f"(sum)
KRONOP_PRODUCTS(float, float, "k8.f32.tf32.tf32", ", 1, 1")
KRONOP_PRODUCTS(float, float_e4m3_t, "k32.f32.e4m3.e4m3", ", 1, 1")
KRONOP_PRODUCTS(float, float_e5m2_t, "k32.f32.e5m2.e5m2", ", 1, 1")
#undef KRONOP_HELD
#define KRONOP_HELD(sum) "+r"(sum.value)
KRONOP_PRODUCTS(int32_t, int8_t, "k32.s32.s8.s8", "")
#undef KRONOP_HELD
#undef KRONOP_PRODUCTS
#undef KRONOP_PRODUCT
#undef KRONOP_SUMS_16
#undef KRONOP_SUMS_4
#undef KRONOP_SUMS
#undef KRONOP_PLACES_32
#undef KRONOP_PLACES_16
#endif

}  // namespace gemm
}  // namespace kronop
