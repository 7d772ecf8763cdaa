// Parameters of the kernels of pairwise distances: kinds of terms, and the parameter struct.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

// The term that is summed (or whose maximum is taken) over k; d = x1[m, k] - x2[n, k], or that
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
// unused extents are 1. `value[j]` points to a number for each problem of the batch; if it is null,
// the number is in `number[j]`. Empty arrays have one item.
template <int kValues, int kVectors, int kScalars, class Scalar>
struct DistanceParameters {
  void *x1, *x2, *y, *z;  // z is null if there is no source
  void *value[kValues], *vector[kVectors];
  long long m, n, k;
  long long batch[kBatchDims];
  long long x1_batch[kBatchDims], x2_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims];
  long long x1_row, x1_column, x2_row, x2_column, y_row, y_column, z_row, z_column;
  long long value_batch[kBatchDims * kValues], vector_batch[kBatchDims * kVectors],
      vector_column[kVectors];
  long long diagonal;  // the diagonal is at column m + diagonal of row m
  long long threads;
  double number[kValues];
  Scalar scalars[kScalars];

  static constexpr int kOfValues = kValues, kOfVectors = kVectors;
};

}  // namespace kronop
