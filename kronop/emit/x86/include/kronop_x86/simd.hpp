// Vectors through the compiler's own extension: GCC and Clang, any width, any architecture.
#pragma once

#include "kronop_x86/numeric.hpp"

#define KRONOP_UNROLL _Pragma("GCC unroll 32")

namespace kronop {

template <class T, int kWidth>
struct VectorOf {
  typedef T type __attribute__((vector_size(kWidth * sizeof(T))));
};

template <class T, int kWidth>
using Vector = typename VectorOf<T, kWidth>::type;

template <class T, int kWidth>
KRONOP_INLINE Vector<T, kWidth> load(const T* from) {
  Vector<T, kWidth> value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

template <class V, class T>
KRONOP_INLINE void store(T* to, const V& value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

template <int... kIndex>
struct Indices {};
#if defined(__clang__)
template <class T, T... kIndex>
using IndicesFrom = Indices<int(kIndex)...>;
template <int kCount>
using FirstIndices = __make_integer_seq<IndicesFrom, int, kCount>;
#else
template <int kCount>
using FirstIndices = Indices<__integer_pack(kCount)...>;
#endif

// a0 b0 a1 b1 ... of the lower (kHigh = 0) or upper (kHigh = 1) halves.
// NOTE: GCC has __builtin_shufflevector from 12 on only, and Clang no __builtin_shuffle.
template <int kHigh, int kWidth, class V, int... kIndex>
KRONOP_INLINE V interleave(V a, V b, Indices<kIndex...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, ((kIndex / 2) + kHigh * (kWidth / 2) + (kIndex % 2) * kWidth)...);
#else
  using Mask = decltype(a < b);
  return __builtin_shuffle(a, b, Mask{((kIndex / 2) + kHigh * (kWidth / 2) + (kIndex % 2) * kWidth)...});
#endif
}

// A kWidth x kWidth block in registers. One round of interleaving rows i and i + kWidth / 2 rotates
// the bits of (row, column) by one; log2(kWidth) rounds exchange row and column.
template <class V, int kWidth>
KRONOP_INLINE void transpose(V (&rows)[kWidth]) {
  constexpr FirstIndices<kWidth> indices{};
  KRONOP_UNROLL
  for (int round = kWidth; round > 1; round /= 2) {
    V next[kWidth];
    KRONOP_UNROLL
    for (int i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = interleave<0, kWidth>(rows[i], rows[i + kWidth / 2], indices);
      next[2 * i + 1] = interleave<1, kWidth>(rows[i], rows[i + kWidth / 2], indices);
    }
    KRONOP_UNROLL
    for (int i = 0; i < kWidth; ++i) rows[i] = next[i];
  }
}

}  // namespace kronop
