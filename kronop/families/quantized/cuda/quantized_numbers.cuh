// One row's scale, and its numbers rounded to integers: the definition in description.py.
//
// Magnitudes are compared as bits, which have the same order as the numbers, with infinity and NaN
// above all of them.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {
namespace quantized {

KRONOP_INLINE unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

// The bits of the magnitude of a number, or of both numbers in a word (the larger one); and the
// number with these bits.
template <class T>
struct Magnitude {
  static constexpr bool kIsHalf = detail::same<T, half_t>;
  KRONOP_INLINE static unsigned of(T value) { return value.bits & 0x7fffu; }
  KRONOP_INLINE static unsigned of_word(unsigned word) {
    return larger(word & 0x7fffu, word >> 16 & 0x7fffu);
  }
  KRONOP_INLINE static T number(unsigned bits) {
    T value;
    value.bits = (unsigned short)bits;
    return value;
  }
  KRONOP_INLINE static bool is_finite(unsigned bits) {
    return bits < (kIsHalf ? 0x7c00u : 0x7f80u);
  }
};
template <>
struct Magnitude<float> {
  KRONOP_INLINE static unsigned of(float value) {
    return __builtin_bit_cast(unsigned, value) & 0x7fffffffu;
  }
  KRONOP_INLINE static float number(unsigned bits) { return __builtin_bit_cast(float, bits); }
  KRONOP_INLINE static bool is_finite(unsigned bits) { return bits < 0x7f800000u; }
};

// How a row is rounded. `kept` has all bits set, or none if all of the row's integers are 0.
template <int kBits>
struct Rounding {
  static constexpr int kMost = (1 << (kBits - 1)) - 1;
  float scale, inverse;
  unsigned kept;

  // most: the bits of the largest magnitude of the row.
  template <class T>
  KRONOP_INLINE static Rounding of(unsigned most, float clip) {
    Rounding found;
    found.scale = clip * convert<float>(Magnitude<T>::number(most)) / float(kMost);
    const bool finite = Magnitude<T>::is_finite(most), large = found.scale >= 0x1p-100f;
    found.kept = finite && large ? ~0u : 0u;
    if (!finite || !large) found.scale = 1.0f;
    found.inverse = 1.0f / found.scale;
    if (!finite) found.scale = __builtin_bit_cast(float, 0x7fc00000u);
    return found;
  }

  // value / scale, correctly rounded. NOTE: for significands of 11 bits one correction makes the
  // product with the inverse exact; that was verified for all of them and all scales. It takes a
  // third of the instructions of a division.
  template <class T>
  KRONOP_INLINE float quotient(float value) const {
    if constexpr (sizeof(T) > 2) return value / scale;
    const float about = value * inverse;
    return multiply_add(multiply_add(-about, scale, value), inverse, about);
  }

  // The integer of a T in the low byte, for rows that are `kept`. NOTE: adding 1.5 * 2^23 rounds to
  // an integer, to even in ties, whose bits are then the low bits of the sum; a conversion takes
  // twice as long.
  template <class T>
  KRONOP_INLINE unsigned byte(float value) const {
    const float scaled = quotient<T>(value);
    const float clamped = ::fminf(::fmaxf(scaled, float(-kMost - 1)), float(kMost));
    return __builtin_bit_cast(unsigned, clamped + 12582912.0f);
  }
};

// The low nibbles of four bytes, in the low 16 bits, with gaps: see `nibbles`.
KRONOP_INLINE unsigned paired(unsigned bytes) {
  return (bytes & 0x000f000fu) | (bytes >> 4 & 0x00f000f0u);
}
// The low nibbles of eight bytes in one word, the first one lowest.
KRONOP_INLINE unsigned nibbles(unsigned first, unsigned second) {
  return take_bytes(paired(first), paired(second), 0x6420u);
}

}  // namespace quantized
}  // namespace kronop
