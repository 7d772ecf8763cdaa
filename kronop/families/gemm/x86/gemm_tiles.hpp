// Products on AMX tiles: blocks of 32 by 32 sums, of bf16 in float32 or of int8 in int32.
#pragma once

#include "gemm.hpp"
#include "kronop_x86/units.hpp"

namespace kronop::gemm {

// A panel is two stretches of 16 rows or columns, each packed as tiles, one for each step along k.
// A row of a tile of A has numbers of one row along k; a row of a tile of B has a unit, which is
// kPack neighbours along k, of every column. So one is the transpose of the other, in units of 32
// bits.
template <class Decided>
struct TileStep : Decided {
  using Packed = typename Decided::Input;
  using Sum = typename Decided::Accumulator;
  static constexpr int kTile = packed::kTile, kLine = packed::kLineBytes / int(sizeof(Packed));
  static constexpr int kRows = 2 * kTile, kPanel = 2 * kTile, kLeastRows = kTile;
  static constexpr index_t kUnit = kLine;
  static constexpr bool kInOrder = false;
  static constexpr packed::Cut kWhole{kTile, kTile};

  struct State {
    packed::TileEngine engine;
    State() { engine.template begin<packed::Shape{kWhole, kWhole, kTile}>(); }
  };

  static void pack_rows(Packed* to, const Packed* from, index_t row, index_t column, index_t count,
                        index_t depth) {
    pack<true>(to, from, row, column, count, depth);
  }
  static void pack_columns(Packed* to, const Packed* from, index_t row, index_t column,
                           index_t count, index_t depth) {
    pack<false>(to, from, row, column, count, depth);
  }

  template <int kHeight>
  __attribute__((noinline)) static void multiply(const Packed* rows, const Packed* columns,
                                                 index_t depth, Sum* to, bool joins) {
    constexpr packed::Shape kShape{packed::Cut{kTile, kHeight - kTile}, kWhole, kTile};
    const index_t step = kTile * packed::kLineBytes, second = depth / kLine * step;
    const packed::Operand a{rows, packed::kLineBytes, second, step},
        b{columns, packed::kLineBytes, second, step};
    if (joins) {
      packed::TileEngine::block<kShape, true>(a, b, int(depth / kLine), to, kPanel);
    } else {
      packed::TileEngine::block<kShape>(a, b, int(depth / kLine), to, kPanel);
    }
  }

 private:
  using Units = packed::Units<Packed>;
  using Line = Vector<int32_t, kTile>;

  template <bool kOfRows>
  static void pack(Packed* to, const Packed* from, index_t row, index_t column, index_t count,
                   index_t depth) {
    for (int half = 0; half < 2; ++half, count -= kTile, from += kTile * row) {
      for (index_t k = 0; k < depth; k += kLine, to += kTile * kLine) {
        pack_tile<kOfRows>(to, from + k * column, row, column, lesser(count, kTile),
                           lesser(depth - k, kLine));
      }
    }
  }

  // A tile of `count` rows and `depth` numbers of each, zero-padded. Both operands are: if only one
  // were zero along k, an infinity in the other would give NaN.
  template <bool kOfRows>
  static void pack_tile(Packed* to, const Packed* from, index_t row, index_t column, index_t count,
                        index_t depth) {
    const bool is_whole = count == kTile && depth == kLine;
    Line lines[kTile];
    if (is_whole && row == 1) {
      KRONOP_UNROLL
      for (int i = 0; i < kTile; ++i) {
        lines[i] = bit_cast<Line>(Units::load_runs(from + i * Units::kPack * column, column));
      }
      return finish_tile<kOfRows>(to, lines);
    }
    if (is_whole && column == 1) {
      KRONOP_UNROLL
      for (int i = 0; i < kTile; ++i)
        lines[i] = bit_cast<Line>(Units::load_numbers(from + i * row));
    } else {
      alignas(64) Packed staged[kTile * kLine] = {};
      for (index_t i = 0; i < count; ++i) {
        for (index_t k = 0; k < depth; ++k) staged[i * kLine + k] = from[i * row + k * column];
      }
      __builtin_memcpy(lines, staged, sizeof(lines));
    }
    finish_tile<!kOfRows>(to, lines);
  }

  template <bool kTransposed>
  KRONOP_INLINE static void finish_tile(Packed* to, Line (&lines)[kTile]) {
    if constexpr (kTransposed) transpose(lines);
    KRONOP_UNROLL
    for (int i = 0; i < kTile; ++i) store(to + i * kLine, lines[i]);
  }
};

}  // namespace kronop::gemm

namespace kronop {

template <class Decided, class Parameters>
int gemm_tiles(const Parameters& parameters, bool alone) {
  return packed::allow_tiles() ? gemm::run<gemm::TileStep<Decided>>(parameters, alone) : 1;
}

}  // namespace kronop
