// The register tile, and factors packed for it.
#pragma once

#include "kronop_x86/simd.hpp"

namespace kronop {

template <bool kAlone, class T>
struct PointerTo {
  using type = T*;
};
template <class T>
struct PointerTo<true, T> {
  using type = T* __restrict;
};
template <bool kAlone, class T>
using Unaliased = typename PointerTo<kAlone, T>::type;

// Register blocking: c[i][v] (+)= sum over p of a[i, p] b[p][v] for kRows values i and kVectors
// vectors v. It broadcasts single numbers of `a` and loads whole vectors of `b`: a factor's numbers
// times data along a contiguous dimension, or a row's numbers times a factor along its outputs.
// Strides are in elements. kStream: streaming stores; c is aligned to a vector, and so is c_row.
// kHalves: the upper half of a vector is b_high elements (c_high in c) after the lower half.
// kInPlace: c may be b, since all of b is read before anything is written.
// NOTE: always inlined, because constant strides gain a third: 8 x 8 factors, a row's numbers times
// a factor along its outputs, run at 65 GFLOP/s with strides in registers and at 88 with constant
// ones (one core with AVX2, whose peak is 102).
template <int kRows, int kVectors, int kWidth, int kUnroll, bool kStream = false,
          bool kHalves = false, bool kInPlace = false, class Compute>
KRONOP_INLINE void register_tile(const Compute* __restrict a, index_t a_row, index_t a_step,
                                 Unaliased<!kInPlace, const Compute> b, index_t b_step,
                                 Unaliased<!kInPlace, Compute> c, index_t c_row, index_t contracted,
                                 bool accumulate = false, index_t b_high = 0, index_t c_high = 0) {
  static_assert(!kHalves || (kVectors == 1 && !kStream));
  using V = Vector<Compute, kWidth>;
  V sum[kRows][kVectors];
  KRONOP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = accumulate ? load<Compute, kWidth>(c + i * c_row + v * kWidth) : V{};
    }
  }
  const auto multiply_add = [&]() __attribute__((always_inline)) {
    V value[kVectors];
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kHalves) {
        value[v] = load_halves<Compute, kWidth>(b, b + b_high);
      } else {
        value[v] = load<Compute, kWidth>(b + v * kWidth);
      }
    }
    KRONOP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      KRONOP_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] += value[v] * a[i * a_row];
    }
    a += a_step;
    b += b_step;
  };
  for (; contracted >= kUnroll; contracted -= kUnroll) {
    KRONOP_UNROLL
    for (int u = 0; u < kUnroll; ++u) multiply_add();
  }
  for (; contracted > 0; --contracted) multiply_add();
  KRONOP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kStream) {
        stream(c + i * c_row + v * kWidth, sum[i][v]);
      } else if constexpr (kHalves) {
        store_halves(c + i * c_row, c + i * c_row + c_high, sum[i][v], FirstIndices<kWidth / 2>{});
      } else {
        store(c + i * c_row + v * kWidth, sum[i][v]);
      }
    }
  }
}

// A number as a type.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// Calls action(height as a type, row) for tiles of kHeight rows that cover [0, rows); the last ones
// are lower.
template <int kHeight, class Action>
KRONOP_INLINE void in_tiles(index_t rows, const Action& action, index_t row = 0) {
  for (; row + kHeight <= rows; row += kHeight) action(Constant<kHeight>{}, row);
  if constexpr (kHeight > 1) {
    if (row < rows) in_tiles<kHeight / 2>(rows, action, row);
  }
}

// Outputs are divided into blocks of `tile`; the last one ends at the last output and may overlap
// the previous one, so that every block is complete.
constexpr index_t block_count(index_t outputs, index_t tile) { return (outputs + tile - 1) / tile; }
constexpr index_t block_start(index_t block, index_t outputs, index_t tile) {
  return block * tile + tile <= outputs ? block * tile : outputs - tile;
}
constexpr index_t panel_elements(index_t contracted, index_t outputs, index_t tile) {
  return contracted * tile * block_count(outputs, tile);
}

// Rounds up to whole cache lines: every part of scratch memory is aligned to one.
constexpr index_t whole_lines(index_t bytes) { return (bytes + 63) / 64 * 64; }

// Packs entry(p, q) for all p and q as panels [block][p][tile]; or one of `shares` parts.
template <class Compute, class Entry>
KRONOP_INLINE void pack_panels(Compute* panels, index_t contracted, index_t outputs, index_t tile,
                               index_t share, index_t shares, const Entry& entry) {
  const index_t blocks = block_count(outputs, tile), begin = blocks * share / shares;
  panels += begin * contracted * tile;
  for (index_t block = begin; block < blocks * (share + 1) / shares; ++block) {
    const index_t first = block_start(block, outputs, tile);
    for (index_t p = 0; p < contracted; ++p) {
      for (index_t q = 0; q < tile; ++q) *panels++ = entry(p, first + q);
    }
  }
}

}  // namespace kronop
