// What the kernels of pairwise distances are told: kinds of terms, and their parameters.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

// What a term sums up (or takes the maximum of) over k, with d = x1[m, k] - x2[n, k], or that
// divided by an element of a vector. The numbers are those of the Python enumeration.
enum class TermKind : int {
  kZero,         // d != 0
  kHalf,         // |d|^(1/2)
  kOne,          // |d|
  kThreeHalves,  // |d|^(3/2)
  kTwo,          // d^2
  kFiveHalves,   // |d|^(5/2)
  kThree,        // |d|^3
  kFour,         // d^4
  kGeneral,      // |d|^p with p > 0 known at run time
  kInfinity,     // the maximum of |d|
  kDot,          // x1 x2
  kNormA,        // x1^2
  kNormB,        // x2^2
  kLargest,      // the maximum of |d|, for kRelative
  kRelative,     // (|d| / the maximum of |d|)^p
};

constexpr int kBatchDims = 4;

// Addresses and strides, in elements; extents and strides of the batch are outermost first, and
// unused extents are 1. `value[j]` points to a number for each problem of the batch, or is null
// where `number[j]` holds it. Arrays of none have one item.
template <int kValues, int kVectors, int kScalars, class Scalar>
struct DistanceParameters {
  void *x1, *x2, *y, *z;  // z is null where there is no source
  void *value[kValues], *vector[kVectors];
  long long m, n, k;
  long long batch[kBatchDims];
  long long x1_batch[kBatchDims], x2_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims];
  long long x1_row, x1_column, x2_row, x2_column, y_row, y_column, z_row, z_column;
  long long value_batch[kBatchDims * kValues], vector_batch[kBatchDims * kVectors],
      vector_column[kVectors];
  long long diagonal;  // row m meets column m + diagonal
  long long threads;
  double number[kValues];
  Scalar scalars[kScalars];

  static constexpr int kOfValues = kValues, kOfVectors = kVectors;
};

}  // namespace kronop
