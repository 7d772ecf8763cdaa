// Which tile of the results a block of CUTLASS 2.x's kernels computes.
#pragma once

#include "numeric.cuh"

namespace kronop {
namespace cutlass_kernels {

// The tile of a block: bands of kWidth tiles along N, whose tiles are ordered along N first.
struct Place {
  int row, column, index;  // `index` is that of a problem of the batch, or of a slice.

  template <int kWidth>
  KRONOP_INLINE static Place of_block(int rows, int columns) {
    const long long each = (long long)rows * columns;
    const long long within = blockIdx.x % each, of_band = (long long)rows * kWidth;
    const int band = int(within / of_band), inside = int(within % of_band);
    const int left = columns - band * kWidth, width = left < kWidth ? left : kWidth;
    return {inside / width, band * kWidth + inside % width, int(blockIdx.x / each)};
  }
};

}  // namespace cutlass_kernels
}  // namespace kronop
