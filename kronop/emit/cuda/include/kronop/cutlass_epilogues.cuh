// The epilogues of CUTLASS 2.x's kernels.
#pragma once

#include "cutlass_prelude.cuh"

#include <cutlass/epilogue/threadblock/default_epilogue_simt.h>
#include <cutlass/epilogue/threadblock/default_epilogue_tensor_op.h>

#include "cutlass_functors.cuh"

namespace kronop {
namespace cutlass_kernels {

namespace epilogues = cutlass::epilogue::threadblock;

// Which of CUTLASS's templates make the epilogue: for ordinary cores, tensor cores, and tensor
// cores whose result is interleaved.
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
