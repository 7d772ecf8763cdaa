// The second launch of a kernel of CUTLASS 2.x with split-K: it adds up the slices' sums to
// results.
#pragma once

#include "cutlass_functors.cuh"

namespace kronop {
namespace cutlass_kernels {

template <class Step, class Parameters>
KRONOP_INLINE void add_slices(const Parameters& p) {
  using Accumulator = typename Step::Accumulator;
  using Output = typename Step::Output;
  using Compute = typename Step::Epilogue::Compute;
  const typename Step::Epilogue epilogue(p.scalars);
  const auto* const partial = static_cast<const Accumulator*>(p.partial);
  const auto* const source = static_cast<const Output*>(p.source);
  const auto* const bias = static_cast<const Output*>(p.bias);
  const long long stride = (long long)gridDim.x * Step::kThreads, slice = p.m * p.ld_partial;
#pragma unroll 1
  for (long long at = (long long)blockIdx.x * Step::kThreads + threadIdx.x; at < p.m * p.n;
       at += stride) {
    const long long row = at / p.n, column = at % p.n;
    auto sum = convert<typename Step::Sum>(partial[row * p.ld_partial + column]);
    for (long long i = 1; i < p.slices; ++i)
      sum = sum + convert<typename Step::Sum>(partial[i * slice + row * p.ld_partial + column]);
    const Compute added =
        source ? convert<Compute>(source[row * p.ld_source + column]) : Compute(0);
    const Compute shift =
        bias ? convert<Compute>(bias[row * p.bias_row + column * p.bias_column]) : Compute(0);
    const Compute value = epilogue(convert<Compute>(sum), added, shift);
    static_cast<Output*>(p.result)[row * p.ld_result + column] = convert<Output>(value);
  }
}

}  // namespace cutlass_kernels
}  // namespace kronop
