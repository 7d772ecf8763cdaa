// Points as the tensor cores read them: centred, scaled by a power of two, and as the sum of two
// float16 numbers. Their products then have 22 bits.
//
// If there are few features, each is stored three times, so that one MMA computes the three
// products of halves that matter.
//
// Threads hold fragments as in half_mma.cuh. Row i of quad g is row 32 (i / 4) + 4 g + i % 4 of the
// warp's points of x1. Of 16 points of x2, two blocks of 8 are columns of an MMA: in block q,
// column 2 t + r is point 4 t + 2 q + r. So a thread gets the values of neighbouring points.
#pragma once

#include "kronop/half_mma.cuh"
#include "product_block.cuh"

namespace kronop {

struct ProductHalvesParameters {
  void *x1, *x2, *largest, *centre, *halves1, *halves2, *norms1, *norms2;
  long long m, n, k, tiles1, tiles2;  // tiles of kRows rows, of one problem
  long long batch[4], x1_batch[4], x2_batch[4];
  long long x1_row, x1_column, x2_row, x2_column;
};

namespace product {

// The scale of points: the largest length becomes 32 to 64.
KRONOP_INLINE float scale_of(float largest) {
  const int exponent = int(__builtin_bit_cast(unsigned, math::sqrt(largest)) >> 23) - 127;
  const int power = 5 - (exponent < -60 ? -60 : exponent > 60 ? 60 : exponent);
  return __builtin_bit_cast(float, unsigned(power + 127) << 23);
}

// Words of a point, per feature: one half is the rounded number, the other the remainder.
inline constexpr int kWordsOf1 = 8, kWordsOf2 = 4;

}  // namespace product

// A block packs kRows points of one operand.
template <class Step, class Parameters>
KRONOP_INLINE void product_halves(const Parameters& parameters) {
  using namespace product;
  using Input = typename Step::Input;
  constexpr int kDepth = Step::kDepth, kPitch = kDepth + 1, kRows = Step::kRows,
                kSteps = kDepth / 16, kOperands = Step::kWarpRows / 16;
  static_assert(kRows % Step::kWarpRows == 0);
  const Parameters& p = parameters;
  float* const points = reinterpret_cast<float*>(shared_memory());
  long long problem = blockIdx.x;
  long long tile = split(problem, p.tiles1 + p.tiles2);
  const bool second = tile >= p.tiles1;
  if (second) tile -= p.tiles1;
  long long at = 0;
  for_each_digit<4>(problem, p.batch, [&](int d, long long digit) {
    at += digit * (second ? p.x2_batch[d] : p.x1_batch[d]);
  });
  const Input* from = static_cast<const Input*>(second ? p.x2 : p.x1) + at;
  const long long rows = second ? p.n : p.m, row_step = second ? p.x2_row : p.x1_row,
                  column_step = second ? p.x2_column : p.x1_column;
  const float* centre = static_cast<const float*>(p.centre) + problem * p.k;
  const bool along = column_step == 1;
  for (int item = threadIdx.x; item < kRows * kDepth; item += Step::kThreads) {
    const int row = along ? item / kDepth : item % kRows, k = along ? item % kDepth : item / kRows;
    // The last point is repeated.
    const long long source = tile * kRows + row < rows ? tile * kRows + row : rows - 1;
    points[row * kPitch + k] =
        k < p.k ? convert<float>(from[source * row_step + k * column_step]) - centre[k] : 0.0f;
  }
  float largest = 0;
  for (int i = 0; i < kParts; ++i) {
    const float other = static_cast<const float*>(p.largest)[(problem * 2 + second) * kParts + i];
    largest = other > largest ? other : largest;
  }
  const float scale = scale_of(largest);
  __syncthreads();
  const long long place = problem * (second ? p.tiles2 : p.tiles1) + tile;
  for (int row = threadIdx.x; row < kRows; row += Step::kThreads) {
    float norm = 0;
    for (int k = 0; k < kDepth; ++k)
      norm = multiply_add(points[row * kPitch + k], points[row * kPitch + k], norm);
    static_cast<float*>(second ? p.norms2 : p.norms1)[place * kRows + row] = norm;
  }
  unsigned* const to =
      static_cast<unsigned*>(second ? p.halves2 : p.halves1) + place * kRows * kDepth;
  for (int word = threadIdx.x; word < kRows * kDepth; word += Step::kThreads) {
    int row, k, rest;
    bool is_rest;
    if (second) {
      const int i = word % 2, thread = word / kWordsOf2 % 32;
      is_rest = word % kWordsOf2 >= 2;
      rest = word / (kWordsOf2 * 32);
      const int q = rest % 2, step = rest / 2 % kSteps, strip = rest / (2 * kSteps);
      row = 16 * strip + thread / 8 * 4 + 2 * q + thread / 4 % 2;
      k = 16 * step + 8 * i + 2 * (thread % 4);
    } else {
      const int h = word % 2, i = word / 2 % 2, thread = word / kWordsOf1 % 32;
      is_rest = word % kWordsOf1 >= 4;
      rest = word / (kWordsOf1 * 32);
      const int step = rest % kSteps, item = rest / kSteps % kOperands * 2 + h,
                warp = rest / (kSteps * kOperands);
      row = warp * Step::kWarpRows + item / 4 * 32 + thread / 4 * 4 + item % 4;
      k = 16 * step + 8 * i + 2 * (thread % 4);
    }
    float pair[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int feature = k + r;
      if constexpr (Step::kStacked) {
        // First the remainder of x1, then the remainder of x2, and then neither.
        const int turn = feature / int(p.k);
        is_rest = turn == int(second);
        feature = turn < 3 ? feature - turn * int(p.k) : kDepth - 1;
      }
      const float x = points[row * kPitch + feature] * scale,
                  rounded = convert<float>(convert<half_t>(x));
      pair[r] = is_rest ? x - rounded : rounded;
    }
    to[word] = pack<half_t>(pair[0], pair[1]);
  }
}

}  // namespace kronop
