// Gradients of distances: their parameters, and the derivatives of powers,
//
//     s(t) = sgn(t) |t|^(p - 1), with s(0) = 0; for a Relative power, |t| is at most 1.
#pragma once

#include "kronop/memory.cuh"
#include "relative.cuh"

namespace kronop {
namespace powers_of_distances {

constexpr int kBatchDims = 4;

template <int kScalars, class Scalar>
struct Parameters {
  void *a, *b, *c, *d, *y, *z, *largest,
      *power;  // Coefficients c are ones if null; a power that is null is in `number`.
  long long m, n, k, o;
  long long batch[kBatchDims];
  long long a_batch[kBatchDims], b_batch[kBatchDims], c_batch[kBatchDims], d_batch[kBatchDims],
      y_batch[kBatchDims], z_batch[kBatchDims], largest_batch[kBatchDims], power_batch[kBatchDims];
  long long a_row, a_column, b_row, b_column, c_row, c_column, d_row, d_column, y_row, y_column,
      z_row, z_column, largest_row, largest_column;
  long long y_output, z_output, threads;
  double number;
  Scalar scalars[kScalars];
};

KRONOP_INLINE long long offset_of(long long problem, const long long (&extents)[kBatchDims],
                                  const long long (&strides)[kBatchDims]) {
  long long at = 0;
  for_each_digit<kBatchDims>(problem, extents,
                             [&](int d, long long digit) { at += digit * strides[d]; });
  return at;
}

// The numbers are those of TermKind in form.py.
enum class Power : int {
  Half = 1,
  One,
  ThreeHalves,
  Two,
  FiveHalves,
  Three,
  Four,
  General,
  Relative = 14
};

// For x >= 0.
KRONOP_INLINE float with_sign_of(float x, float t) {
  return detail::bits_to_float(bits_of(x) | (bits_of(t) & 0x80000000u));
}
KRONOP_INLINE double with_sign_of(double x, double t) { return t != t ? t : ::copysign(x, t); }

template <class T>
inline constexpr T kLeastNormal = T(1.17549435082228750797e-38);
template <>
inline constexpr double kLeastNormal<double> = 2.22507385850720138309e-308;

// |t|^less for a t that is not 0; `less` is p - 1. The power 0 of infinity is 1.
KRONOP_INLINE float powered(float size, float less) {
  return fast_exp2(less * smaller(fast_log2(size), 3e38f));
}
KRONOP_INLINE double powered(double size, double less) {
  // A power of 0 is 1 even of NaN.
  return size == size ? ::pow(size, less) : size;
}

// s(t). If the exponent is negative, subnormal differences count as the least normal number.
template <Power kPower, class T>
KRONOP_INLINE T slope(T t, T less) {
  if constexpr (kPower == Power::One) {
    return t > T(0) ? T(1) : t < T(0) ? T(-1) : t;
  } else if constexpr (kPower == Power::Two) {
    return t;
  } else if constexpr (kPower == Power::Three) {
    return t * magnitude(t);
  } else if constexpr (kPower == Power::Four) {
    return t * t * t;
  } else if constexpr (kPower == Power::ThreeHalves) {
    return with_sign_of(fast_root(magnitude(t)), t);
  } else if constexpr (kPower == Power::FiveHalves) {
    return t * fast_root(magnitude(t));
  } else {
    T size = larger(magnitude(t), kLeastNormal<T>);
    if constexpr (kPower == Power::Relative) size = smaller(size, T(1));
    T value;
    if constexpr (kPower == Power::Half) {
      value = fast_inverse_root(size);
    } else {
      value = powered(size, less);
    }
    return t == T(0) ? T(0) : with_sign_of(value, t);
  }
}

}  // namespace powers_of_distances
}  // namespace kronop
