// The parameters of a Kronecker matmul.
#pragma once

#include "kronop_x86/functions.hpp"

namespace kronop {

inline constexpr int kBatchDimensions = 4;

// Strides are in elements. The scratch memory of one thread is `slice` bytes, whole cache lines:
// the factors' panels, two states, and one buffer between passes, or two of equal size from three
// passes on. `together`: threads share the blocks of every tile, instead of having tiles of their
// own. `plain`: the epilogue changes nothing. `stream`: results exceed the caches and are written
// with streaming stores. `ahead`: X exceeds the caches and is prefetched.
template <int kFactors, int kScalars, class Scalar>
struct KronParameters {
  const void* x;
  const void* z;
  void* y;
  void* workspace;
  index_t rows, row_tile, threads, together, plain, stream, ahead;
  index_t batch[kBatchDimensions];
  index_t x_strides[2], x_batch[kBatchDimensions];
  index_t z_strides[2], z_batch[kBatchDimensions];
  index_t y_strides[2], y_batch[kBatchDimensions];
  index_t slice;
  const void* factors[kFactors];
  index_t factor_row[kFactors], factor_column[kFactors], factor_batch[kFactors * kBatchDimensions];
  Scalar scalars[kScalars];
};

}  // namespace kronop
