// How an extent is divided into AMX tiles, and the factor packed as tiles.
#pragma once

#include "kronop_x86/tile.hpp"

namespace kronop {
namespace packed {

inline constexpr int kTile = 16;          // rows of a tile, and sums in one row
inline constexpr int kLineBytes = 64;     // bytes of a row of a tile
inline constexpr int kPitch = 2 * kTile;  // leading dimension of a block's sums
using Number = bfloat16_t;
inline constexpr int kUnitBytes = 4;  // of a row, multiplied at once: kPack numbers
template <class T>
inline constexpr int kPackOf = kUnitBytes / sizeof(T);
inline constexpr int kPack = kPackOf<Number>;

template <class T>
struct SumOfTiles {
  using Type = float;
};
template <>
struct SumOfTiles<int8_t> {
  using Type = int32_t;
};
template <class T>
using SumOf = typename SumOfTiles<T>::Type;

// One or two tiles along an extent. The second begins at `second`, and may overlap the first.
struct Cut {
  int size, second;

  constexpr int tiles() const { return second ? 2 : 1; }
  constexpr int span() const { return size + second; }
  constexpr index_t blocks(index_t extent) const { return block_count(extent, span()); }
  constexpr index_t start(index_t block, index_t extent) const {
    return block_start(block, extent, span());
  }
};
constexpr Cut cut(index_t extent) {
  const index_t rest = extent < kTile ? 0 : (extent < 2 * kTile ? extent - kTile : kTile);
  return {int(extent < kTile ? extent : kTile), int(rest)};
}

// How a contracted digit of numbers T is padded and split into `steps` steps of `depth` lines.
template <class T>
struct DepthOf {
  index_t contracted;

  static constexpr int kPack = kPackOf<T>, kMost = kLineBytes / sizeof(T);
  constexpr int steps() const { return int((contracted + kMost - 1) / kMost); }
  constexpr int depth() const {
    const index_t each = kPack * steps();
    return int((contracted + each - 1) / each);
  }
  constexpr int lines() const { return steps() * depth(); }
  constexpr int numbers() const { return depth() * kPack; }  // in one step
  constexpr int padded() const { return steps() * numbers(); }
};
using Depth = DepthOf<Number>;

// The blocks of a sweep: their rows and columns in tiles, and the depth of a step.
struct Shape {
  Cut rows, columns;
  int depth;
};

// Address of an operand of a block, and the strides in bytes: from one line to the next, from the
// first tile to the second, and from one step to the next.
struct Operand {
  const void* data;
  index_t line, second, step;
};

// Where the results of a block are stored. Rows before `fresh_row` and columns before
// `fresh_column` overlap the previous block, which has stored them.
struct Place {
  index_t row, column, fresh_row, fresh_column;
};

// Leading dimension of lines, in elements of the trailing digits (kPack numbers each). It is no
// multiple of 512 bytes: otherwise a digit's lines would map to the same few sets of the
// first-level cache.
constexpr index_t line_pitch(index_t trail) { return trail % 128 ? trail : trail + kTile; }

// ---- Factors: tiles of 16 lines of 64 bytes, [block of outputs][tile of the block][step] ----

template <class T = Number>
constexpr index_t factor_numbers(index_t contracted, index_t produced) {
  const Cut each = cut(produced);
  return each.blocks(produced) * each.tiles() * DepthOf<T>{contracted}.steps() * kTile *
         kLineBytes / sizeof(T);
}

// Packs entry(p, q) as tiles. kLeft: the factor is the left operand, and a row of a tile is one
// output along the contracted digit. Else it is the right operand, and a row holds kPack contracted
// numbers of every output, as the lines of data do.
template <bool kLeft, index_t kContracted, index_t kProduced, class T, class Entry>
void pack_factor(T* to, const Entry& entry) {
  constexpr DepthOf<T> kDepth{kContracted};
  constexpr Cut kCut = cut(kProduced);
  constexpr int kLine = kLineBytes / sizeof(T), kPack = kPackOf<T>;
  __builtin_memset(to, 0, factor_numbers<T>(kContracted, kProduced) * sizeof(T));
  for (index_t block = 0; block < kCut.blocks(kProduced); ++block) {
    for (int tile = 0; tile < kCut.tiles(); ++tile) {
      const index_t first = kCut.start(block, kProduced) + tile * kCut.second;
      for (index_t p = 0; p < kContracted; ++p) {
        const index_t place = p % kDepth.numbers();
        T* line = to + p / kDepth.numbers() * kTile * kLine;
        line += kLeft ? place : place / kPack * kLine + place % kPack;
        for (int q = 0; q < kCut.size; ++q) line[q * (kLeft ? kLine : kPack)] = entry(p, first + q);
      }
      to += kDepth.steps() * kTile * kLine;
    }
  }
}

template <index_t kContracted, index_t kProduced, class T>
KRONOP_INLINE Operand factor_operand(const T* tiles, index_t block) {
  constexpr index_t kStep = kTile * kLineBytes, kSecond = kStep * DepthOf<T>{kContracted}.steps();
  const char* bytes = reinterpret_cast<const char*>(tiles);
  return {bytes + block * kSecond * cut(kProduced).tiles(), kLineBytes, kSecond, kStep};
}

}  // namespace packed
}  // namespace kronop
