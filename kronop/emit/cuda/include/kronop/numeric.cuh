// Element types, conversions between them and the scalar functions of epilogues.
//
// Storage types are trivially copyable; arithmetic happens in the accumulator or compute type.
// Nothing here needs a CUDA header, so that NVRTC compiles it in milliseconds.
#pragma once

// KRONOP_HAS_<feature> is defined where the target has the feature (kronop/machine.py).
#if !defined(KRONOP_EMULATION) && !defined(KRONOP_HAS_GRID_CONSTANTS)
#undef __grid_constant__
#define __grid_constant__
#endif

#if defined(KRONOP_EMULATION)
#include <cmath>
#define KRONOP_INLINE inline
#else
#define KRONOP_INLINE __device__ __forceinline__
#endif

namespace kronop {

// A signed integer whose overflow wraps around: sums are computed in the unsigned type.
template <class Signed, class Unsigned>
struct Wrapping {
  Signed value;
  Wrapping() = default;
  KRONOP_INLINE constexpr explicit Wrapping(long long number) : value(Signed(number)) {}
  KRONOP_INLINE friend Wrapping operator+(Wrapping a, Wrapping b) {
    return Wrapping(Signed(Unsigned(a.value) + Unsigned(b.value)));
  }
  KRONOP_INLINE friend Wrapping operator*(Wrapping a, Wrapping b) {
    return Wrapping(Signed(Unsigned(a.value) * Unsigned(b.value)));
  }
  KRONOP_INLINE friend bool operator>(Wrapping a, Wrapping b) { return a.value > b.value; }
  KRONOP_INLINE friend bool operator<(Wrapping a, Wrapping b) { return a.value < b.value; }
  KRONOP_INLINE friend bool operator!=(Wrapping a, Wrapping b) { return a.value != b.value; }
};

using int8_t = Wrapping<signed char, unsigned>;
using int32_t = Wrapping<int, unsigned>;
using int64_t = Wrapping<long long, unsigned long long>;

// Constructors keep these types from being aggregates: otherwise a cast from a number would
// initialise the bits.
struct half_t {
  unsigned short bits;
  half_t() = default;
};
struct bfloat16_t {
  unsigned short bits;
  bfloat16_t() = default;
};
struct float_e4m3_t {
  unsigned char bits;
  float_e4m3_t() = default;
};
struct float_e5m2_t {
  unsigned char bits;
  float_e5m2_t() = default;
};

// A multiply-add of the accumulator type.
KRONOP_INLINE float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
KRONOP_INLINE double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }
template <class S, class U>
KRONOP_INLINE Wrapping<S, U> multiply_add(Wrapping<S, U> a, Wrapping<S, U> b, Wrapping<S, U> c) {
  return a * b + c;
}

namespace detail {

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

template <class T>
struct IntegerOf {
  static constexpr bool is_integer = false;
};
template <class S, class U>
struct IntegerOf<Wrapping<S, U>> {
  using Signed = S;
  static constexpr bool is_integer = true;
  static constexpr long long most = (long long)(~0ull >> (65 - 8 * sizeof(S)));
  static constexpr long long least = -most - 1;
};

// Rounds to nearest even with integer arithmetic, where there is no instruction.
KRONOP_INLINE bfloat16_t rounded_to_bfloat16(unsigned bits) {
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  bfloat16_t to;
  to.bits =
      static_cast<unsigned short>(is_nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return to;
}

#if defined(KRONOP_EMULATION)
inline float half_to_float(half_t from) { return float(__builtin_bit_cast(_Float16, from.bits)); }
inline half_t float_to_half(float from) {
  half_t to;
  to.bits = __builtin_bit_cast(unsigned short, _Float16(from));
  return to;
}
inline bfloat16_t float_to_bfloat16(float from) {
  return rounded_to_bfloat16(__builtin_bit_cast(unsigned, from));
}
// To the bits of a half_t. A half_t with the same exponent and fraction fields is 2^8 times too
// small.
inline unsigned e4m3_to_half(unsigned byte) {
  const unsigned magnitude = byte & 0x7fu, sign = (byte & 0x80u) << 8;
  const auto small = __builtin_bit_cast(_Float16, static_cast<unsigned short>(magnitude << 7));
  return sign |
         (magnitude == 0x7fu ? 0x7fffu
                             : __builtin_bit_cast(unsigned short, _Float16(float(small) * 256)));
}
inline unsigned e4m3_pair_to_half(unsigned pair) {
  return e4m3_to_half(pair & 0xffu) | e4m3_to_half(pair >> 8 & 0xffu) << 16;
}
inline float bits_to_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
template <class Float>
inline long long round_saturate(Float from) {
  if (from != from) return 0;
  if (from >= Float(9223372036854775808.0)) return 0x7fffffffffffffffll;
  if (from <= Float(-9223372036854775808.0)) return -0x7fffffffffffffffll - 1;
  return static_cast<long long>(std::nearbyint(from));
}
#else
KRONOP_INLINE float half_to_float(half_t from) {
  float to;
  asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(from.bits));
  return to;
}
KRONOP_INLINE half_t float_to_half(float from) {
  half_t to;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(from));
  return to;
}
KRONOP_INLINE bfloat16_t float_to_bfloat16(float from) {
#if defined(KRONOP_HAS_BFLOAT16)
  bfloat16_t to;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(from));
  return to;
