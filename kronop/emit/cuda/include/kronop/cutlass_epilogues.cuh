// The epilogues of CUTLASS 2.x's kernels.
#pragma once

#include "cutlass_prelude.cuh"

#include <cutlass/epilogue/threadblock/default_epilogue_simt.h>
#include <cutlass/epilogue/threadblock/default_epilogue_tensor_op.h>

#include "cutlass_functors.cuh"

namespace kronop {
namespace cutlass_kernels {

namespace epilogues = cutlass::epilogue::threadblock;

// CUTLASS's template for the epilogue: of SIMT cores, of tensor cores, and of tensor cores with an
// interleaved result.
template <class Step, class OperatorClass, bool kInterleaved, class Functor>
struct EpilogueOf;

template <class Step, class Functor>
struct EpilogueOf<Step, cutlass::arch::OpClassSimt, false, Functor> {
  using Type =
      typename epilogues::DefaultEpilogueSimt<typename Step::Tile, typename Step::Mma::Operator,
                                              Functor, Functor::kCount>::Epilogue;
};
template <class Step, class Functor>
struct EpilogueOf<Step, cutlass::arch::OpClassTensorOp, false, Functor> {
  using Type =
      typename epilogues::DefaultEpilogueTensorOp<typename Step::Tile, typename Step::Mma::Operator,
                                                  Step::kPartitions, Functor,
                                                  Functor::kCount>::Epilogue;
};
template <class Step, class Functor>
struct EpilogueOf<Step, cutlass::arch::OpClassTensorOp, true, Functor> {
  using Type = typename epilogues::DefaultInterleavedEpilogueTensorOp<
      typename Step::Tile, typename Step::Mma::Operator, Step::kPartitions, Functor,
      Functor::kCount, Step::kInterleave>::Epilogue;
};

}  // namespace cutlass_kernels
}  // namespace kronop
