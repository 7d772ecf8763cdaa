// The parameters of products by warp groups.
#pragma once

#include "kronop/tensor_map.cuh"
#include "kronop/visitor_results.cuh"

namespace kronop {

// A product, or a strided batch of products of equal size.
template <class Scalar, int kScalars>
struct GemmWarpGroupParameters {
  using Member = GemmWarpGroupParameters;
  // Maps of A, B and Y; that of Y is used if maps_y is 1.
  TensorMap a_map, b_map, y_map;
  void* y;
  void* z;     // null if there is no source
  void* bias;  // null if there is none
  long long m, n, k, problems;
  // Strides in elements; a bias has one of them.
  long long y_row, y_column, y_batch, z_row, z_column, z_batch, bias_row, bias_column;
  // Whether all problems have the same A or B.
  long long a_repeats, b_repeats, maps_y;
  Scalar scalars[kScalars];

  KRONOP_INLINE static constexpr int count() { return 1; }
  KRONOP_INLINE const GemmWarpGroupParameters& member(int) const { return *this; }
};

// The same for a visitor tree: `visited` are its operands, then its results, D first. The partial
// results of a reduction, result i, begin at folds[i] of `partial`; a launch with `joins` > 0
// combines them, with `joins` threads for each result. `batch` counts the problems.
template <int kScalars, class Scalar, int kVisited, int kResults>
struct GemmWarpGroupVisitorParameters {
  using Member = GemmWarpGroupVisitorParameters;
  TensorMap a_map, b_map;
  void* partial;
  void* visited[kVisited];
  long long m, n, k, problems;
  long long a_repeats, b_repeats, joins;
  long long batch[kVisitedBatch];
  long long visited_batch[kVisited * kVisitedBatch], visited_row[kVisited],
      visited_column[kVisited];
  long long folds[kResults];
  Scalar scalars[kScalars];

  KRONOP_INLINE static constexpr int count() { return 1; }
  KRONOP_INLINE const GemmWarpGroupVisitorParameters& member(int) const { return *this; }
};

// A grouped GEMM.
template <class Scalar, int kScalars, int kMembers>
struct GemmManyParameters {
  using Member = GemmWarpGroupParameters<Scalar, kScalars>;
  Member members[kMembers];
  long long used;

  KRONOP_INLINE int count() const { return int(used); }
  KRONOP_INLINE const Member& member(int index) const { return members[index]; }
};

}  // namespace kronop
