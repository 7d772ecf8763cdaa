// Images of points, and the tiles of pairs of distance_warp_group.cuh's persistent blocks.
//
// An image holds kGranule points and as many of their features as fit into rows of 128 bytes: a
// slab. Rows are swizzled as the tensor cores read them from shared memory
// (warp_group_products.cuh). If kSplit, the first half of a row has float16 numbers and the second
// half the remainders, which also fit into float16. The images of a granule are contiguous:
// [problem][granule][slab][point][128 bytes].
#pragma once

#include "distance_parameters.cuh"
#include "kronop/barrier.cuh"
#include "kronop/warp_group_products.cuh"

namespace kronop {

// DistanceParameters, and addresses in the workspace: images and facts of both operands. Problems
// with the same points share them.
template <int kValues, int kVectors, int kScalars, class Scalar>
struct DistanceWarpGroupParameters {
  void *x1, *x2, *y, *z;
  void *value[kValues], *vector[kVectors];
  long long m, n, k;
  long long batch[kBatchDims];
  long long x1_batch[kBatchDims], x2_batch[kBatchDims], y_batch[kBatchDims], z_batch[kBatchDims];
  long long x1_row, x1_column, x2_row, x2_column, y_row, y_column, z_row, z_column;
  long long value_batch[kBatchDims * kValues], vector_batch[kBatchDims * kVectors],
      vector_column[kVectors];
  long long diagonal;
  long long threads;
  double number[kValues];
  Scalar scalars[kScalars];
  void *images1, *images2, *facts1, *facts2;
  long long packed1[kBatchDims],
      packed2[kBatchDims];  // extents of the problems whose points are packed
};

namespace distance {

inline constexpr int kGranule = 64, kRowBytes = 128, kImage = kGranule * kRowBytes, kTeam = 128;

template <class Step>
inline constexpr int kSlab = kRowBytes / (Step::kSplit ? 4 : 2);  // features of an image

// Facts of a point: its elements are those in the images times `scale`; `norm` is the sum of their
// squares (or of the squares of those in the images, where distance_pack.cuh says so).
struct Facts {
  float scale, norm;
};

KRONOP_INLINE long long granules_of(long long points) { return ceil_div(points, kGranule); }

// The index of the problem among those whose points are packed.
template <class Parameters>
KRONOP_INLINE long long packed_problem(const Parameters& parameters, long long problem,
                                       const long long (&packed)[kBatchDims]) {
  long long at = 0, stride = 1;
  for_each_digit<kBatchDims>(problem, parameters.batch, [&](int d, long long digit) {
    at += packed[d] == 1 ? 0 : digit * stride;
    stride *= packed[d];
  });
  return at;
}

// The offset of a problem in an operand.
KRONOP_INLINE long long offset_in_batch(long long problem, const long long (&extents)[kBatchDims],
                                        const long long (&strides)[kBatchDims]) {
  long long at = 0;
  for_each_digit<kBatchDims>(problem, extents,
                             [&](int d, long long digit) { at += digit * strides[d]; });
  return at;
}

// The tiles of a persistent block: bands of kBand rows of tiles, column by column, so that blocks
// that run at the same time share points in the level-2 cache. If kSymmetric, tiles below the
// diagonal are skipped.
// NOTE: there are fewer than 2^31 tiles: so many would be 100 terabytes of results.
template <class Step, class Parameters>
struct WarpGroupWalk {
  static constexpr unsigned kBand = 12;
  unsigned rows, columns, item, all;
  unsigned problem, row, column;

  KRONOP_INLINE explicit WarpGroupWalk(const Parameters& parameters) {
    rows = unsigned(ceil_div(parameters.m, Step::kTileM));
    columns = unsigned(ceil_div(parameters.n, Step::kTileN));
    all = rows * columns;
#pragma unroll
    for (int d = 0; d < kBatchDims; ++d) all *= unsigned(parameters.batch[d]);
    item = blockIdx.x;
    locate();
  }
  KRONOP_INLINE bool more() const { return item < all; }
  KRONOP_INLINE void advance() {
    item += gridDim.x;
    locate();
  }

 private:
  KRONOP_INLINE void locate() {
#pragma unroll 1
    for (; more(); item += gridDim.x) {
      const unsigned each = rows * columns;
      problem = item / each;
      unsigned within = item - problem * each;
      const unsigned band = within / (kBand * columns), first = band * kBand;
      const unsigned tall = rows - first < kBand ? rows - first : kBand;
      within -= first * columns;
      column = within / tall;
      row = first + within - column * tall;
      if (!Step::kSymmetric || (column + 1) * Step::kTileN > row * Step::kTileM) return;
    }
  }
};

}  // namespace distance
}  // namespace kronop
