// The terms of distances and kernels: what one feature of a pair of rows adds to a sum.
#pragma once

#include "kronop_x86/numbers.hpp"

namespace kronop {

// With d = a - b, divided by an entry of a vector where the term has one; the names of the first
// ones are powers of |d|. The last three have no vector.
enum class TermKind : int {
  Zero,
  Half,
  One,
  ThreeHalves,
  Two,
  FiveHalves,
  Three,
  Four,
  General,
  Infinity,
  Dot,
  NormA,
  NormB,
};

namespace distances {

// Whether the term depends on the difference of a and b, not on a and b alone.
constexpr bool is_of_difference(TermKind kind) {
  return kind != TermKind::Dot && kind != TermKind::NormA && kind != TermKind::NormB;
}

// The greater of two numbers that are not negative, or NaN if one of them is: their bits are in the
// same order, with those of NaN last.
template <class V>
KRONOP_INLINE V greater(V a, V b) {
  using Element = typename powers::Shape<V>::Element;
  using Whole = Vector<typename powers::Format<Element>::Signed, int(sizeof(V) / sizeof(Element))>;
  const Whole first = bit_cast<Whole>(a), second = bit_cast<Whole>(b);
  return bit_cast<V>(first > second ? first : second);
}

// The term of a difference. `exponent` is that of a General one.
template <TermKind kKind, class V, class T>
KRONOP_INLINE V term(V d, T exponent) {
  const V size = powers::absolute(d);
  if constexpr (kKind == TermKind::Zero) {
    const V counted = d == T(0) ? V{} : powers::all<V>(T(1));
    return d == d ? counted : d;
  } else if constexpr (kKind == TermKind::Half) {
    return powers::root(size);
  } else if constexpr (kKind == TermKind::ThreeHalves) {
    return size * powers::root(size);
  } else if constexpr (kKind == TermKind::Two) {
    return d * d;
  } else if constexpr (kKind == TermKind::FiveHalves) {
    return d * d * powers::root(size);
  } else if constexpr (kKind == TermKind::Three) {
    return d * d * size;
  } else if constexpr (kKind == TermKind::Four) {
    const V square = d * d;
    return square * square;
  } else if constexpr (kKind == TermKind::General) {
    return powers::positive_power(size, exponent);
  } else {
    return size;
  }
}

// Adds a term to a sum; the one of Infinity is a maximum.
template <TermKind kKind, class V>
KRONOP_INLINE V joined_with(V sum, V other) {
  if constexpr (kKind == TermKind::Infinity) {
    return greater(sum, other);
  } else {
    return sum + other;
  }
}

}  // namespace distances
}  // namespace kronop
