// The parameters of CUTLASS 3.x's convolutions.
#pragma once

#include "kronop/tensor_map.cuh"

namespace kronop {

// Images of h x w pixels, filters of r x s, results of p x q. The result is a matrix of whose rows
// and columns the strides are given, in elements.
//
// A first launch, with `prepares` = 1, computes the parameters of CUTLASS's kernel, at `prepared`;
// a second one runs that kernel.
template <class Scalar>
struct HopperConv2dParameters {
  TensorMap a_map, b_map;
  void* prepared;
  void* result;
  void* source;  // null if there is no source
  long long images, h, w, c, k, r, s, p, q;
  long long pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  long long result_row, result_column, source_row, source_column;
  long long prepares;
  Scalar scalars[4];
};

}  // namespace kronop