#else
  return rounded_to_bfloat16(__float_as_uint(from));
#endif
}
// NOTE: this instruction needs Feature.float8.
KRONOP_INLINE unsigned e4m3_pair_to_half(unsigned pair) {
  unsigned to;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(to) : "h"((unsigned short)pair));
  return to;
}
KRONOP_INLINE float bits_to_float(unsigned bits) { return __uint_as_float(bits); }
// NOTE: PTX converts NaN to 0 only in 32 bits; in 64 bits it gives the smallest value.
KRONOP_INLINE long long round_saturate(float from) {
  long long to;
  asm("cvt.rni.s64.f32 %0, %1;" : "=l"(to) : "f"(from));
  return from == from ? to : 0;
}
KRONOP_INLINE long long round_saturate(double from) {
  long long to;
  asm("cvt.rni.s64.f64 %0, %1;" : "=l"(to) : "d"(from));
  return from == from ? to : 0;
}
#endif

template <class Integer, class From>
KRONOP_INLINE Integer clamp_to(From value) {
  using Of = IntegerOf<Integer>;
  if constexpr (sizeof(Integer) >= sizeof(From)) {
    return Integer(value);
  } else {
    return Integer(value > From(Of::most)    ? From(Of::most)
                   : value < From(Of::least) ? From(Of::least)
                                             : value);
  }
}

// Converts two of the four 8-bit floats in a word, the lower or the upper ones, to half_t, exactly.
template <class T>
KRONOP_INLINE unsigned widen_pair(unsigned word, int upper) {
  const unsigned pair = word >> 16 * upper;
  if constexpr (same<T, float_e4m3_t>) {
    return e4m3_pair_to_half(pair);
  } else {
    // An e5m2 float is the upper byte of a half_t.
    return (pair & 0xffu) << 8 | (pair & 0xff00u) << 16;
  }
}

template <class From>
KRONOP_INLINE auto widen(From from) {
  if constexpr (same<From, half_t>) {
    return half_to_float(from);
  } else if constexpr (same<From, bfloat16_t>) {
    return bits_to_float(unsigned(from.bits) << 16);
  } else if constexpr (same<From, float_e4m3_t> || same<From, float_e5m2_t>) {
    half_t half;
    half.bits = (unsigned short)widen_pair<From>(from.bits, 0);
    return half_to_float(half);
  } else {
    return from;
  }
}

}  // namespace detail

// Rounds to nearest even. What becomes an integer is saturated, and NaN becomes 0.
template <class To, class From>
KRONOP_INLINE To convert(From from) {
  using detail::IntegerOf;
  using detail::same;
  if constexpr (same<To, From>) {
    return from;
  } else if constexpr (IntegerOf<From>::is_integer) {
    if constexpr (IntegerOf<To>::is_integer) {
      return detail::clamp_to<To>(from.value);
    } else if constexpr (same<To, double>) {
      return double(from.value);
    } else {
      return convert<To>(float(from.value));
    }
  } else if constexpr (IntegerOf<To>::is_integer) {
    return detail::clamp_to<To>(detail::round_saturate(detail::widen(from)));
  } else if constexpr (same<To, half_t>) {
    return detail::float_to_half(float(detail::widen(from)));
  } else if constexpr (same<To, bfloat16_t>) {
    return detail::float_to_bfloat16(float(detail::widen(from)));
  } else {
    return To(detail::widen(from));
  }
}

