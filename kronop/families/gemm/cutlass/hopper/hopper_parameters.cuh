// The parameters of CUTLASS 3.x's matrix products.
#pragma once

#include "kronop/tensor_map.cuh"

namespace kronop {

// A product, or a strided batch of products of equal size: strides are in elements.
//
// A first launch, with `prepares` = 1, computes the parameters of CUTLASS's kernel, at `prepared`;
// a second one runs that kernel.
template <class Scalar>
struct HopperParameters {
  TensorMap a_map, b_map;
  void* prepared;
  void* result;
  void* source;  // null if there is no source
  long long m, n, k, problems;
  long long result_row, result_column, result_batch, source_row, source_column, source_batch;
  long long cores, prepares;
  Scalar scalars[4];
};

}  // namespace kronop
