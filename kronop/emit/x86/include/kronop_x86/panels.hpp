// Batches of problems, and panels: rows of an operand packed side by side.
#pragma once

#include "kronop_x86/transfer.hpp"

namespace kronop {

inline constexpr int kBatchDims = 4;

constexpr index_t parts(index_t count, index_t size) { return (count + size - 1) / size; }
constexpr index_t lesser(index_t a, index_t b) { return a < b ? a : b; }

// The indices of a problem of the batch.
struct Place {
  index_t at[kBatchDims];

  KRONOP_INLINE Place(index_t index, const index_t* extents) {
    for (int d = kBatchDims - 1; d >= 0; index /= extents[d--]) at[d] = index % extents[d];
  }
  KRONOP_INLINE index_t offset(const index_t* strides) const {
    index_t sum = 0;
    for (int d = 0; d < kBatchDims; ++d) sum += at[d] * strides[d];
    return sum;
  }
};

// Packs a panel of `count` rows with `depth` elements each, element by element. If they are fewer
// than the panel has, the last one is repeated.
template <class Step, class Element>
void load_panel(typename Step::Compute* to, const Element* from, index_t row, index_t column,
                index_t count, index_t depth) {
  constexpr int kPanel = Step::kWidth * Step::kVectors;
  Lanes<kPanel> lanes;
  for (index_t i = 0; i < kPanel; ++i) lanes.offset[i] = lesser(i, count - 1) * row;
  lanes.contiguous = row == 1 && count >= kPanel;
  if (lanes.contiguous || column != 1 || depth < Step::kWidth)
    return load_block<Step>(to, from, lanes, column, depth);
  // NOTE: kWidth rows are read to their end before the next ones, since processors prefetch few
  // streams at once: 5 x 4096 x 4096 in float32 took a core 7.1 ms, and 17.0 ms if all rows of a
  // panel are read side by side (Zen 4).
  for (int v = 0; v < kPanel; v += Step::kWidth) {
    for (index_t k = 0; k < depth; k += Step::kWidth) {
      const index_t start = lesser(k, depth - Step::kWidth);
      load_transposed<Step>(to + start * kPanel + v, from + start, lanes.offset + v);
    }
  }
}

}  // namespace kronop
