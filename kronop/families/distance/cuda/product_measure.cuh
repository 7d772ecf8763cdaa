// An approximate centre of the points of x2, and the largest squares of lengths relative to it.
#pragma once

#include "product_block.cuh"

namespace kronop {

struct ProductMeasureParameters {
  void *x1, *x2, *largest, *centre;  // largest: [problem][operand][kParts]; centre: [problem][k]
  long long m, n, k;
  long long batch[4], x1_batch[4], x2_batch[4];
  long long x1_row, x1_column, x2_row, x2_column;
};

// A block has one of kParts parts of the points of one operand. All compute the same centre: the
// mean of kSamples points.
template <class Step, class Parameters>
KRONOP_INLINE void product_measure(const Parameters& parameters) {
  using namespace product;
  using Input = typename Step::Input;
  constexpr int kSamples = 32;
  const Parameters& p = parameters;
  float* const centre = reinterpret_cast<float*>(shared_memory());
  float* const found = centre + Step::kDepth;
  long long rest = blockIdx.x;
  const int part = int(split(rest, kParts)), operand = int(split(rest, 2));
  const long long problem = rest;
  long long of_x1 = 0, of_x2 = 0;
  for_each_digit<4>(problem, p.batch, [&](int d, long long digit) {
    of_x1 += digit * p.x1_batch[d];
    of_x2 += digit * p.x2_batch[d];
  });
  const Input *x1 = static_cast<const Input*>(p.x1) + of_x1,
              *x2 = static_cast<const Input*>(p.x2) + of_x2;
  for (int k = threadIdx.x; k < p.k; k += Step::kThreads) {
    float sum = 0;
    for (int i = 0; i < kSamples; ++i)
      sum += convert<float>(x2[i * p.n / kSamples * p.x2_row + k * p.x2_column]);
    centre[k] = sum / kSamples;
    static_cast<float*>(p.centre)[problem * p.k + k] = centre[k];
  }
  __syncthreads();
  const Input* from = operand == 0 ? x1 : x2;
  const long long rows = operand == 0 ? p.m : p.n, row_step = operand == 0 ? p.x1_row : p.x2_row,
                  column_step = operand == 0 ? p.x1_column : p.x2_column;
  float most = 0;
  for (long long row = (long long)part * Step::kThreads + threadIdx.x; row < rows;
       row += kParts * Step::kThreads) {
    float norm = 0;
    for (long long k = 0; k < p.k; ++k) {
      const float x = convert<float>(from[row * row_step + k * column_step]) - centre[k];
      norm = multiply_add(x, x, norm);
    }
    most = norm > most ? norm : most;
  }
  found[threadIdx.x] = most;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < Step::kThreads; ++i) most = found[i] > most ? found[i] : most;
  static_cast<float*>(p.largest)[(problem * 2 + operand) * kParts + part] = most;
}

}  // namespace kronop
