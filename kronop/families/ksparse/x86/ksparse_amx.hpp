// Kronecker-sparse products of bf16 and int8 on AMX tiles: two more ways beside those of
// ksparse_ways.hpp.
//
// Along the outputs, where there is one slice and X is contiguous along the features: rows of X are
// the left operand and are read in place, and weights lie in lines. Along the batch everything
// else: weights are the left operand, and X lies in lines of *units*, which are kPack neighbours
// along k. Tiles leave their sums in Y, or in scratch, from where AlongBatch finishes them.
//
// Both weights and X are padded with zeros to whole steps of k: if only one of them were zero, an
// infinity in the other would turn into a NaN.
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
