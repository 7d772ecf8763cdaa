// Functions for rendered epilogues. NaN propagates through all of them.
//
// Functions of float, except roots, logarithms and powers, are written so that compilers vectorise
// them. NOTE: a product of 1024 x 64 x 4096 in float32 with gelu took 2 cores 188 ms with libm's
// erff, and 20 ms with the one below, 9 of them for gelu (AVX-512, Zen 4).
#pragma once

#include "kronop_x86/numeric.hpp"

namespace kronop {
namespace math {

// The first operand where it is NaN. If only the second one is NaN, the comparison is false and it
// is returned.
template <class T>
KRONOP_INLINE T max(T a, T b) {
  return ((a > b) | (a != a)) ? a : b;
}
template <class T>
KRONOP_INLINE T min(T a, T b) {
  return ((a < b) | (a != a)) ? a : b;
}
KRONOP_INLINE double exp(double x) { return __builtin_exp(x); }
KRONOP_INLINE double tanh(double x) { return __builtin_tanh(x); }
KRONOP_INLINE double erf(double x) { return __builtin_erf(x); }
KRONOP_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
KRONOP_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
KRONOP_INLINE float power(float x, float y) { return __builtin_powf(x, y); }
KRONOP_INLINE double power(double x, double y) { return __builtin_pow(x, y); }
// x y, and 0 where x is 0, whatever y is.
template <class T>
KRONOP_INLINE T fade(T x, T y) {
  return x == T(0) ? T(0) : x * y;
}
// x log(y), and 0 where x is 0, unless y is NaN.
KRONOP_INLINE float times_log(float x, float y) {
  return x == 0 && y == y ? 0 : x * __builtin_logf(y);
}
KRONOP_INLINE double times_log(double x, double y) {
  return x == 0 && y == y ? 0 : x * __builtin_log(y);
}
template <class T>
KRONOP_INLINE T threshold(T x, T least) {
  return x < least ? T(0) : x;
}

// 1 / x, and 0 for 0: derivatives of roots are defined as 0 there.
template <class T>
KRONOP_INLINE T inverse(T x) {
  return x == T(0) ? T(0) : T(1) / x;
}
// 1 / sqrt(x), and 0 for 0.
template <class T>
KRONOP_INLINE T inverse_root(T x) {
  return inverse(sqrt(x));
}

namespace detail {

// A polynomial with the coefficients of x^0, x^1, ...
template <int kCount>
KRONOP_INLINE float polynomial(float x, const float (&coefficients)[kCount]) {
  float sum = coefficients[kCount - 1];
  _Pragma("GCC unroll 16") for (int i = kCount - 2; i >= 0; --i) sum = sum * x + coefficients[i];
  return sum;
}
// Rounds |x| < 2^22 to the nearest integer: SSE2 has no vector instruction for it.
KRONOP_INLINE float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }
// 2^whole, for whole from -126 to 128, where it is infinity.
KRONOP_INLINE float exp2_of(int whole) { return __builtin_bit_cast(float, (whole + 127) << 23); }

}  // namespace detail

// Relative errors are at most 1.5e-7; subnormal results are rounded twice.
KRONOP_INLINE float exp(float x) {
  const float within = x > 89 ? 89 : (x < -104 ? -104 : x),
              whole = detail::nearest(within * 1.44269504f);
  const float rest = within - whole * 0.693359375f + whole * 2.12194440e-4f;
  const float beyond = detail::polynomial(
      rest, {5.00000147e-01f, 1.66665663e-01f, 4.16600113e-02f, 8.36553022e-03f, 1.43687e-03f});
  const int exponent = x == x ? int(whole) : 0, half = exponent >> 1;
  return (rest * rest * beyond + rest + 1) * detail::exp2_of(half) *
         detail::exp2_of(exponent - half);
}

// Relative errors are at most 4e-7. Near 0, where 1 - 2 / (exp(2 x) + 1) would lose digits by
// cancellation, a polynomial is used.
KRONOP_INLINE float tanh(float x) {
  const float u = __builtin_fabsf(x), within = u > 10 ? 10 : u;
  const float near =
      u * detail::polynomial(u * u, {1.0f, -3.333331048e-01f, 1.333234459e-01f, -5.382357538e-02f,
                                     2.093468048e-02f, -6.057427265e-03f});
  const float far = 1 - 2 / (exp(2 * within) + 1);
  return __builtin_copysignf(u < 0.6f ? near : far, x);
}

// Relative errors are at most 3e-7. From 1 on: 1 - exp(-u^2) times a slowly falling function.
KRONOP_INLINE float erf(float x) {
  const float u = __builtin_fabsf(x), within = u > 4 ? 4 : u;
  const float near =
      u * detail::polynomial(
              u * u, {1.128379226e+00f, -3.761263490e-01f, 1.128370166e-01f, -2.685843781e-02f,
                      5.196507555e-03f, -8.077436360e-04f, 8.063946007e-05f});
  const float slow = detail::polynomial(
      within, {9.867981076e-01f, -1.050898075e+00f, 7.970430255e-01f, -4.356071055e-01f,
               1.661206782e-01f, -4.156962782e-02f, 6.090492010e-03f, -3.938667651e-04f});
  return __builtin_copysignf(u < 1 ? near : 1 - exp(-within * within) * slow, x);
}

// Activations that vanish towards minus infinity: 0 from -1000 downwards, since minus infinity
// times 0 would be NaN.
template <class T>
KRONOP_INLINE T bounded(T x) {
  return x < T(-1000) ? T(-1000) : x;
}
template <class T>
KRONOP_INLINE T sigmoid(T x) {
  return T(1) / (exp(-x) + T(1));
}
template <class T>
KRONOP_INLINE T silu(T x) {
  const T within = bounded(x);
  return within / (exp(-within) + T(1));
}
template <class T>
KRONOP_INLINE T gelu(T x) {
  const T within = bounded(x);
  return within * (erf(within * T(0.7071067811865476)) * T(0.5) + T(0.5));
}

// 2^x with a relative error of at most 3e-7, 0 for less than 2^-126, and infinity from 2^127.5 on.
KRONOP_INLINE float fast_exp2(float x) {
  const float within = x > 128 ? 128 : (x < -126 ? -126 : x), whole = detail::nearest(within);
  const float power = detail::polynomial(
      within - whole,
      {1.0f, 6.9314724e-01f, 2.4022231e-01f, 5.5504505e-02f, 9.6718809e-03f, 1.3352319e-03f});
  return x < -126 ? 0 : power * detail::exp2_of(x == x ? int(whole) : 0);
}
// Activations whose results are rounded to 16 bits: see activations.cuh.
KRONOP_INLINE float gelu_of_16_bits(float x) {
  const float u = min(__builtin_fabsf(x), 5.6f);
  const float slow = detail::polynomial(
      u, {4.9996951e-01f, -3.9797798e-01f, 2.4452515e-01f, -1.2004619e-01f, 4.5758031e-02f,
          -1.2867323e-02f, 2.5232516e-03f, -3.2209917e-04f, 2.387056e-05f, -7.757568e-07f});
  return max(x, 0.0f) - u * (slow * fast_exp2(x * x * -0.72134752044f));
}
KRONOP_INLINE float sigmoid_of_16_bits(float x) { return 1 / (1 + fast_exp2(x * -1.4426950409f)); }
KRONOP_INLINE float silu_of_16_bits(float x) {
  const float within = bounded(x);
  return within / (1 + fast_exp2(within * -1.4426950409f));
}

}  // namespace math
}  // namespace kronop
