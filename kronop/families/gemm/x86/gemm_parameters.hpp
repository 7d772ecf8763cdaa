// The parameters of matrix products.
#pragma once

#include "kronop_x86/panels.hpp"

namespace kronop {

// Strides are in elements, and may be 0 or negative. Extents of the batch are 1 where it has fewer
// dimensions. A work item is a block of `rows` by `columns` results, for one of `slices` parts of
// k, each `slice` long, of which `depth` is packed at a time. A thread has `scratch_bytes` of the
// workspace, in which packed columns begin at `packed_columns` and sums at `sums`; sums of slices
// begin at `partial` of the workspace, with leading dimension `pitch`.
template <int kScalars, class Scalar>
struct GemmParameters {
  void *a, *b, *y, *z, *bias, *workspace;
  index_t m, n, k;
  index_t batch[kBatchDims];
  index_t a_batch[kBatchDims], b_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims],
      bias_batch[kBatchDims];
  index_t a_row, a_column, b_row, b_column, y_row, y_column, z_row, z_column, bias_row, bias_column;
  index_t rows, columns, depth, slice, slices;
  index_t scratch_bytes, packed_columns, sums, partial, pitch;
  index_t threads;
  Scalar scalars[kScalars];
};

// The same for visitor trees: `visited` are a tree's operands, then its results, D first. If the
// problem is the transpose of the operation's, `turned` is 1. If result i is a reduction, its
// partial results begin at folds[i] of the workspace.
template <int kScalars, class Scalar, int kVisited, int kResults>
struct GemmVisitorParameters {
  void *a, *b, *workspace;
  void* visited[kVisited];
  index_t m, n, k;
  index_t batch[kBatchDims];
  index_t a_batch[kBatchDims], b_batch[kBatchDims];
  index_t a_row, a_column, b_row, b_column;
  index_t visited_batch[kVisited * kBatchDims], visited_row[kVisited], visited_column[kVisited];
  index_t rows, columns, depth, slice, slices;
  index_t scratch_bytes, packed_columns, sums, partial, pitch;
  index_t threads;
  index_t turned, folds[kResults];
  Scalar scalars[kScalars];
};

// An index as a number of three digits, the last one fastest: how many values each has, and what
// one more of it adds to an element's offset and to its coordinates u and v. If `pixel` is not 0,
// `pixel` more of the last digit also add 1 to v, and are one column of pixels further.
struct Digits {
  index_t extents[3], steps[3], u[3], v[3], pixel;
};

// A matrix whose element is at the sum of the steps of all digits of its row and column, plus u /
// every[0] times strides[0], plus v / every[1] times strides[1]. Coordinates begin at `first`. It
// is 0 unless u and v are multiples of `every`, and the quotients are in [0, extents). In a batch,
// one more along a dimension adds batch_u and batch_v to the coordinates.
struct Gathering {
  Digits rows, columns;
  index_t first[2], extents[2], strides[2], every[2];
  index_t batch_u[kBatchDims], batch_v[kBatchDims];
};

// The same with gathered operands: strides of rows and columns of A and B are not used. At the end
// of a thread's scratch memory are `staged` bytes for the order of an item's rows, and for lines
// that are gathered.
template <class Plain>
struct GatheredParameters {
  Plain plain;
  Gathering a_gathering, b_gathering;
  index_t staged;
};

// The same of `used` problems, which run on `threads` threads at most; each has `least`
// multiply-adds at least.
template <class Plain, int kMost>
struct ManyParameters {
  Plain members[kMost];
  index_t used, threads, least;
};

}  // namespace kronop
