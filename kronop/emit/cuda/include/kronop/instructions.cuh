// Single GPU instructions that C++ has no name for, or only a function of many instructions.
#pragma once

#include "numeric.cuh"

namespace kronop {

// NOTE: approximate instructions replace functions that cost up to ten times as much. PTX promises
// relative errors of 2^-22 or less (absolute errors for logarithms near 0); subnormals are flushed
// to zero.
#if defined(KRONOP_EMULATION)
inline float fast_root(float x) { return std::sqrt(x); }
inline float fast_inverse_root(float x) { return 1 / std::sqrt(x); }
inline float fast_log2(float x) {
  return x < 1.17549435e-38f ? -__builtin_huge_valf() : std::log2(x);
}
inline float fast_exp2(float x) { return x < -126 ? 0 : std::exp2(x); }
inline float fast_inverse(float x) { return 1 / x; }
inline float multiply_add_downwards(float a, float b, float c) {
  const double exact = double(a) * b + c;
  float nearest = float(exact);
  return double(nearest) > exact ? std::nextafterf(nearest, -__builtin_huge_valf()) : nearest;
}
inline float multiply_add_saturated(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  return sum > 0 ? sum < 1 ? sum : 1 : 0;
}
inline float larger(float a, float b) { return math::max(a, b); }
inline float smaller(float a, float b) { return math::min(a, b); }
inline unsigned bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
#else
KRONOP_INLINE float fast_root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KRONOP_INLINE float fast_inverse_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KRONOP_INLINE float fast_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KRONOP_INLINE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KRONOP_INLINE float fast_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KRONOP_INLINE float multiply_add_downwards(float a, float b, float c) {
  float sum;
  asm("fma.rm.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
// Clamped to [0, 1]; NaN becomes 0.
KRONOP_INLINE float multiply_add_saturated(float a, float b, float c) {
  float sum;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
// The maximum; NaN propagates, for which math::max takes several instructions.
KRONOP_INLINE float larger(float a, float b) {
#if defined(KRONOP_HAS_BFLOAT16)
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a == a && b == b ? ::fmaxf(a, b) : a + b;
#endif
}
KRONOP_INLINE float smaller(float a, float b) {
#if defined(KRONOP_HAS_BFLOAT16)
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a == a && b == b ? ::fminf(a, b) : a + b;
#endif
}
KRONOP_INLINE unsigned bits_of(float x) { return __float_as_uint(x); }
#endif
KRONOP_INLINE float magnitude(float x) { return ::fabsf(x); }

// The same for double, with full accuracy.
KRONOP_INLINE double fast_root(double x) { return ::sqrt(x); }
KRONOP_INLINE double fast_inverse_root(double x) { return 1 / ::sqrt(x); }
KRONOP_INLINE double larger(double a, double b) { return math::max(a, b); }
KRONOP_INLINE double smaller(double a, double b) { return math::min(a, b); }
KRONOP_INLINE double magnitude(double x) { return ::fabs(x); }

}  // namespace kronop
