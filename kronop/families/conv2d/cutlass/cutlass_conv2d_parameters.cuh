// The parameters of CUTLASS's convolutions.
#pragma once

namespace kronop {

// Extents are those of a group, whose first elements are `_group` apart in each tensor. `_steps`
// are the strides along W, H and N of images and results, and along S, R and K of filters; tensors
// in panels are contiguous, and have none. The results are a matrix of m rows, `ld_result` apart,
// and n columns, of which blocks compute row_tiles x column_tiles tiles. Strides are in elements.
//
// Sums may be split in slices (split-K). Then a first launch leaves the slices' sums in `partial`,
// and a second one, with `adds_up` = 1, adds them up to results. A slice takes `depth` tiles of
// channels, or of whatever else the sums run over, for each of the `taps` pixels of a filter.
template <class Scalar>
struct CutlassConv2dParameters {
  void *a, *b, *result;
  void* source;   // null if there is no source
  void* bias;     // read only where sums are added up; null if there is none
  void* partial;  // [slice][row][ld_partial]; null without split-K
  long long images, h, w, c, k, r, s, p, q;
  long long pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, flipped;
  long long a_steps[3], b_steps[3], ld_source, ld_result, ld_partial;
  long long a_group, b_group, source_group, result_group;
  long long m, n, row_tiles, column_tiles;
  long long slices, taps, depth, adds_up, bias_row, bias_column;
  Scalar scalars[4];
};

}  // namespace kronop
