// Fragments of 8-bit float operands, which are converted exactly to 16-bit floats in registers.
//
// A register of an MMA holds two contracted indices (half_mma.cuh); which ones is free. With 8-bit
// elements, thread t of a quad has four neighbours of every 16: indices 4 t + 2 i + r. They are
// contiguous where memory is contiguous along the contracted index, or along lanes all of which the
// warp has. Where memory is contiguous along rows, 8 x 8 matrices of pairs of rows are loaded: the
// rows of halves h = 0 and 1 are the neighbours 2 g + h.
#pragma once

#include "contract_operands.cuh"
#include "half_mma.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// Loads two matrices; the first 16 threads point to their rows, as in half_mma.cuh.
KRONOP_INLINE void load_turned_matrices(unsigned (&words)[2], const void* row) {
  const unsigned from = unsigned(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(from)
               : "memory");
}
#endif

namespace contract {

// Four neighbouring contracted indices of each lane of a warp.
template <class Tile, int kLanes, class T>
struct Four {
  static_assert(Tile::kOrder == kAlongLanes || (Tile::kOrder == kAlongOwn && Tile::kLanes == 1));
  static constexpr int kRun = kLanes == Tile::kLanes ? 4 * kLanes : kLanes;
  static constexpr int kAccess = (kRun & -kRun) < 16 ? kRun & -kRun : 16;
  static constexpr int kBytes = kAccess < 4 ? kAccess : 4;  // of a word
  unsigned words[4 * kLanes / kBytes];

  KRONOP_INLINE explicit Four(const T* from) {
    using Word =
        Either<kAccess == 1, unsigned char, Either<kAccess == 2, unsigned short, unsigned>>;
#pragma unroll
    for (int at = 0; at < 4 * kLanes; at += kAccess) {
      const T* piece = from + at / kRun * Tile::kOwn + at % kRun;
      const auto part = load<Word, kAccess / kBytes>(reinterpret_cast<const Word*>(piece));
#pragma unroll
      for (int v = 0; v < kAccess / kBytes; ++v) words[at / kBytes + v] = part.data[v];
    }
  }
  // Indices 2 i and 2 i + 1 of lane `l`, as 16-bit floats.
  KRONOP_INLINE unsigned widened(int l, int i) const {
    const int low = 2 * i * kLanes + l, high = low + kLanes;
    if constexpr (kLanes == 1 && kBytes == 4) {
      return detail::widen_pair<T>(words[0], i);
    } else if constexpr (kLanes == 2 && kBytes == 4) {
      return detail::widen_pair<T>(take_bytes(words[0], words[1], 0x6420 + 0x1111 * l), i);
    } else {
      return detail::widen_pair<T>(take_bytes(words[low / kBytes], words[high / kBytes],
                                              low % kBytes | (4 + high % kBytes) << 4),
                                   0);
    }
  }
};

// For 8-bit operands what load_words is for 16-bit ones.
template <class Tile, int kApart, bool kPairs, int kLanes, class T>
KRONOP_INLINE void load_bytes(unsigned (&to)[kLanes][4], const T* tile) {
  if constexpr (Tile::kOrder == kAlongRows) {
    static_assert(!kPairs);
    const int row = threadIdx.x % 8, second = threadIdx.x / 8 % 2;
    const T* from = tile + (row / 2 * 4 + 2 * second + row % 2) * Tile::kOwn;
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      unsigned words[2];
      load_turned_matrices(words, from + l * Tile::kLane);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const unsigned four = take_bytes(words[0], words[1], 0x6420 + 0x1111 * h);
#pragma unroll
        for (int i = 0; i < 2; ++i) to[l][h + 2 * i] = detail::widen_pair<T>(four, i);
      }
    }
  } else {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Four<Tile, kLanes, T> four(tile + (g + kApart * h) * Tile::kWide + 4 * t * Tile::kOwn);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
#pragma unroll
        for (int i = 0; i < 2; ++i) to[l][kPairs ? 2 * h + i : h + 2 * i] = four.widened(l, i);
      }
    }
  }
}

}  // namespace contract
}  // namespace kronop
