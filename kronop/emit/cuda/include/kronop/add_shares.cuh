// Adds up what the shares of a long sum have left in the workspace, always in the same order, and finishes it.
#pragma once

#include "memory.cuh"

namespace kronop {

template <class Scalar>
struct AddSharesParameters {
  void* partial;  // [share][result]
  void* y;
  void* z;
  long long shares;
  long long extent[5], y_stride[5], z_stride[5];  // of the results, last axis fastest
  Scalar scalars[4];
};

// A warp has 32 neighbouring results, and the block's warps every kSlices-th share each.
template <class Step, class Parameters>
KRONOP_INLINE void add_shares(const Parameters& parameters) {
  using Accumulator = typename Step::Accumulator;
  using Output = typename Step::Output;
  Accumulator* slices = reinterpret_cast<Accumulator*>(shared_memory());
  const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
  const long long results = parameters.extent[0] * parameters.extent[1] * parameters.extent[2] * parameters.extent[3] * parameters.extent[4];
  const long long result = (long long)blockIdx.x * 32 + lane;
  const bool exists = result < results;
  const Accumulator* from = static_cast<const Accumulator*>(parameters.partial) + result;
  Accumulator sum{};
  if (exists) {
#pragma unroll 8
    for (long long share = slice; share < parameters.shares; share += Step::kSlices) sum = sum + from[share * results];
  }
  slices[slice * 32 + lane] = sum;
  __syncthreads();
  if (slice > 0 || !exists) return;
#pragma unroll
  for (int other = 1; other < Step::kSlices; ++other) sum = sum + slices[other * 32 + lane];
  long long y = 0, z = 0;
  for_each_digit<5>(result, parameters.extent, [&](int axis, long long digit) {
    y += digit * parameters.y_stride[axis];
    z += digit * parameters.z_stride[axis];
  });
  const Finish<Step> finish(parameters);
  const Output source = parameters.z ? static_cast<const Output*>(parameters.z)[z] : Output{};
  static_cast<Output*>(parameters.y)[y] = finish(sum, source);
}

}  // namespace kronop
