// Activations. Where results are rounded to 16 bits, approximations of a few instructions are used;
// functions with an accuracy of 24 bits take 20 to 30.
#pragma once

#include "instructions.cuh"

namespace kronop {
namespace math {

// From here on, activations that vanish are 0: minus infinity times a factor of 0 would be NaN.
template <class T>
KRONOP_INLINE T bounded(T x) {
  return larger(x, T(-1000));
}

// 1 / (1 + exp(-x)).
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

// x Phi(x), where Phi is the normal distribution: max(x, 0) - |x| Phi(-|x|).
//
// Phi(-u) is exp(-u^2 / 2) times a slowly falling function, here a polynomial with relative errors
// of at most 6.1e-5 for u up to 5.6. Results are then off by at most 0.14 of float16's last bit
// before rounding. For larger u, where results are below 6e-8, the function times u hardly changes:
// its value at 5.6 is used, which is right to 2.5 %.
KRONOP_INLINE float gelu_of_16_bits(float x) {
  const float u = smaller(magnitude(x), 5.6f), tail = fast_exp2(x * x * -0.72134752044f);
  float slow = -7.757568e-07f;
  slow = multiply_add(slow, u, 2.387056e-05f);
  slow = multiply_add(slow, u, -3.2209917e-04f);
  slow = multiply_add(slow, u, 2.5232516e-03f);
  slow = multiply_add(slow, u, -1.2867323e-02f);
  slow = multiply_add(slow, u, 4.5758031e-02f);
  slow = multiply_add(slow, u, -1.2004619e-01f);
  slow = multiply_add(slow, u, 2.4452515e-01f);
  slow = multiply_add(slow, u, -3.9797798e-01f);
  slow = multiply_add(slow, u, 4.9996951e-01f);
  return multiply_add(-u, slow * tail, larger(x, 0.0f));
}

KRONOP_INLINE float sigmoid_of_16_bits(float x) {
  return fast_inverse(1 + fast_exp2(x * -1.4426950409f));
}
KRONOP_INLINE float silu_of_16_bits(float x) {
  const float within = bounded(x);
  return within * sigmoid_of_16_bits(within);
}

}  // namespace math
}  // namespace kronop
