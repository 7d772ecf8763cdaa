// Powers of differences relative to the largest one of their pair, (|d| / max |d|)^p: they are
// between 0 and 1, so that their sum is in range whatever p and the differences are.
#pragma once

#include "kronop/instructions.cuh"

namespace kronop {
namespace distance {

// The reciprocal of a largest difference, rounded upwards: times that difference, it is at least 1.
// For 0, infinity, NaN and subnormal numbers, it is 1.
KRONOP_INLINE float reciprocal_of_largest(float largest) {
  const bool is_normal = largest >= 0x1p-126f && largest <= 0x1.fffffep127f;
  return is_normal ? detail::bits_to_float(bits_of(1 / largest) + 1) : 1;
}
KRONOP_INLINE double reciprocal_of_largest(double largest) {
  const bool is_normal = largest >= 0x1p-1022 && largest <= 0x1.fffffffffffffp1023;
  return is_normal ? __builtin_bit_cast(double, __builtin_bit_cast(long long, 1 / largest) + 1) : 1;
}

// |d| / max |d|. In float32, NaN becomes 0: then the largest difference is NaN too.
KRONOP_INLINE float relative(float d, float reciprocal) {
  return multiply_add_saturated(magnitude(d), reciprocal, 0.0f);
}
KRONOP_INLINE double relative(double d, double reciprocal) {
  return smaller(magnitude(d) * reciprocal, 1.0);
}

// A power that was read from a tensor, clamped to bounds beyond which results stay the same. Powers
// that are given as numbers are within these bounds already.
KRONOP_INLINE float bounded_power(float p) { return larger(smaller(p, 0x1p40f), 0x1p-40f); }
KRONOP_INLINE double bounded_power(double p) { return larger(smaller(p, 0x1p70), 0x1p-70); }

// Clamps those values that are powers of relative terms.
template <class Step, int kRelative, class Scalar, int t = 0>
KRONOP_INLINE void bound_powers(Scalar* values) {
  if constexpr (int(Step::kTerm[t]) == kRelative) {
    Scalar& power = values[Step::kTermValue[t]];
    power = bounded_power(power);
  }
  if constexpr (t + 1 < count_of(Step::kTerm)) bound_powers<Step, kRelative, Scalar, t + 1>(values);
}

}  // namespace distance
}  // namespace kronop
