// Powers, exponentials and logarithms of vectors, without branches or tables. Relative errors are
// below two units in the last place, those of powers below 1 + p units. Results near the smallest
// normal number may be 0.
#pragma once

#include "kronop_x86/simd.hpp"

namespace kronop::powers {

// The floating-point format, and the coefficients of polynomials, lowest degree first, with minimal
// largest relative error (by interpolation at Chebyshev nodes).
template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  using Signed = int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kInfinity = 0x7f800000u, kRootOfHalf = 0x3f3504f3u, kSign = 0x80000000u;
  static constexpr float kBias = 127, kLeastNormal = 0x1p-126f, kRaise = 0x1p24f, kRaised = 24;
  // The range of exponents of `times_exp2`.
  static constexpr float kLeast = -126, kMost = 129;
  // A float from kWhole on is an integer, and its low bits are that integer.
  static constexpr float kWhole = 0x1p23f, kRounding = 0x1.8p23f;
  static constexpr float kLog2Half = 0.693359375f, kLog2Rest = -2.12194440e-4f,
                         kOverLog2 = 1.4426950408889634f;
  // 2 * 2^x for |x| <= 1/2.
  static constexpr float kExp2[] = {2.0f,          1.3862943649f,  0.48045301437f, 0.11100654304f,
                                    0.0192361139f, 0.00268008560f, 0.000309228897f};
  // log2(1 + x) / x for 1 + x in [1/sqrt(2), sqrt(2)].
  static constexpr float kLog2[] = {1.442695022f,    -0.72134745121f, 0.48091074824f,
                                    -0.36069327593f, 0.28790324926f,  -0.23916988075f,
                                    0.21607822180f,  -0.20586188138f, 0.12310968339f};
};

template <>
struct Format<double> {
  using Bits = uint64_t;
  using Signed = int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kInfinity = 0x7ff0000000000000u, kRootOfHalf = 0x3fe6a09e667f3bcdu,
                        kSign = 1ull << 63;
  static constexpr double kBias = 1023, kLeastNormal = 0x1p-1022, kRaise = 0x1p53, kRaised = 53;
  static constexpr double kLeast = -1022, kMost = 1025;
  static constexpr double kWhole = 0x1p52, kRounding = 0x1.8p52;
  static constexpr double kLog2Half = 0x1.62e42fefa38p-1, kLog2Rest = 0x1.ef35793c7673p-45,
                          kOverLog2 = 1.4426950408889634;
  static constexpr double kExp2[] = {2.0,
                                     1.3862943611199,
                                     0.48045301391820194,
                                     0.11100821732889544,
                                     0.019236258215213776,
                                     0.002666711646032995,
                                     0.000308070608834721,
                                     3.0505314520401673e-05,
                                     2.643088517584338e-06,
                                     2.0417380599916612e-07,
                                     1.4145171898538447e-08};
  // log2((1 + x) / (1 - x)) / x as a polynomial in x^2, for (1 + x) / (1 - x) in that range.
  static constexpr double kLog2[] = {2.885390081777927,  0.9617966939243345,  0.5770780172463286,
                                     0.4121984020482752, 0.32061638813224547, 0.2614442493522915,
                                     0.2429160853987535};
};

// The type of the numbers in V, and unsigned integers of the same sizes.
template <class V>
struct Shape {
  using Element = decltype(+V{}[0]);  // a value: compilers make references of V{}[0]
  using Bits = Vector<typename Format<Element>::Bits, int(sizeof(V) / sizeof(Element))>;
};
template <>
struct Shape<float> {
  using Element = float;
  using Bits = uint32_t;
};
template <>
struct Shape<double> {
  using Element = double;
  using Bits = uint64_t;
};

template <class V>
using FormatOf = Format<typename Shape<V>::Element>;
template <class V>
using BitsOf = typename Shape<V>::Bits;

template <class V>
KRONOP_INLINE V all(typename Shape<V>::Element value) {
  return value - V{};
}

template <class V>
KRONOP_INLINE BitsOf<V> bits_of(V x) {
  return bit_cast<BitsOf<V>>(x);
}

template <class V>
KRONOP_INLINE V absolute(V x) {
  return bit_cast<V>(bits_of(x) & ~FormatOf<V>::kSign);
}

template <class V>
KRONOP_INLINE V nearest_integer(V x) {
  return (x + FormatOf<V>::kRounding) - FormatOf<V>::kRounding;
}

