// Products of kernel matrices whose squared distances come from tensor cores:
//
//     |x - y|^2 = |x|^2 + |y|^2 - 2 x . y
//
// Products are of float16 numbers, three for each (product_halves.cuh). If this is not accurate
// enough for the kernel, nothing is done here, and product_tile.cuh computes differences.
#pragma once

#include "product_halves.cuh"

namespace kronop {

template <class Step, class Parameters>
KRONOP_INLINE void product_mma(const Parameters& parameters) {
  using namespace product;
  using T = typename Step::Accumulator;
  constexpr int kM = Step::kThreadM, kN = run_of<T>, kOperands = kM / 2, kDepth = Step::kDepth,
                kSteps = kDepth / 16, kTileN = Step::kTileN;
  using Weigh = Either<Step::kTogether, WeighTogether<T, kM, kN, Step::kColumns, kTileN>,
                       WeighAlone<T, kM, kN, Step::kColumns, kTileN>>;
  constexpr int kOfX2 = kTileN * kDepth, kOfV = Step::kColumns * kTileN;
  const Place<Step, Parameters> place(parameters);
  if (!is_expanded<Step>(place)) return;

  unsigned* const of_x2 = reinterpret_cast<unsigned*>(shared_memory());
  T *const of_v = reinterpret_cast<T*>(of_x2 + 2 * kOfX2), *const of_norms = of_v + 2 * kOfV;
  const long long first = place.first_tile(), tiles = place.end_tile() - first;
  const long long row_base =
      place.points * parameters.row_tiles * Step::kTileM + place.row_tile * Step::kTileM;
  const long long column_base = (place.points * parameters.column_tiles + first) * kTileN;
  const unsigned* x2 = static_cast<const unsigned*>(parameters.halves2) + column_base * kDepth;
  const T *norms2 = static_cast<const T*>(parameters.norms2) + column_base,
          *v = place.v + (first * parameters.chunks + place.chunk) * kOfV;
  const auto copy = [&](int buffer) {
    copy_all<Step, kOfX2>(of_x2 + buffer * kOfX2, x2);
    copy_all<Step, kOfV>(of_v + buffer * kOfV, v);
    copy_all<Step, kTileN>(of_norms + buffer * kTileN, norms2);
    x2 += kOfX2;
    norms2 += kTileN;
    v += parameters.chunks * kOfV;
  };
  if (tiles > 0) copy(0);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned left[kOperands][kSteps][kWordsOf1];
  float norms1[kM];
  {
    const long long row = row_base + warp * Step::kWarpRows;
    const unsigned* from =
        static_cast<const unsigned*>(parameters.halves1) + row * kDepth + lane * kWordsOf1;
#pragma unroll
    for (int a = 0; a < kOperands; ++a) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kWordsOf1; i += 4) {
          const auto words = load<unsigned, 4>(from + (a * kSteps + step) * 32 * kWordsOf1 + i);
#pragma unroll
          for (int e = 0; e < 4; ++e) left[a][step][i + e] = words.data[e];
        }
      }
    }
    load_runs<T, 8>(static_cast<const T*>(parameters.norms1) + row + lane / 4 * run_of<T>, norms1);
  }
  const float back = -2 / (scale_of(largest_norm(place, 0)) * scale_of(largest_norm(place, 1)));
  typename Numbers<T>::type h[Step::kValues > 0 ? Step::kValues : 1];
#pragma unroll
  for (int i = 0; i < Step::kValues; ++i) h[i] = Numbers<T>::uniform(place.h[i]);
  Weigh weigh;
#pragma unroll 1
  for (long long tile = 0; tile < tiles; ++tile) {
    const int buffer = int(tile) & 1;
    wait_for_copies();
    __syncthreads();
    if (tile + 1 < tiles) copy(buffer ^ 1);
#pragma unroll(Step::kUnroll)
    for (int strip = 0; strip < kTileN / 16; ++strip) {
      float sums[kOperands][2][4] = {};
      const unsigned* from = of_x2 + buffer * kOfX2 + strip * 16 * kDepth + lane * kWordsOf2;
      // Products with remainders of x2 come first: truncation loses little while sums are small.
      // Stacked features have all three products in one.
      constexpr int kAll = Step::kStacked ? 1 : 0;
#pragma unroll
      for (int part = kAll; part < 2; ++part) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int q = 0; q < 2; ++q) {
            const auto right =
                load<unsigned, 2>(from + (step * 2 + q) * 32 * kWordsOf2 + 2 - 2 * part);
#pragma unroll
            for (int i = kAll; i < 1 + part; ++i) {
#pragma unroll
              for (int a = 0; a < kOperands; ++a) {
                const unsigned* words = left[a][step] + (part == 1 && i == 0 ? 4 : 0);
                const unsigned operand[4] = {words[0], words[1], words[2], words[3]};
                warp_multiply_add<half_t>(sums[a][q], operand, right.data[0], right.data[1]);
              }
            }
          }
        }
      }
      T norms[kN], of[kM][kN];
      load_runs<T, 4>(of_norms + buffer * kTileN + strip * 16 + lane % 4 * kN, norms);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          const typename Numbers<T>::type s[1] = {Numbers<T>::varying(
              multiply_add(sums[i / 2][j / 2][i % 2 * 2 + j % 2], back, norms1[i] + norms[j]))};
          of[i][j] = value_of(Step::Kernel::value(s, h));
        }
      }
      weigh.add(of, of_v + buffer * kOfV + strip * 16);
    }
    weigh.end_tile();
  }
  leave<Step>(weigh, place, reinterpret_cast<T*>(shared_memory()));
}

}  // namespace kronop
