// Sinks for blocks of tiles: one stores unchanged sums, one applies the epilogue.
#pragma once

#include "kronop_x86/amx.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {
namespace packed {

// Stores the rows of a block unchanged.
template <class Sum>
struct SumRows {
  Sum* to;
  index_t stride;

  template <Shape kShape>
  KRONOP_INLINE void block(const Sum* sums, const Place& place) const {
    constexpr int kAcross = kShape.columns.span();
    Sum* line = to + place.row * stride + place.column;
    for (int i = 0; i < kShape.rows.span(); ++i, line += stride, sums += kPitch)
      copy_run<kAcross, kTile>(line, sums);
  }
};

template <class Sum, bool kRounds>
struct RowsOf {
  using Type = SumRows<Sum>;
};
template <class Sum>
struct RowsOf<Sum, true> {
  using Type = Rows;
};

// Applies the epilogue to blocks and stores them to Y. Rows from `rows` on are out of bounds and
// not stored; the bias is along the columns.
template <class Step>
struct Finished {
  OutputSink<Step> sink;
  index_t y_row, y_column, z_row, z_column, rows;

  template <Shape kShape, class Sum>
  KRONOP_INLINE void block(const Sum* sums, const Place& place) const {
    constexpr int kDown = kShape.rows.span(), kAcross = kShape.columns.span();
    const index_t end = rows - place.row < kDown ? rows - place.row : kDown;
    const bool along = place.fresh_column == 0 && sink.along(y_column == 1, z_column == 1);
    for (index_t i = place.fresh_row; i < end; ++i) {
      const index_t row = place.row + i;
      const auto at =
          sink.at(row * y_row + place.column * y_column, row * z_row + place.column * z_column);
      const Sum* line = sums + i * kPitch;
      if (along) {
        at.template run<kAcross, true>(line, 0, 0, place.column);
      } else {
        for (index_t j = place.fresh_column; j < kAcross; ++j) {
          at.one(line[j], j * y_column, j * z_column, place.column + j);
        }
      }
    }
  }
};

}  // namespace packed
}  // namespace kronop
