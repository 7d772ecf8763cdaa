// The terms of distances: what one index k adds to the sums of a pair of points.
#pragma once

#include "distance_parameters.cuh"
#include "relative.cuh"

namespace kronop {
namespace distance {

// |d|^p for a p that is known at run time.
template <class Scalar>
struct Power {
  Scalar p;
  Power() = default;
  KRONOP_INLINE explicit Power(Scalar p) : p(p) {}
  KRONOP_INLINE static bool is_plain(Scalar) { return true; }
  template <bool kPlain, bool kIsRelative = false>
  KRONOP_INLINE Scalar add_to(Scalar sum, Scalar d, int) const {
    return sum + ::pow(magnitude(d), p);
  }
};

// For float32, |d|^p = 2^(p log2 |d|).
//
// The special function unit computes a logarithm or an exponential of a warp in 8 cycles, so both
// would take 16 cycles for a pair. It computes kOfUnit exponentials of each kOutOf; the others are
// computed by multiply-adds, as 2^floor(y) times a polynomial in the remainder: 8 instructions
// more. NOTE: measured on an H200, p = 1.3: 369 ms for 30000 x 30000 points of 1024 features with 5
// of 16, 371 with 4 and 374 with 6. The unit alone would need 290; but instructions with three
// register operands have to wait for them: a mix of FADD, FMUL and FFMA issues 0.83 instructions a
// cycle, FADD alone 0.98.
//
// Elements are plain if no power of a difference exceeds the range of float32: all are finite, and
// small enough for p; and those that are not zero are so large that differences, which are
// multiples of an element's last place, are zero or large enough. Then the exponent needs no range
// check.
template <>
struct Power<float> {
  static constexpr int kOfUnit = 5, kOutOf = 16;
  float p, least,
      most;       // the power; bounds of the logarithm, beyond which the result is 0 or infinity
  float leading;  // coefficient, in a register: a multiply-add can have one immediate operand
  unsigned smallest,
      between;  // bits of the smallest plain element, and those of the largest minus these

  Power() = default;
  KRONOP_INLINE explicit Power(float p) : p(p), least(-126.9f / p), most(128.1f / p) {
    const float low = fast_exp2(24 - 126 / p), high = fast_exp2(127 / p - 1), limit = 1e38f;
    leading = detail::bits_to_float(renewed(bits_of(0.0018671305f)));
    const bool there_are = low < high;
    smallest = there_are ? bits_of(low) : ~0u;
    between = there_are ? bits_of(high < limit ? high : limit) - smallest : 0;
  }
  KRONOP_INLINE bool is_plain(float x) const {
    const unsigned bits = bits_of(magnitude(x));
    return bits == 0 || bits - smallest <= between;
  }

  // `item` is a constant in unrolled loops. A relative d is at most 1.
  template <bool kPlain, bool kIsRelative = false>
  KRONOP_INLINE float add_to(float sum, float d, int item) const {
    float log = fast_log2(magnitude(d));
    if (item * kOfUnit % kOutOf < kOfUnit) return sum + fast_exp2(p * log);
    if constexpr (!kPlain) {
      log = larger(log, least);
      if constexpr (!kIsRelative) log = smaller(log, most);
    }
    // Adding this number rounds y down to an integer, and the low bits of the sum are the exponent
    // field of 2^floor(y). That field is 0 where d is 0, so that the product below is 0.
    constexpr float whole = 12582912 + 127;
    const float sum_of_whole = multiply_add_downwards(log, p, whole);
    const float floor = sum_of_whole - whole;
    // Where d is 0, the remainder would be NaN; saturated, it is 0.
    const float rest =
        kPlain ? multiply_add_saturated(log, p, -floor) : multiply_add(log, p, -floor);
    // NOTE: the largest relative error of this polynomial between 0 and 1 is 8.2e-8; one degree
    // less has 2.9e-6.
    float power = multiply_add(leading, rest, 0.009017029f);
    power = multiply_add(power, rest, 0.055799913f);
    power = multiply_add(power, rest, 0.24016444f);
    power = multiply_add(power, rest, 0.6931513f);
    power = multiply_add(power, rest, 1.0f);
    return multiply_add(power, detail::bits_to_float(bits_of(sum_of_whole) << 23), sum);
  }
};

// Adds one index k to the sum of a term (other than powers known at run time only).
template <TermKind kKind, class Scalar>
KRONOP_INLINE Scalar add_term(Scalar sum, Scalar d) {
  if constexpr (kKind == TermKind::kZero) {
    return sum + (d < 0 || d > 0 ? Scalar(1) : d);  // d is 0 or NaN
  } else if constexpr (kKind == TermKind::kHalf) {
    return sum + fast_root(magnitude(d));
  } else if constexpr (kKind == TermKind::kOne) {
    return sum + magnitude(d);
  } else if constexpr (kKind == TermKind::kThreeHalves) {
    return sum + magnitude(d * fast_root(magnitude(d)));
  } else if constexpr (kKind == TermKind::kTwo) {
    return multiply_add(d, d, sum);
  } else if constexpr (kKind == TermKind::kFiveHalves) {
    return multiply_add(d * d, fast_root(magnitude(d)), sum);
  } else if constexpr (kKind == TermKind::kThree) {
    // A multiply-add has no absolute value modifier for operands, but a multiplication has.
    return multiply_add(d * magnitude(d), d, sum);
  } else if constexpr (kKind == TermKind::kFour) {
    return multiply_add(d * d, d * d, sum);
  } else {
    static_assert(kKind == TermKind::kInfinity || kKind == TermKind::kLargest);
    return larger(sum, magnitude(d));
  }
}

}  // namespace distance
}  // namespace kronop
