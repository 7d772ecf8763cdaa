// The parameters of CUTLASS's matrix products.
#pragma once

namespace kronop {
namespace cutlass_kernels {
inline constexpr int kBatchDims = 4;
}

// Operands are those of the product that CUTLASS computes, whose result is row-major: if D is
// column-major they are the transposes of B and A. `ld_` is the leading dimension; for interleaved
// operands it is the stride from one panel of 32 columns to the next. Strides are in elements;
// those of the batch are outermost first, and unused extents are 1.
//
// Sums over K may be split in slices of `depth` indices each (split-K). Then a first launch leaves
// the slices' sums in `partial`, and a second one, with `adds_up` = 1, adds them up to results.
template <class Scalar>
struct CutlassParameters {
  void *a, *b, *result;
  void* source;   // null if there is no source
  void* bias;     // read only where sums are added up; null if there is none
  void* partial;  // [slice][row][ld_partial]; null without split-K
  long long m, n, k, ld_a, ld_b, ld_source, ld_result, ld_partial;
  long long batch[cutlass_kernels::kBatchDims], a_batch[cutlass_kernels::kBatchDims],
      b_batch[cutlass_kernels::kBatchDims], source_batch[cutlass_kernels::kBatchDims],
      result_batch[cutlass_kernels::kBatchDims];
  long long bias_row, bias_column;
  long long slices, depth, adds_up;
  Scalar scalars[4];
};

}  // namespace kronop
