// Adds up the shares of a product in the workspace in a fixed order, adds the regularization, and
// applies the epilogue.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <class Scalar>
struct ProductSumParameters {
  void *partial, *y, *z, *v;  // partial: [share][problem][m][c]
  void* regularization;       // null: in `number`
  long long shares, problems, m, n, c;
  long long batch[4], y_batch[4], z_batch[4], v_batch[4], regularization_batch[4];
  long long y_row, y_column, z_row, z_column, v_row, v_column;
  double number;
  Scalar scalars[4];
};

template <class Step, class Parameters>
KRONOP_INLINE void product_sum(const Parameters& parameters) {
  using T = typename Step::Accumulator;
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  const Parameters& p = parameters;
  const long long results = p.problems * p.m * p.c;
  const Finish<Step> finish(p);
  for (long long result = (long long)blockIdx.x * Step::kThreads + threadIdx.x; result < results;
       result += (long long)gridDim.x * Step::kThreads) {
    long long problem = result;
    const long long column = split(problem, p.c), row = split(problem, p.m);
    long long y = row * p.y_row + column * p.y_column, z = row * p.z_row + column * p.z_column;
    long long v = row * p.v_row + column * p.v_column, regularization = 0;
    for_each_digit<4>(problem, p.batch, [&](int d, long long digit) {
      y += digit * p.y_batch[d];
      z += digit * p.z_batch[d];
      v += digit * p.v_batch[d];
      regularization += digit * p.regularization_batch[d];
    });
    const T* from = static_cast<const T*>(p.partial) + result;
    T sum = T(0);
    for (long long share = 0; share < p.shares; ++share) sum += from[share * results];
    if constexpr (Step::kRegularized) {
      const T* values = static_cast<const T*>(p.regularization);
      if (row < p.n)
        sum = multiply_add(values ? values[regularization] : T(p.number),
                           convert<T>(static_cast<const Input*>(p.v)[v]), sum);
    }
    const Output source = p.z ? static_cast<const Output*>(p.z)[z] : Output{};
    static_cast<Output*>(p.y)[y] = finish(sum, source);
  }
}

}  // namespace kronop
