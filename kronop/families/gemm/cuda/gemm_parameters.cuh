// The parameters of products of blocks and warps, for operands of any strides.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {
namespace gemm {
inline constexpr int kBatchDims = 4;
}  // namespace gemm

// Addresses and strides, in elements; extents and strides of the batch are outermost first, and
// unused extents are 1.
//
// Sums over K may be split in slices of `depth` indices each (split-K). Then a first launch leaves
// the slices' sums in `partial`, and a second one, with `adds_up` = 1, adds them up to results.
template <int kScalars, class Scalar>
struct GemmParameters {
  void *a, *b, *y;
  void* z;        // null if there is no source
  void* bias;     // null if there is none
  void* partial;  // the slices' sums
  long long m, n, k;
  long long batch[gemm::kBatchDims];
  long long a_batch[gemm::kBatchDims], b_batch[gemm::kBatchDims], y_batch[gemm::kBatchDims],
      z_batch[gemm::kBatchDims], bias_batch[gemm::kBatchDims];
  long long a_row, a_column, b_row, b_column, y_row, y_column, z_row, z_column, bias_row,
      bias_column;
  long long slices, depth, adds_up;
  Scalar scalars[kScalars];
};

// The same for a visitor tree: `visited` are its operands, then its results, D first. The partial
// results of a reduction, result i, begin at folds[i] of `partial`. A tree that reduces has no
// split-K: a launch with `adds_up` > 0 combines partial results, with `adds_up` threads for each
// result.
template <int kScalars, class Scalar, int kVisited, int kResults>
struct GemmVisitorParameters {
  void *a, *b;
  void* partial;
  void* visited[kVisited];
  long long m, n, k;
  long long batch[gemm::kBatchDims];
  long long a_batch[gemm::kBatchDims], b_batch[gemm::kBatchDims];
  long long a_row, a_column, b_row, b_column;
  long long visited_batch[kVisited * gemm::kBatchDims], visited_row[kVisited],
      visited_column[kVisited];
  long long slices, depth, adds_up;
  long long folds[kResults];
  Scalar scalars[kScalars];
};

namespace gemm {

// A division by a number that launches know: see `quotient`.
struct Divisor {
  unsigned divisor, factor, shift;

  // Of a dividend below 2^31.
  KRONOP_INLINE unsigned quotient(unsigned dividend) const {
    return unsigned((unsigned long long)(2 * dividend) * factor >> 32) >> shift;
  }
};

// An index as a number of three digits, of which the first has no bound: what one more of each adds
// to an element's offset and to its two coordinates, and the extents of the last two.
struct GatherDigits {
  long long steps[3];
  int u[3], v[3];
  Divisor middle, last;
};

// An operand whose elements are found through digits of both indices (kronop.descriptions.gathered)
// : of its rows of A, or columns of B, and of its contracted index.
struct Gather {
  GatherDigits outer, inner;
  long long first;       // the offset of the first element
  long long strides[2];  // of both coordinates; 0 if steps of digits contain them
  int first_u, first_v;
  unsigned extents[2];  // an element whose coordinates are not below them is 0
  Divisor every[2];     // coordinates that are not multiples have no element either
};

}  // namespace gemm

// The parameters of a product of gathered operands, whose strides in `product` are 0.
template <class Product>
struct GemmGatherParameters {
  Product product;
  gemm::Gather gather_a, gather_b;
};

}  // namespace kronop
