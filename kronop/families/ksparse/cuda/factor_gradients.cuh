// The gradients of the factors of a Kronecker product, from the gradient of the product. The
// gradient of an element of one factor is a sum over the digits of all other factors: the product's
// gradient times the elements of the others. A block computes one element.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <class Scalar, int kFactors>
struct FactorGradientsParameters {
  void* sums;  // [column][row] of the product
  void* y;     // of all factors, one after the other, row-major
  void* z;
  void* factor[kFactors];
  long long factor_row[kFactors], factor_column[kFactors];
  long long y_stride, z_stride;
  Scalar scalars[4];
};

namespace gradient {

// Constants that follow from the factors: their number, and the rows of their product.
template <class Decided>
struct FactorStep : Decided {
  static constexpr int kFactors = count_of(Decided::kRows), kAllRows = product_of(Decided::kRows);
};

// The factors' sizes, to be indexed in unrolled loops.
// NOTE: nvcc, unlike NVRTC, does not allow static arrays of the host's in device code; both fold a
// constexpr local of this struct, which takes no stack.
template <class Step>
struct Sizes {
  int rows[Step::kFactors]{}, columns[Step::kFactors]{};

  constexpr Sizes() {
    for (int i = 0; i < Step::kFactors; ++i)
      rows[i] = Step::kRows[i], columns[i] = Step::kColumns[i];
  }
};

// The element that a block computes: its factor, row and column.
template <class Step>
struct Element {
  int own = 0, row, column;

  KRONOP_INLINE explicit Element(int index) {
    constexpr Sizes<Step> sizes;
#pragma unroll
    for (int i = 0; i < Step::kFactors; ++i) {
      if (own == i && index >= sizes.rows[i] * sizes.columns[i]) {
        index -= sizes.rows[i] * sizes.columns[i];
        ++own;
      }
      if (own == i) row = index / sizes.columns[i], column = index % sizes.columns[i];
    }
  }
};

// Summand number `rest` of an element's gradient.
template <class Step, class Parameters>
KRONOP_INLINE typename Step::Accumulator summand(const Parameters& parameters,
                                                 const Element<Step>& element, int rest) {
  using Accumulator = typename Step::Accumulator;
  constexpr Sizes<Step> sizes;
  int rows[Step::kFactors], row = 0, column = 0, weight = 1;
  // Rows are the fastest digits, because the product's gradient is contiguous along them: the
  // threads of a warp read neighbouring elements.
#pragma unroll
  for (int i = Step::kFactors - 1; i >= 0; --i) {
    rows[i] = i == element.own ? element.row : rest % sizes.rows[i];
    rest = i == element.own ? rest : rest / sizes.rows[i];
    row += rows[i] * weight;
    weight *= sizes.rows[i];
  }
  Accumulator product = 1;
  weight = 1;
#pragma unroll
  for (int i = Step::kFactors - 1; i >= 0; --i) {
    const int digit = i == element.own ? element.column : rest % sizes.columns[i];
    rest = i == element.own ? rest : rest / sizes.columns[i];
    column += digit * weight;
    weight *= sizes.columns[i];
    const auto* factor = static_cast<const typename Step::Factor*>(parameters.factor[i]);
    if (i != element.own)
      product *= convert<Accumulator>(
          factor[rows[i] * parameters.factor_row[i] + digit * parameters.factor_column[i]]);
  }
  return product * static_cast<const Accumulator*>(parameters.sums)[column * Step::kAllRows + row];
}

}  // namespace gradient

template <class Decided, class Parameters>
KRONOP_INLINE void factor_gradients(const Parameters& parameters) {
  using Step = gradient::FactorStep<Decided>;
  using Accumulator = typename Step::Accumulator;
  using Output = typename Step::Output;
  Accumulator* found = reinterpret_cast<Accumulator*>(shared_memory());
  const gradient::Element<Step> element(blockIdx.x);
  constexpr gradient::Sizes<Step> sizes;
  int summands = 1;
#pragma unroll
  for (int i = 0; i < Step::kFactors; ++i)
    summands *= i == element.own ? 1 : sizes.rows[i] * sizes.columns[i];
  Accumulator sum{};
  for (int rest = threadIdx.x; rest < summands; rest += Step::kThreads)
    sum += gradient::summand<Step>(parameters, element, rest);
  found[threadIdx.x] = sum;
#pragma unroll
  for (int half = Step::kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) found[threadIdx.x] += found[threadIdx.x + half];
  }
  if (threadIdx.x > 0) return;
  const Finish<Step> finish(parameters);
  const Output source =
      parameters.z ? static_cast<const Output*>(parameters.z)[blockIdx.x * parameters.z_stride]
                   : Output{};
  static_cast<Output*>(parameters.y)[blockIdx.x * parameters.y_stride] = finish(found[0], source);
}

}  // namespace kronop