// NOTE: Estrin's scheme: a chain of dependent multiply-adds would take longer than all the
// instructions.
template <int kFirst, int kCount, class V, class T, int kAll>
KRONOP_INLINE V polynomial_part(const V* powers, const T (&coefficients)[kAll]) {
  if constexpr (kCount == 1) {
    return all<V>(coefficients[kFirst]);
  } else if constexpr (kCount == 2) {
    return powers[0] * coefficients[kFirst + 1] + coefficients[kFirst];
  } else {
    constexpr int kLevel = kCount > 8 ? 3 : kCount > 4 ? 2 : 1, kHalf = 1 << kLevel;
    return polynomial_part<kFirst + kHalf, kCount - kHalf, V>(powers, coefficients) *
               powers[kLevel] +
           polynomial_part<kFirst, kHalf, V>(powers, coefficients);
  }
}

template <class V, class T, int kCount>
KRONOP_INLINE V polynomial(V x, const T (&coefficients)[kCount]) {
  static_assert(kCount > 4 && kCount <= 16);
  const V square = x * x, fourth = square * square;
  const V powers[4] = {x, square, fourth, fourth * fourth};
  return polynomial_part<0, kCount, V>(powers, coefficients);
}

// 2^(rest + whole), where |rest| <= 1/2, and `whole` is an integer from kLeast to kMost.
template <class V>
KRONOP_INLINE V times_exp2(V rest, V whole) {
  using F = FormatOf<V>;
  // The addition leaves the integer in the low bits of a number, which are then shifted to the
  // exponent field. The polynomial has a factor of 2, so that the exponent is one less, and results
  // reach 0 and infinity.
  const V low = whole + (F::kWhole + (F::kBias - 1));
  return polynomial(rest, F::kExp2) * bit_cast<V>(bits_of(low) << F::kMantissaBits);
}

// NOTE: NaN propagates, since comparisons with it fail.
template <class V>
KRONOP_INLINE V clipped(V exponent) {
  using F = FormatOf<V>;
  exponent = exponent < F::kLeast ? all<V>(F::kLeast) : exponent;
  return exponent > F::kMost ? all<V>(F::kMost) : exponent;
}

template <class V>
KRONOP_INLINE V exp(V x) {
  using F = FormatOf<V>;
  // The multiple of log(2) is subtracted in two parts, the first of which is exact.
  constexpr auto kLeast = F::kLeast / F::kOverLog2, kMost = F::kMost / F::kOverLog2;
  x = x < kLeast ? all<V>(kLeast) : x;
  x = x > kMost ? all<V>(kMost) : x;
  const V whole = nearest_integer<V>(x * F::kOverLog2);
  const V rest = (x - whole * F::kLog2Half) - whole * F::kLog2Rest;
  return times_exp2<V>(rest * F::kOverLog2, whole);
}

// log2(x) = exponent + log2(mantissa), with the mantissa in [1/sqrt(2), sqrt(2)].
template <class V>
struct Logarithm {
  V exponent, of_mantissa;
};

// Of positive finite numbers.
template <class V>
KRONOP_INLINE Logarithm<V> logarithm(V x) {
  using F = FormatOf<V>;
  using Element = typename Shape<V>::Element;
  using Bits = typename F::Bits;
  constexpr Bits kMantissa = (Bits(1) << F::kMantissaBits) - 1;
  constexpr Bits kBias = Bits(F::kBias) << F::kMantissaBits;
  const auto is_small = x < F::kLeastNormal;
  const BitsOf<V> bits = bits_of<V>(is_small ? V(x * F::kRaise) : x) - F::kRootOfHalf;
  const V shift =
      is_small ? all<V>(F::kWhole + F::kBias + F::kRaised) : all<V>(F::kWhole + F::kBias);
  const V exponent =
      bit_cast<V>(((bits + kBias) >> F::kMantissaBits) | bit_cast<Bits>(F::kWhole)) - shift;
  const V mantissa = bit_cast<V>((bits & kMantissa) + F::kRootOfHalf);
  if constexpr (sizeof(Element) == 4) {
    const V x1 = mantissa - 1.0f;
    return {exponent, x1 * polynomial(x1, F::kLog2)};
  } else {
    const V ratio = (mantissa - 1.0) / (mantissa + 1.0);
    return {exponent, ratio * polynomial(V(ratio * ratio), F::kLog2)};
  }
}

template <class V>
KRONOP_INLINE auto is_ordinary(V x) {
  using Element = typename Shape<V>::Element;
  return (x > Element(0)) & (x < bit_cast<Element>(FormatOf<V>::kInfinity));
}

