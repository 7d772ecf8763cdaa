// Kronecker-sparse products of bf16 and int8 on AMX tiles: two further variants of those in
// ksparse_ways.hpp.
//
// Along the outputs, if there is one slice and X is contiguous along the features: rows of X are
// the left operand, read in place, and weights are packed in lines. Along the batch otherwise:
// weights are the left operand, and X is packed in lines of *units*, which are kPack neighbours
// along k. Tiles store sums in Y, or in scratch memory, where AlongBatch applies the epilogue.
//
// Both weights and X are zero-padded to whole steps of k: if only one of them were zero, an
// infinity in the other would give NaN.
#pragma once

#include "tiles_along_batch.hpp"
#include "tiles_along_outputs.hpp"

namespace kronop {

template <class Step, class Parameters>
int ksparse_tiles_along_batch(const Parameters& parameters, bool alone) {
  return packed::allow_tiles()
             ? ksparse::matmul<ksparse::TilesAlongBatch<Step>, Step>(parameters, alone)
             : 1;
}

template <class Step, class Parameters>
int ksparse_tiles_along_outputs(const Parameters& parameters, bool alone) {
  return packed::allow_tiles()
             ? ksparse::matmul<ksparse::TilesAlongOutputs<Step>, Step>(parameters, alone)
             : 1;
}

}  // namespace kronop
