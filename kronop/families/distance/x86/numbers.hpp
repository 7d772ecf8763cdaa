// Vector lanes as the number type of rendered functions: the same operators and functions as single
// numbers, compiled to the same instructions as hand-written vector code.
#pragma once

#include "powers.hpp"

namespace kronop {

template <class V>
struct Numbers {
  using Element = typename powers::Shape<V>::Element;
  V value;

  Numbers() = default;
  KRONOP_INLINE Numbers(V lanes) : value(lanes) {}
  KRONOP_INLINE Numbers(Element number) : value(powers::all<V>(number)) {}

  friend KRONOP_INLINE Numbers operator+(Numbers a, Numbers b) { return a.value + b.value; }
  friend KRONOP_INLINE Numbers operator*(Numbers a, Numbers b) { return a.value * b.value; }
  friend KRONOP_INLINE Numbers operator/(Numbers a, Numbers b) { return a.value / b.value; }
};

namespace math {

// As for single numbers (numeric.hpp): NaN in either operand propagates.
template <class V>
KRONOP_INLINE Numbers<V> max(Numbers<V> a, Numbers<V> b) {
  return V((a.value > b.value) | (a.value != a.value) ? a.value : b.value);
}
template <class V>
KRONOP_INLINE Numbers<V> min(Numbers<V> a, Numbers<V> b) {
  return V((a.value < b.value) | (a.value != a.value) ? a.value : b.value);
}
template <class V>
KRONOP_INLINE Numbers<V> exp(Numbers<V> x) {
  return powers::exp(x.value);
}
// x y, and 0 where x is 0, whatever y is.
template <class V>
KRONOP_INLINE Numbers<V> fade(Numbers<V> x, Numbers<V> y) {
  return V(x.value == 0 ? V{} : x.value * y.value);
}
// x log(y), and 0 where x is 0, unless y is NaN.
template <class V>
KRONOP_INLINE Numbers<V> times_log(Numbers<V> x, Numbers<V> y) {
  return V((x.value == 0) & (y.value == y.value) ? V{} : x.value * powers::log(y.value));
}
template <class V>
KRONOP_INLINE Numbers<V> power(Numbers<V> x, Numbers<V> exponent) {
  return powers::power(x.value, exponent.value);
}
template <class V>
KRONOP_INLINE Numbers<V> inverse(Numbers<V> x) {
  return V(x.value == 0 ? V{} : 1 / x.value);
}
template <class V>
KRONOP_INLINE Numbers<V> threshold(Numbers<V> x, Numbers<V> least) {
  return V(x.value < least.value ? V{} : x.value);
}
template <class V>
KRONOP_INLINE Numbers<V> sqrt(Numbers<V> x) {
  return powers::root(x.value);
}
template <class V>
KRONOP_INLINE Numbers<V> inverse_root(Numbers<V> x) {
  return inverse(sqrt(x));
}
template <class V>
KRONOP_INLINE Numbers<V> tanh(Numbers<V> x) {
  return powers::each(x.value, [](auto one) { return tanh(one); });
}
template <class V>
KRONOP_INLINE Numbers<V> erf(Numbers<V> x) {
  return powers::each(x.value, [](auto one) { return erf(one); });
}

}  // namespace math
}  // namespace kronop