// The base class of rendered epilogues: alpha and beta in the compute type.
template <class T>
struct Scaling {
  using Compute = T;
  Compute alpha, beta;
  template <class Scalar>
  KRONOP_INLINE explicit Scaling(const Scalar* scalars)
      : alpha(Compute(scalars[0])), beta(Compute(scalars[1])) {}
};

// Functions of constant arrays: number of items, product of neighbouring items, comparison.
template <class T, int kCount>
KRONOP_INLINE constexpr int count_of(const T (&)[kCount]) {
  return kCount;
}
template <class T, int kCount>
KRONOP_INLINE constexpr T product_of(const T (&items)[kCount], int first = 0, int end = kCount) {
  T product = 1;
  for (int i = first; i < end; ++i) product *= items[i];
  return product;
}

template <class T, int kCount>
KRONOP_INLINE constexpr bool all_equal(const T (&items)[kCount]) {
  for (int i = 1; i < kCount; ++i) {
    if (items[i] != items[0]) return false;
  }
  return true;
}
template <class T, int kCount>
KRONOP_INLINE constexpr bool all_at_least(const T (&items)[kCount], const T (&others)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    if (items[i] < others[i]) return false;
  }
  return true;
}

// Functions for rendered epilogues. NaN propagates through max and min, as in NumPy.
namespace math {

template <class T>
KRONOP_INLINE T max(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
KRONOP_INLINE T min(T a, T b) {
  return a < b || a != a ? a : b;
}
KRONOP_INLINE float exp(float x) { return ::expf(x); }
KRONOP_INLINE double exp(double x) { return ::exp(x); }
KRONOP_INLINE float tanh(float x) { return ::tanhf(x); }
KRONOP_INLINE double tanh(double x) { return ::tanh(x); }
KRONOP_INLINE float erf(float x) { return ::erff(x); }
KRONOP_INLINE double erf(double x) { return ::erf(x); }
KRONOP_INLINE float sqrt(float x) { return ::sqrtf(x); }
KRONOP_INLINE double sqrt(double x) { return ::sqrt(x); }
KRONOP_INLINE float power(float x, float y) { return ::powf(x, y); }
KRONOP_INLINE double power(double x, double y) { return ::pow(x, y); }
// x y, and 0 where x is 0, whatever y is.
template <class T>
KRONOP_INLINE T fade(T x, T y) {
  return x == T(0) ? T(0) : x * y;
}
// x log(y), and 0 where x is 0, unless y is NaN.
KRONOP_INLINE float times_log(float x, float y) { return x == 0 && y == y ? 0 : x * ::logf(y); }
KRONOP_INLINE double times_log(double x, double y) { return x == 0 && y == y ? 0 : x * ::log(y); }
template <class T>
KRONOP_INLINE T threshold(T x, T least) {
  return x < least ? T(0) : x;
}
// 1 / x, and 0 for 0: derivatives of roots are defined as 0 there.
template <class T>
KRONOP_INLINE T inverse(T x) {
  const T reciprocal =
      T(1) / x;  // Unconditional: a branch would keep the compiler from sharing it among pairs.
  return x == T(0) ? T(0) : reciprocal;
}
// 1 / sqrt(x), and 0 for 0.
KRONOP_INLINE double inverse_root(double x) { return inverse(::sqrt(x)); }
KRONOP_INLINE float inverse_root(float x) {
#if defined(KRONOP_EMULATION)
  return inverse(::sqrtf(x));
#else
  // The instruction has an error of 2 units in the last place; a Newton step reduces it to below 1.
  const float near = ::rsqrtf(x), root = ::fmaf(near * 0.5f, ::fmaf(-x * near, near, 1.0f), near);
  return x == 0 || near == 0 ? 0 : root;
#endif
}

}  // namespace math
}  // namespace kronop
