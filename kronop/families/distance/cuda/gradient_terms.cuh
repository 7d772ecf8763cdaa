// Gradients of distances: their parameters, and the derivatives of powers,
//
//     s(t) = sgn(t) |t|^(p - 1), with s(0) = 0.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {
namespace powers_of_distances {

constexpr int kBatchDims = 4;

template <int kScalars, class Scalar>
struct Parameters {
  void *a, *b, *c, *d, *y, *z, *power;  // Coefficients c that are null are ones; a power that is null is in `number`.
  long long m, n, k, o;
  long long batch[kBatchDims];
  long long a_batch[kBatchDims], b_batch[kBatchDims], c_batch[kBatchDims], d_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims], power_batch[kBatchDims];
  long long a_row, a_column, b_row, b_column, c_row, c_column, d_row, d_column, y_row, y_column, z_row, z_column;
  long long y_output, z_output, threads;
  double number;
  Scalar scalars[kScalars];
};

KRONOP_INLINE long long offset_of(long long problem, const long long (&extents)[kBatchDims], const long long (&strides)[kBatchDims]) {
  long long at = 0;
  for_each_digit<kBatchDims>(problem, extents, [&](int d, long long digit) { at += digit * strides[d]; });
  return at;
}

// The numbers are those of TermKind in form.py.
enum class Power : int { Half = 1, One, ThreeHalves, Two, FiveHalves, Three, Four, General };

// NOTE: these instructions take the place of functions that cost ten times as much; their relative
// errors are below 2^-22, and they take denormals for zeros.
#if defined(KRONOP_EMULATION)
inline float fast_root(float x) { return std::sqrt(x); }
inline float fast_inverse_root(float x) { return 1 / std::sqrt(x); }
inline float fast_log2(float x) { return std::log2(x); }
inline float fast_exp2(float x) { return std::exp2(x); }
inline float saturated_multiply_add(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  return sum > 0 ? sum < 1 ? sum : 1 : 0;
}
inline float larger(float a, float b) { return math::max(a, b); }
inline float with_sign_of(float x, float t) { return t != t ? t : std::copysign(x, t); }
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
// Between 0 and 1; NaN becomes 0.
KRONOP_INLINE float saturated_multiply_add(float a, float b, float c) {
  float sum;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
// NaN goes through.
KRONOP_INLINE float larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return math::max(a, b);
#endif
}
// Of an x that is not negative.
KRONOP_INLINE float with_sign_of(float x, float t) {
  return __uint_as_float(__float_as_uint(x) | (__float_as_uint(t) & 0x80000000u));
}
#endif
KRONOP_INLINE double fast_root(double x) { return ::sqrt(x); }
KRONOP_INLINE double fast_inverse_root(double x) { return 1 / ::sqrt(x); }
KRONOP_INLINE double larger(double a, double b) { return math::max(a, b); }
KRONOP_INLINE double with_sign_of(double x, double t) { return t != t ? t : ::copysign(x, t); }
KRONOP_INLINE float magnitude(float x) { return ::fabsf(x); }
KRONOP_INLINE double magnitude(double x) { return ::fabs(x); }

template <class T>
inline constexpr T kLeastNormal = T(1.17549435082228750797e-38);
template <>
inline constexpr double kLeastNormal<double> = 2.22507385850720138309e-308;

// |t|^less for a t that is not 0; `less` is p - 1.
KRONOP_INLINE float powered(float size, float less) { return fast_exp2(less * fast_log2(size)); }
KRONOP_INLINE double powered(double size, double less) {
  // A power of 0 is 1 even of NaN.
  return size == size ? ::pow(size, less) : size;
}

// s(t). Smaller differences than the least normal number count as that where powers are negative.
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
    const T size = larger(magnitude(t), kLeastNormal<T>);
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
