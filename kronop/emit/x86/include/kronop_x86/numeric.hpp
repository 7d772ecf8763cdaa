// Storage types, conversions between them, and the functions that epilogues call.
// Conversions are integer arithmetic without branches, so that loops over them vectorise on every
// target; with AVX-512 they run at the speed of the copy around them, without F16C.
#pragma once

#define KRONOP_INLINE inline __attribute__((always_inline))

namespace kronop {

using int8_t = signed char;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using index_t = long long;

struct half_t {
  uint16_t bits;
};
struct bfloat16_t {
  uint16_t bits;
};
struct float_e4m3_t {
  uint8_t bits;
};
struct float_e5m2_t {
  uint8_t bits;
};

template <class To, class From>
KRONOP_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

namespace detail {

template <class T>
inline constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

template <class T>
inline constexpr bool is_integer = false;
template <>
inline constexpr bool is_integer<int8_t> = true;
template <>
inline constexpr bool is_integer<int32_t> = true;
template <>
inline constexpr bool is_integer<int64_t> = true;

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

KRONOP_INLINE float from_half(uint16_t half) {
#if defined(__aarch64__)
  return float(bit_cast<__fp16>(half));  // which compilers vectorise
#else
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  // A subnormal half is an integer multiple of 2^-24: as the fraction of a float with exponent -14
  // it is too large by 2^-14.
  const uint32_t small =
      bit_cast<uint32_t>(bit_cast<float>(0x38800000u | (magnitude << 13)) - 0x1p-14f);
  const uint32_t finite = magnitude < 0x0400u ? small : normal;
  return bit_cast<float>((magnitude >= 0x7c00u ? special : finite) | sign);
#endif
}

KRONOP_INLINE uint16_t to_half(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 lets the addition itself round to the spacing of half subnormals.
  const float clipped = bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u);
  const uint32_t small = bit_cast<uint32_t>(clipped + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? small : normal;
  const uint32_t result = magnitude >= 0x47800000u ? special : finite;
  return uint16_t(result | ((bits >> 16) & 0x8000u));
}

// As from_half, but e4m3 has no infinities, and only one magnitude is NaN.
KRONOP_INLINE float from_e4m3(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t small =
      bit_cast<uint32_t>(bit_cast<float>(0x3c800000u | (magnitude << 20)) - 0x1p-6f);
  const uint32_t finite = magnitude < 8u ? small : normal;
  return bit_cast<float>((magnitude == 0x7fu ? 0x7fc00000u : finite) | uint32_t(byte & 0x80u)
                                                                           << 24);
}

KRONOP_INLINE float from_bfloat16(uint16_t value) { return bit_cast<float>(uint32_t(value) << 16); }

KRONOP_INLINE uint16_t to_bfloat16(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// Rounds double to float, to odd where inexact. A second rounding, to fewer than 22 bits, then
// gives what rounding the double directly would give.
KRONOP_INLINE float to_odd_float(double value) {
  const float nearest = float(value);
  const double back = double(nearest);
  const uint32_t bits = bit_cast<uint32_t>(nearest);
  const double above = value < 0 ? back - value : value - back;
  const bool inexact = back != value && value == value && back - back == 0;
  const uint32_t odd = above > 0 ? bits + 1u : bits - 1u;
  return inexact && (bits & 1u) == 0 ? bit_cast<float>(odd) : nearest;
}

// The bounds 2^(n-1) as doubles, exact for every type: one past the largest integer.
template <class Integer>
inline constexpr double kIntegerBound = double(uint64_t(1) << (8 * sizeof(Integer) - 1));

template <class To, class From>
KRONOP_INLINE To round_to_integer(From value) {
  const From bound = From(kIntegerBound<To>);
  const From rounded =
      From(sizeof(From) == 4 ? __builtin_rintf(float(value)) : __builtin_rint(double(value)));
  const To least = To(uint64_t(1) << (8 * sizeof(To) - 1));
  const bool inside = rounded >= -bound && rounded < bound;
  const To outside = value != value ? To(0) : (value < 0 ? least : To(~least));
  return inside ? To(rounded) : outside;
}

template <class To>
struct Convert {
  template <class From>
  KRONOP_INLINE static To from(From value) {
    if constexpr (is_same<From, half_t>) {
      return To(from_half(value.bits));
    } else if constexpr (is_same<From, bfloat16_t>) {
      return To(from_bfloat16(value.bits));
    } else if constexpr (is_same<From, float_e4m3_t>) {
      return To(from_e4m3(value.bits));
    } else if constexpr (is_same<From, float_e5m2_t>) {
      return To(from_half(uint16_t(value.bits << 8)));
    } else if constexpr (is_floating<From> && !is_floating<To>) {
      return round_to_integer<To>(value);
    } else if constexpr (is_integer<To> && sizeof(To) < sizeof(From)) {
      const From most = (From(1) << (8 * sizeof(To) - 1)) - 1;
      return To(value > most ? most : (value < -most - 1 ? -most - 1 : value));
    } else {
      return To(value);
    }
  }
};

template <class From>
KRONOP_INLINE float nearest_float(From value) {
  if constexpr (is_same<From, double>) {
    return to_odd_float(value);
  } else {
    return Convert<float>::from(value);
  }
}

template <>
struct Convert<half_t> {
  template <class From>
  KRONOP_INLINE static half_t from(From value) {
    return half_t{to_half(nearest_float(value))};
  }
};

template <>
struct Convert<bfloat16_t> {
  template <class From>
  KRONOP_INLINE static bfloat16_t from(From value) {
    return bfloat16_t{to_bfloat16(nearest_float(value))};
  }
};

}  // namespace detail

// Rounds to nearest even and keeps NaN. Conversions to integers saturate, and NaN becomes 0.
template <class To, class From>
KRONOP_INLINE To convert(From value) {
  if constexpr (detail::is_same<To, From>) {
    return value;
  } else {
    return detail::Convert<To>::from(value);
  }
}

// How many items an array has.
template <class T, int kCount>
constexpr int count_of(const T (&)[kCount]) {
  return kCount;
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

}  // namespace kronop
