// Adds up the partial sums of all shares in the workspace, in a fixed order, and applies the
// epilogue.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <class Scalar>
struct AddSharesParameters {
  void* partial;  // [share][result]
  void* y;
  void* z;
  long long shares, y_vector;  // y_vector: whether kVector results are contiguous and aligned
  long long extent[5], y_stride[5], z_stride[5];  // of the results, last axis fastest
  Scalar scalars[4];
};

// A thread adds kVector results, neighbours along the last axis, over every kSlices-th share. The
// sums of the slices are combined in shared memory.
template <class Step, class Parameters>
KRONOP_INLINE void add_shares(const Parameters& parameters) {
  wait_for_launch_before();
  using Accumulator = typename Step::Accumulator;
  using Output = typename Step::Output;
  using Part = Vector<Accumulator, Step::kVector>;
  constexpr int across = Step::kThreads / Step::kSlices;
  Part* slices = reinterpret_cast<Part*>(shared_memory());
  const int slice = threadIdx.x / across;
  const long long results = parameters.extent[0] * parameters.extent[1] * parameters.extent[2] *
                            parameters.extent[3] * parameters.extent[4];
  const long long result = ((long long)blockIdx.x * across + threadIdx.x % across) * Step::kVector;
  const bool exists = result < results;
  const Accumulator* from = static_cast<const Accumulator*>(parameters.partial) + result;
  Part sum{};
  if (exists) {
#pragma unroll 8
    for (long long share = slice; share < parameters.shares; share += Step::kSlices) {
      const Part part = load<Accumulator, Step::kVector>(from + share * results);
#pragma unroll
      for (int i = 0; i < Step::kVector; ++i) sum.data[i] = sum.data[i] + part.data[i];
    }
  }
  if constexpr (Step::kSlices > 1) {
    slices[threadIdx.x] = sum;
    __syncthreads();
    if (slice > 0) return;
#pragma unroll
    for (int other = 1; other < Step::kSlices; ++other) {
      const Part part = slices[other * across + threadIdx.x];
#pragma unroll
      for (int i = 0; i < Step::kVector; ++i) sum.data[i] = sum.data[i] + part.data[i];
    }
  }
  if (!exists) return;
  long long y = 0, z = 0;
  for_each_digit<5>(result, parameters.extent, [&](int axis, long long digit) {
    y += digit * parameters.y_stride[axis];
    z += digit * parameters.z_stride[axis];
  });
  const Finish<Step> finish(parameters);
  Vector<Output, Step::kVector> finished;
#pragma unroll
  for (int i = 0; i < Step::kVector; ++i) {
    const Output source =
        parameters.z ? static_cast<const Output*>(parameters.z)[z + i * parameters.z_stride[4]]
                     : Output{};
    finished.data[i] = finish(sum.data[i], source);
  }
  Output* to = static_cast<Output*>(parameters.y) + y;
  if (Step::kVector > 1 && parameters.y_vector) {
    store_whole<Output, Step::kVector>(to, finished);
  } else {
#pragma unroll
    for (int i = 0; i < Step::kVector; ++i) to[i * parameters.y_stride[4]] = finished.data[i];
  }
}

}  // namespace kronop
