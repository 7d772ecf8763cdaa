// Vectors by the compiler's own extension (GCC and Clang): any width, any architecture.
#pragma once

#include "kronop_x86/functions.hpp"

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

// A vector whose halves are loaded from two addresses.
// NOTE: GCC has __builtin_shufflevector from version 12 on. Before, halves are joined through
// memory, which is slower.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define KRONOP_SHUFFLES_HALVES 1
#endif
#endif

template <class V, class H, int... kIndex>
KRONOP_INLINE V joined(H low, H high, Indices<kIndex...>) {
#if KRONOP_SHUFFLES_HALVES
  return __builtin_shufflevector(low, high, kIndex...);
#else
  V value;
  __builtin_memcpy(&value, &low, sizeof(low));
  __builtin_memcpy(reinterpret_cast<char*>(&value) + sizeof(low), &high, sizeof(high));
  return value;
#endif
}

template <class T, int kWidth>
KRONOP_INLINE Vector<T, kWidth> load_halves(const T* low, const T* high) {
  return joined<Vector<T, kWidth>>(load<T, kWidth / 2>(low), load<T, kWidth / 2>(high),
                                   FirstIndices<kWidth>{});
}

template <class V, class T, int... kIndex>
KRONOP_INLINE void store_halves(T* low, T* high, const V& value, Indices<kIndex...>) {
#if KRONOP_SHUFFLES_HALVES
  store(low, __builtin_shufflevector(value, value, kIndex...));
  store(high, __builtin_shufflevector(value, value, (kIndex + int(sizeof...(kIndex)))...));
#else
  __builtin_memcpy(low, &value, sizeof(value) / 2);
  __builtin_memcpy(high, reinterpret_cast<const char*>(&value) + sizeof(value) / 2,
                   sizeof(value) / 2);
#endif
}

// A streaming store of a vector of at least 16 bytes, aligned to its size. stream_end() has to
// follow before other threads read it, because such stores are not ordered with later ones.
template <class V, class T>
KRONOP_INLINE void stream(T* to, const V& value) {
#if defined(__clang__)
  __builtin_nontemporal_store(value, reinterpret_cast<V*>(to));
#elif defined(__SSE2__)
  if constexpr (sizeof(V) == 16) {
    __builtin_ia32_movntps(reinterpret_cast<float*>(to), bit_cast<Vector<float, 4>>(value));
#if defined(__AVX__)
  } else if constexpr (sizeof(V) == 32) {
    __builtin_ia32_movntps256(reinterpret_cast<float*>(to), bit_cast<Vector<float, 8>>(value));
#endif
#if defined(__AVX512F__)
  } else if constexpr (sizeof(V) == 64) {
    __builtin_ia32_movntps512(reinterpret_cast<float*>(to), bit_cast<Vector<float, 16>>(value));
#endif
  } else if constexpr (sizeof(V) > 16) {
    constexpr int kHalf = sizeof(V) / 2;
    const auto* halves = reinterpret_cast<const unsigned char*>(&value);
    stream(reinterpret_cast<unsigned char*>(to), load<unsigned char, kHalf>(halves));
    stream(reinterpret_cast<unsigned char*>(to) + kHalf,
           load<unsigned char, kHalf>(halves + kHalf));
  } else {
    store(to, value);
  }
#else
  store(to, value);
#endif
}

KRONOP_INLINE void stream_end() {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

// A shuffle of two vectors: element i is element Places::of(i) of their concatenation.
// NOTE: GCC has __builtin_shufflevector only from version 12 on, and Clang has no
// __builtin_shuffle.
template <class Places, class V, int... kIndex>
KRONOP_INLINE V shuffle(V a, V b, Indices<kIndex...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, Places::of(kIndex)...);
#else
  using Mask = decltype(a < b);
  return __builtin_shuffle(a, b, Mask{Places::of(kIndex)...});
#endif
}

// Indices of a shuffle that alternates runs of kRun elements of two vectors: from the lower (kHigh
// = 0) or upper (kHigh = 1) half of every stretch of kStretch elements.
template <int kWidth, int kStretch, int kRun, int kHigh>
struct Interleaved {
  static constexpr int of(int i) {
    const int place = i % kStretch, run = place / kRun;
    return i / kStretch * kStretch + kHigh * kStretch / 2 + run / 2 * kRun + place % kRun +
           run % 2 * kWidth;
  }
};

// A step of the transposition of a kWidth x kWidth block in registers: interleaves rows that are
// kApart apart. transpose() first interleaves within 16 bytes, one instruction on every instruction
// set, then exchanges pieces of 16 bytes between rows.
// NOTE: interleaving across 16 bytes takes two to three instructions on AVX2.
template <int kStretch, int kRun, int kApart, class V, int kWidth>
KRONOP_INLINE void exchange(V (&rows)[kWidth]) {
  constexpr FirstIndices<kWidth> indices{};
  V next[kWidth];
  KRONOP_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    const int low = i & ~kApart;
    next[i] = (i & kApart) != 0 ? shuffle<Interleaved<kWidth, kStretch, kRun, 1>>(
                                      rows[low], rows[low | kApart], indices)
                                : shuffle<Interleaved<kWidth, kStretch, kRun, 0>>(
                                      rows[low], rows[low | kApart], indices);
  }
  KRONOP_UNROLL
  for (int i = 0; i < kWidth; ++i) rows[i] = next[i];
}

template <class V, int kWidth>
KRONOP_INLINE void transpose(V (&rows)[kWidth]) {
  constexpr int kLane = kWidth * 16 / int(sizeof(V));
  static_assert((kLane == 2 || kLane == 4) && kWidth <= 4 * kLane);
  exchange<kLane, 1, 1>(rows);
  if constexpr (kLane == 4) exchange<kLane, 2, 2>(rows);
  if constexpr (kWidth >= 4 * kLane) exchange<kWidth, kLane, kWidth / 2>(rows);
  if constexpr (kWidth >= 2 * kLane) exchange<kWidth, kLane, kLane>(rows);
  if constexpr (kLane == 4) {
    KRONOP_UNROLL
    for (int i = 0; i < kWidth; i += kLane) {
      const V second = rows[i + 1];
      rows[i + 1] = rows[i + 2];
      rows[i + 2] = second;
    }
  }
}

}  // namespace kronop