// exponent * p - whole, which is small although the product is large. The exponent has so few bits
// that its product with the upper half of p's bits is exact.
template <class V, class P>
KRONOP_INLINE V rest_of_product(V exponent, P p, V whole) {
  using Bits = typename FormatOf<V>::Bits;
  constexpr Bits kLowerHalf = (Bits(1) << (FormatOf<V>::kMantissaBits / 2 + 1)) - 1;
  const P high = bit_cast<P>(bits_of(p) & ~kLowerHalf);
  return (exponent * high - whole) + exponent * (p - high);
}

// x to the power of p, for positive and finite x.
template <class V, class P>
KRONOP_INLINE V power_of_ordinary(V x, P p) {
  const Logarithm<V> log = logarithm(x);
  const V whole = nearest_integer(clipped<V>(log.of_mantissa * p + log.exponent * p));
  V rest = log.of_mantissa * p + rest_of_product(log.exponent, p, whole);
  // Exponents that were clipped: 0 must not be multiplied by infinity.
  rest = rest < -1 ? all<V>(-1) : rest;
  return times_exp2(rest, whole);
}

// x to the power of p, for x >= 0 and p > 0.
template <class V, class P>
KRONOP_INLINE V positive_power(V x, P p) {
  return is_ordinary(x) ? power_of_ordinary(x, p) : x;
}

// x to the power of p, for x >= 0.
template <class V>
KRONOP_INLINE V power(V x, V p) {
  using Element = typename Shape<V>::Element;
  const V infinity = all<V>(bit_cast<Element>(FormatOf<V>::kInfinity));
  const V inverse = x == Element(0) ? infinity : x - x == Element(0) ? x : x == infinity ? V{} : x;
  const V special = p > Element(0) ? x : p < Element(0) ? inverse : p == Element(0) ? all<V>(1) : p;
  return is_ordinary(x) ? power_of_ordinary(x, p) : special;
}

// The natural logarithm.
template <class V>
KRONOP_INLINE V log(V x) {
  using Element = typename Shape<V>::Element;
  const Element infinity = bit_cast<Element>(FormatOf<V>::kInfinity);
  const Logarithm<V> log = logarithm(x);
  const V special = x == Element(0)  ? all<V>(-infinity)
                    : x < Element(0) ? all<V>(infinity - infinity)
                                     : x;
  return is_ordinary(x) ? (log.exponent + log.of_mantissa) * Element(0.6931471805599453) : special;
}

// Applies a function of single numbers to each lane.
template <class V, class Function>
KRONOP_INLINE V each(V x, const Function& function) {
  using Element = typename Shape<V>::Element;
  constexpr int kWidth = sizeof(V) / sizeof(Element);
  Element lanes[kWidth];
  store(lanes, x);
  for (int i = 0; i < kWidth; ++i) lanes[i] = function(lanes[i]);
  return load<Element, kWidth>(lanes);
}

// NOTE: GCC compiles a loop over the lanes to one instruction only in some contexts.
template <class V>
KRONOP_INLINE V root(V x) {
  using Element = typename Shape<V>::Element;
  constexpr bool kSingle = sizeof(Element) == 4;
#if defined(__clang__)
  return __builtin_elementwise_sqrt(x);
#elif defined(__SSE2__)
  if constexpr (sizeof(V) == 16) {
    if constexpr (kSingle) return __builtin_ia32_sqrtps(x);
    if constexpr (!kSingle) return __builtin_ia32_sqrtpd(x);
#if defined(__AVX__)
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (kSingle) return __builtin_ia32_sqrtps256(x);
    if constexpr (!kSingle) return __builtin_ia32_sqrtpd256(x);
#endif
#if defined(__AVX512F__)
  } else if constexpr (sizeof(V) == 64) {
    constexpr int kRounding = 4;  // as the register for it says
    if constexpr (kSingle) return __builtin_ia32_sqrtps512_mask(x, x, short(-1), kRounding);
    if constexpr (!kSingle) return __builtin_ia32_sqrtpd512_mask(x, x, char(-1), kRounding);
#endif
  } else {
    constexpr int kHalf = sizeof(V) / sizeof(Element) / 2;
    Vector<Element, kHalf> halves[2];
    __builtin_memcpy(halves, &x, sizeof(x));
    return joined<V>(root(halves[0]), root(halves[1]), FirstIndices<2 * kHalf>{});
  }
#else
  return each(x, [](Element one) { return math::sqrt(one); });
#endif
}

}  // namespace kronop::powers
