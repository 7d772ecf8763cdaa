// Adds up the slices of the sums of a wgrad, always in their order, and makes them results. Slices
// are matrices of each group in the workspace: rows are filters, columns the channels of each tap,
// filled up to whole blocks.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <class Scalar, int kScalars>
struct Conv2dAddSlicesParameters {
  void* sums;
  void* y;
  void* z;     // null if there is no source
  void* bias;  // null if there is none
  long long slices, groups, m, n;
  long long channels, filled;  // of a tap, and those with what fills them up
  long long pitch;             // from row to row of a slice
  long long y_row, y_column, y_batch, z_row, z_column, z_batch, bias_column, bias_batch;
  long long whole;  // Whether runs of results are contiguous and aligned.
  Scalar scalars[kScalars];
};

// A thread has a run of neighbouring columns, which are of one tap.
template <class Step, class Parameters>
KRONOP_INLINE void conv2d_add_slices(const Parameters& p) {
  using Output = typename Step::Output;
  using Sum = typename Step::Accumulator;
  constexpr int run = 4;
  const Finish<Step> finish(p);
  const long long across = p.n / run, count = p.groups * p.m * across,
                  apart = p.groups * p.m * p.pitch;
#pragma unroll 1
  for (long long at = (long long)blockIdx.x * Step::kThreads + threadIdx.x; at < count;
       at += (long long)gridDim.x * Step::kThreads) {
    const long long line = at / across, group = line / p.m, row = line - group * p.m,
                    column = (at - line * across) * run, tap = column / p.channels;
    const Sum* const from = static_cast<const Sum*>(p.sums) + line * p.pitch + tap * p.filled +
                            (column - tap * p.channels);
    Sum sums[run] = {};
#pragma unroll 4
    for (long long slice = 0; slice < p.slices; ++slice) {
      const auto own = *reinterpret_cast<const Vector<Sum, run>*>(from + slice * apart);
#pragma unroll
      for (int i = 0; i < run; ++i) sums[i] = sums[i] + own.data[i];
    }
    const auto* const z =
        static_cast<const Output*>(p.z) + group * p.z_batch + row * p.z_row + column * p.z_column;
    const auto* const bias =
        static_cast<const Output*>(p.bias) + group * p.bias_batch + column * p.bias_column;
    Vector<Output, run> values;
#pragma unroll
    for (int i = 0; i < run; ++i)
      values.data[i] =
          finish(sums[i], p.z ? z[i * p.z_column] : Output{},
                 p.bias ? bias[i * p.bias_column] : convert<Output>(Finish<Step>::no_bias()));
    auto* const y =
        static_cast<Output*>(p.y) + group * p.y_batch + row * p.y_row + column * p.y_column;
    if (p.whole) {
      *reinterpret_cast<Vector<Output, run>*>(y) = values;
    } else {
#pragma unroll
      for (int i = 0; i < run; ++i) y[i * p.y_column] = values.data[i];
    }
  }
}

}  // namespace kronop
