// The terms of distances and kernels: what one feature of a pair of rows adds to a sum.
#pragma once

#include "numbers.hpp"

namespace kronop {

// With d = a - b, divided by an element of a vector if the term has one; the first ones are powers
// of |d|. Dot and norms have no vector. Relative: (|d| / Largest)^p.
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
  Largest,
  Relative,
};

namespace distances {

// Whether the term depends on the difference of a and b, not on a and b alone.
constexpr bool is_of_difference(TermKind kind) {
  return kind != TermKind::Dot && kind != TermKind::NormA && kind != TermKind::NormB;
}

// The maximum of two numbers >= 0, or NaN if one of them is NaN: their bits compare in the same
// order, with those of NaN last.
template <class V>
KRONOP_INLINE V greater(V a, V b) {
  using Element = typename powers::Shape<V>::Element;
  using Whole = Vector<typename powers::Format<Element>::Signed, int(sizeof(V) / sizeof(Element))>;
  const Whole first = bit_cast<Whole>(a), second = bit_cast<Whole>(b);
  return bit_cast<V>(first > second ? first : second);
}

// The reciprocal of a largest difference, rounded upwards: times that difference, it is at least 1.
// For 0, infinity, NaN and subnormal numbers, it is 1.
template <class V>
KRONOP_INLINE V reciprocal_of_largest(V largest) {
  using Format = powers::FormatOf<V>;
  using Element = typename powers::Shape<V>::Element;
  const auto is_normal =
      (largest >= Format::kLeastNormal) & (largest < bit_cast<Element>(Format::kInfinity));
  return is_normal ? bit_cast<V>(powers::bits_of(V(1 / largest)) + 1) : powers::all<V>(1);
}

// A power that was read from a tensor, clamped to bounds beyond which results stay the same. Powers
// that are given as numbers are within these bounds already.
template <class T>
KRONOP_INLINE T bounded_power(T p) {
  constexpr T kMost = sizeof(T) == 4 ? T(0x1p40) : T(0x1p70);
  return math::max(math::min(p, kMost), 1 / kMost);
}

// The term of a difference. `exponent` is that of a General or a Relative term; for the latter, the
// difference was divided by the largest one.
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
  } else if constexpr (kKind == TermKind::Relative) {
    return powers::positive_power(size > T(1) ? powers::all<V>(1) : size, exponent);
  } else {
    return size;
  }
}

// Adds a term to a sum; for Infinity and Largest, the maximum.
template <TermKind kKind, class V>
KRONOP_INLINE V joined_with(V sum, V other) {
  if constexpr (kKind == TermKind::Infinity || kKind == TermKind::Largest) {
    return greater(sum, other);
  } else {
    return sum + other;
  }
}

}  // namespace distances
}  // namespace kronop
