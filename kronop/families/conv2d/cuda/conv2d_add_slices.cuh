// Adds up the slices of the sums of a wgrad, always in the same order, and makes them results.
// Slices are matrices of each group in the workspace: rows are filters, columns the channels of
// each tap, filled up to whole blocks. Of widened images, a line of taps stands for one. If several
// groups were summed as one, each has some of the channels.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <class Scalar, int kScalars>
struct Conv2dAddSlicesParameters {
  void* sums;
  void* y;
  void* z;                   // null if there is no source
  void* bias;                // null if there is none
  long long slices, shares;  // Shares, of which each has some of the slices.
  long long groups, m, n;
  long long channels, filled;  // of a tap, and those with what fills them up
  long long pitch;             // from row to row of a slice
  long long together;          // groups that were summed as one
  long long y_row, y_column, y_batch, z_row, z_column, z_batch, bias_column, bias_batch;
  long long whole;  // Whether runs of results are contiguous and aligned.
  Scalar scalars[kScalars];
};

// A thread has neighbouring columns of one tap, and one of the shares of the slices, which the
// threads of the first share then add up.
template <class Step, class Parameters>
KRONOP_INLINE void conv2d_add_slices(const Parameters& p) {
  using Output = typename Step::Output;
  using Sum = typename Step::Accumulator;
  constexpr int vector = Step::kVector;
  using Sums = Vector<Sum, vector>;
  auto* const shared = reinterpret_cast<Sums*>(shared_memory());
  const Finish<Step> finish(p);
  const int shares = int(p.shares), lanes = Step::kThreads / shares,
            lane = int(threadIdx.x) % lanes, share = int(threadIdx.x) / lanes;
  const long long across = p.n / vector, count = p.groups * p.m * across,
                  apart = p.groups * p.m * p.pitch;
#pragma unroll 1
  for (long long first = (long long)blockIdx.x * lanes; first < count;
       first += (long long)gridDim.x * lanes) {
    const long long at = first + lane, line = at / across, group = line / p.m,
                    row = line - group * p.m, column = (at - line * across) * vector,
                    tap = column / p.channels;
    Sums sums{};
    if (at < count) {
      const Sum* const from = static_cast<const Sum*>(p.sums) + line * p.pitch + tap * p.filled +
                              (unsigned(group) % unsigned(p.together) - tap) * p.channels + column;
#pragma unroll 4
      for (long long slice = share; slice < p.slices; slice += shares) {
        const Sums own = load<Sum, vector>(from + slice * apart);
#pragma unroll
        for (int i = 0; i < vector; ++i) sums.data[i] = sums.data[i] + own.data[i];
      }
    }
    if (shares > 1) {
      __syncthreads();  // The previous results' sums have been read.
      shared[threadIdx.x] = sums;
      __syncthreads();
#pragma unroll 1
      for (int other = 1; share == 0 && other < shares; ++other)
#pragma unroll
        for (int i = 0; i < vector; ++i)
          sums.data[i] = sums.data[i] + shared[other * lanes + lane].data[i];
    }
    if (share != 0 || at >= count) continue;
    const auto* const z =
        static_cast<const Output*>(p.z) + group * p.z_batch + row * p.z_row + column * p.z_column;
    const auto* const bias =
        static_cast<const Output*>(p.bias) + group * p.bias_batch + column * p.bias_column;
    Vector<Output, vector> values;
#pragma unroll
    for (int i = 0; i < vector; ++i)
      values.data[i] =
          finish(sums.data[i], p.z ? z[i * p.z_column] : Output{},
                 p.bias ? bias[i * p.bias_column] : convert<Output>(Finish<Step>::no_bias()));
    auto* const y =
        static_cast<Output*>(p.y) + group * p.y_batch + row * p.y_row + column * p.y_column;
    if (p.whole) {
      store(y, values);
    } else {
#pragma unroll
      for (int i = 0; i < vector; ++i) y[i * p.y_column] = values.data[i];
    }
  }
}

}  // namespace kronop
