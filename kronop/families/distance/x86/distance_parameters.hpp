// The parameters of distances and kernel matrices.
#pragma once

#include "kronop_x86/panels.hpp"

namespace kronop {

// Strides are in elements, and may be 0 or negative. Extents of the batch are 1 where it has fewer
// dimensions. A value whose pointer is null is in `number`. Row m and column m + diagonal are the
// same point.
template <int kValues, int kVectors, int kScalars, class Scalar>
struct DistanceParameters {
  void *x1, *x2, *y, *z;
  void *value[kValues], *vector[kVectors];
  index_t m, n, k;
  index_t batch[kBatchDims];
  index_t x1_batch[kBatchDims], x2_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims];
  index_t x1_row, x1_column, x2_row, x2_column, y_row, y_column, z_row, z_column;
  index_t value_batch[kBatchDims * kValues], vector_batch[kBatchDims * kVectors],
      vector_column[kVectors];
  index_t diagonal;
  index_t threads;
  double number[kValues];
  Scalar scalars[kScalars];
};

}  // namespace kronop
