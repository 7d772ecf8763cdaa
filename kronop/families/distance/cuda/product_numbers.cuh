// The numbers in which a kernel's function of sums is computed, and the terms of these sums.
#pragma once

#include "kronop/memory.cuh"
#include "relative.cuh"

namespace kronop {
namespace product {

// The number x * factor. Constants of all pairs, such as a bandwidth, are multiplied into the
// factor, once and in double precision: a Gaussian kernel then takes one multiplication and one
// exponential for each pair.
struct Scaled {
  float x = 0;
  double factor = 1;

  Scaled() = default;
  KRONOP_INLINE Scaled(float x, double factor) : x(x), factor(factor) {}
  KRONOP_INLINE explicit Scaled(double constant) : x(1), factor(constant) {}

  KRONOP_INLINE static Scaled varying(float x) { return {x, 1.0}; }
  KRONOP_INLINE static Scaled uniform(float x) { return {1.0f, double(x)}; }
  // Factors beyond float32 are clamped to finite numbers that are not 0: they are multiplied by 0
  // and by infinity.
  KRONOP_INLINE float times(double more) const {
    const double all = factor * more, most = 3.4e38, least = 1.4e-45;
    const double size = all < 0 ? -all : all;
    const double within = size > most ? most : size < least && size > 0 ? least : size;
    return x * float(all < 0 ? -within : within);
  }
  KRONOP_INLINE float value() const { return times(1.0); }
};

KRONOP_INLINE Scaled operator*(Scaled a, Scaled b) { return {a.x * b.x, a.factor * b.factor}; }
KRONOP_INLINE Scaled operator/(Scaled a, Scaled b) {
  return {a.x * (1.0f / b.x), a.factor / b.factor};
}
KRONOP_INLINE Scaled operator+(Scaled a, Scaled b) {
  return Scaled::varying(a.value() + b.value());
}

KRONOP_INLINE float value_of(Scaled x) { return x.value(); }
KRONOP_INLINE double value_of(double x) { return x; }

template <class T>
struct Numbers {
  using type = Scaled;
  KRONOP_INLINE static Scaled varying(float x) { return Scaled::varying(x); }
  KRONOP_INLINE static Scaled uniform(float x) { return Scaled::uniform(x); }
};
template <>
struct Numbers<double> {
  using type = double;
  KRONOP_INLINE static double varying(double x) { return x; }
  KRONOP_INLINE static double uniform(double x) { return x; }
};

// The term to sum, or to maximise, over features; d is the difference of two features, or that
// divided by an element of a vector. The numbers are those of the Python enumeration.
enum Term : int {
  kZero,         // d != 0
  kHalf,         // |d|^(1/2)
  kOne,          // |d|
  kThreeHalves,  // |d|^(3/2)
  kTwo,          // d^2
  kFiveHalves,   // |d|^(5/2)
  kThree,        // |d|^3
  kFour,         // d^4
  kGeneral,      // |d|^p with p > 0
  kInfinity,     // the maximum of |d|
  kDot,          // a b
  kNormA,        // a^2
  kNormB,        // b^2
  kLargest,      // the maximum of |d|, for kRelative
  kRelative,     // (|d| / the maximum of |d|)^p
};

KRONOP_INLINE float power(float x, float p) { return fast_exp2(p * fast_log2(x)); }
KRONOP_INLINE double power(double x, double p) { return ::pow(x, p); }

template <int kTerm, class T>
KRONOP_INLINE T add_term(T sum, T d, T p) {
  const T size = magnitude(d);
  if constexpr (kTerm == kZero) return sum + (d < T(0) || d > T(0) ? T(1) : d);  // d is 0 or NaN
  if constexpr (kTerm == kHalf) return sum + fast_root(size);
  if constexpr (kTerm == kOne) return sum + size;
  if constexpr (kTerm == kThreeHalves) return multiply_add(size, fast_root(size), sum);
  if constexpr (kTerm == kTwo) return multiply_add(d, d, sum);
  if constexpr (kTerm == kFiveHalves) return multiply_add(d * d, fast_root(size), sum);
  if constexpr (kTerm == kThree) return multiply_add(d * d, size, sum);
  if constexpr (kTerm == kFour) return multiply_add(d * d, d * d, sum);
  if constexpr (kTerm == kGeneral || kTerm == kRelative) return sum + power(size, p);
  if constexpr (kTerm == kInfinity || kTerm == kLargest) return larger(sum, size);
}

}  // namespace product

namespace math {

KRONOP_INLINE product::Scaled exp(product::Scaled x) {
  return product::Scaled::varying(fast_exp2(x.times(1.4426950408889634)));
}
KRONOP_INLINE product::Scaled sqrt(product::Scaled x) {
  return product::Scaled::varying(fast_root(x.value()));
}
KRONOP_INLINE product::Scaled fade(product::Scaled x, product::Scaled y) {
  return product::Scaled::varying(fade(x.value(), y.value()));
}
KRONOP_INLINE product::Scaled times_log(product::Scaled x, product::Scaled y) {
  return product::Scaled::varying(times_log(x.value(), y.value()));
}
KRONOP_INLINE product::Scaled inverse(product::Scaled x) {
  return product::Scaled::varying(inverse(x.value()));
}
KRONOP_INLINE product::Scaled inverse_root(product::Scaled x) {
  return product::Scaled::varying(inverse_root(x.value()));
}
KRONOP_INLINE product::Scaled power(product::Scaled x, product::Scaled p) {
  return product::Scaled::varying(::powf(x.value(), p.value()));
}
KRONOP_INLINE product::Scaled max(product::Scaled a, product::Scaled b) {
  return product::Scaled::varying(max(a.value(), b.value()));
}

}  // namespace math
}  // namespace kronop
