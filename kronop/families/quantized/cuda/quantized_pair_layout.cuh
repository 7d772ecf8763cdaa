// Parameters of quantized_pair.cuh, its shared memory, and the addresses of a block's operands.
#pragma once

#include "quantized_numbers.cuh"

namespace kronop {

template <int Factors>
struct QuantizedPairParameters {
  void* x;
  void* q;  // contiguous rows of bytes, in the order of the scales
  void* scales;
  long long rows, blocks;          // of each problem of the batch
  long long vectors_x, vectors_q;  // whether they allow accesses of 16 bytes
  long long x_row, x_column, q_row, batch_extent[4], batch_x[4], batch_q[4];
  void* factor[Factors];
  long long factor_row[Factors], factor_column[Factors], batch_factor[4 * Factors];
  long long vectors_factor[Factors];
  double clip;
};

namespace quantized {

KRONOP_INLINE constexpr int padded(int extent) { return (extent + 15) / 16 * 16; }

template <class Step>
struct PairLayout {
  using Input = typename Step::Input;
  static constexpr int kIn0 = padded(Step::kContracted[0]), kIn1 = padded(Step::kContracted[1]);
  static constexpr int kOut0 = padded(Step::kProduced[0]), kOut1 = padded(Step::kProduced[1]);
  static constexpr int kWarps = kOut1 / (16 * Step::kTiles);  // of a row
  // Leading dimension of each operand in shared memory: an odd number of 16 bytes, so that eight
  // rows of 16 bytes have no bank conflicts.
  static constexpr int kStrideX = kIn1 + 8, kStrideA = kIn0 + 8, kStrideB = kIn1 + 8;
  static constexpr int kTile = kIn0 * kStrideX;
  static constexpr int kElements = Step::kProduced[0] * Step::kProduced[1];
  // Integers of the row, a byte each. If a thread's two bytes are in rows of whole vectors, the
  // four rows that a quad writes to have no bank conflicts.
  static constexpr bool kPieces = Step::kProduced[1] % 16 == 0;
  static constexpr int kStrideQ =
      !kPieces ? Step::kProduced[1] : Step::kProduced[1] + (Step::kProduced[1] % 32 == 0 ? 16 : 0);
  static constexpr int kBytesQ = padded(Step::kProduced[0] * kStrideQ);
  static constexpr int kAtA = 2 * Step::kStages * Step::kRows * kTile;
  static constexpr int kAtB = kAtA + 2 * kOut0 * kStrideA;
  static constexpr int kAtQ = kAtB + 2 * kOut1 * kStrideB;
  static constexpr int kAtMost = kAtQ + Step::kRows * kBytesQ;
  static constexpr int kShared = kAtMost + 4 * padded(Step::kRows * kWarps);
  static_assert(kShared == Step::kSharedBytes);
  static_assert(32 * kWarps * Step::kRows == Step::kThreads);
};

// The offsets of a block's problem of the batch in X, in q and in each factor.
template <class Step>
struct PairPlace {
  long long x = 0, q = 0, factor[Step::kFactors] = {};

  template <class Parameters>
  KRONOP_INLINE explicit PairPlace(const Parameters& parameters) {
    for_each_digit((long long)blockIdx.x / parameters.blocks, parameters.batch_extent,
                   [&](int axis, long long digit) {
                     x += digit * parameters.batch_x[axis];
                     q += digit * parameters.batch_q[axis];
#pragma unroll
                     for (int at = 0; at < Step::kFactors; ++at)
                       factor[at] += digit * parameters.batch_factor[4 * at + axis];
                   });
  }
};

// Element (p, q) of the product of factors kFirst to kEnd - 1, unrounded.
// NOTE: nvcc's device code can use single elements of Step's arrays, but not the arrays.
template <class Step, int kFirst, int kEnd, class Parameters>
KRONOP_INLINE float number_of(const Parameters& parameters, const PairPlace<Step>& place, int p,
                              int q) {
  constexpr int at = kEnd - 1, rows = Step::kFactorRows[at], columns = Step::kFactorColumns[at];
  const auto* const from =
      static_cast<const typename Step::Input*>(parameters.factor[at]) + place.factor[at];
  const float own = convert<float>(
      from[p % rows * parameters.factor_row[at] + q % columns * parameters.factor_column[at]]);
  if constexpr (at > kFirst)
    return own * number_of<Step, kFirst, at>(parameters, place, p / rows, q / columns);
  return own;
}

template <class Step, int kFirst, int kEnd, class Parameters>
KRONOP_INLINE typename Step::Input element_of(const Parameters& parameters,
                                              const PairPlace<Step>& place, int p, int q) {
  return convert<typename Step::Input>(number_of<Step, kFirst, kEnd>(parameters, place, p, q));
}

}  // namespace quantized
}  // namespace kronop
