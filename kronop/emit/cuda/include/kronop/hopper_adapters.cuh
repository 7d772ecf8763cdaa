// What kernels of CUTLASS 3.x get from kronop: the rendered epilogue, and parameters of their own
// that a first launch computes. Included after CUTLASS's own headers.
#pragma once

#include <cutlass/epilogue/collective/default_epilogue.hpp>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>

#include "cutlass_functors.cuh"
#include "tensor_map.cuh"

namespace kronop {
namespace cutlass_kernels {

// The rendered epilogue, one element at a time.
template <class Step>
struct ElementFunctor : RenderedFunctor<Step, 1> {
  using Base = RenderedFunctor<Step, 1>;
  using Sum = typename Base::ElementAccumulator;
  using Output = typename Base::ElementOutput;

  struct Params {
    typename Step::Scalar scalars[4];
    bool reads;
  };

  KRONOP_INLINE explicit ElementFunctor(const Params& params)
      : Base(params.scalars, params.reads) {}

  KRONOP_INLINE Output operator()(const Sum& sum, const Output& source) const {
    typename Base::FragmentAccumulator sums;
    typename Base::FragmentOutput sources;
    sums[0] = sum, sources[0] = source;
    return Base::operator()(sums, sources)[0];
  }
  KRONOP_INLINE Output operator()(const Sum& sum) const {
    typename Base::FragmentAccumulator sums;
    sums[0] = sum;
    return Base::operator()(sums)[0];
  }
};

// Results leave directly from registers. Strides are those of rows, columns and problems.
template <class Step, class Strides>
using HopperEpilogue = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<
    cutlass::epilogue::collective::DefaultEpilogue<typename Step::ElementOutput, Strides, Strides,
                                                   ElementFunctor<Step>,
                                                   cutlass::gemm::EpilogueDefault>>;

template <class Arguments, class Parameters, class Strides>
KRONOP_INLINE void place_results(Arguments& epilogue, const Parameters& p, const Strides& result,
                                 const Strides& source) {
#pragma unroll
  for (int i = 0; i < 4; ++i) epilogue.thread.scalars[i] = p.scalars[i];
  epilogue.thread.reads = p.source != nullptr;
  epilogue.ptr_C = static_cast<decltype(epilogue.ptr_C)>(p.source);
  epilogue.dC = source;
  epilogue.ptr_D = static_cast<decltype(epilogue.ptr_D)>(p.result);
  epilogue.dD = result;
}

// Replaces a tensor map, which CUTLASS leaves empty if it is built on a device.
KRONOP_INLINE void place_map(const cute::TmaDescriptor* to, const TensorMap& from) {
  *reinterpret_cast<TensorMap*>(const_cast<cute::TmaDescriptor*>(to)) = from;
}
// Runs CUTLASS's kernel on its parameter struct, with tensor maps in it, which CUTLASS's host code
// would compute. Here a first launch computes it with one thread, from the arguments that the step
// makes of kronop's parameters.
template <class Step, class Parameters>
KRONOP_INLINE void run_prepared(const Parameters& p) {
  using Kernel = typename Step::Kernel;
  using Params = typename Kernel::Params;
  static_assert(Kernel::SharedStorageSize <= Step::kSharedBytes,
                "the planner counts too little shared memory");
  static_assert(Kernel::MaxThreadsPerBlock == Step::kThreads, "the planner counts other threads");
  static_assert(sizeof(Params) <= Step::kPreparedBytes,
                "the planner counts too little of the workspace");
  extern __shared__ __align__(1024) char memory[];

  auto& prepared = *static_cast<Params*>(p.prepared);
  auto& copies = prepared.mainloop;
  if (p.prepares) {
    if (blockIdx.x + blockIdx.y + threadIdx.x != 0) return;
    prepared = Kernel::to_underlying_arguments(Step::arguments(p), nullptr);
    place_map(copies.tma_load_a.get_tma_descriptor(), p.a_map);
    place_map(copies.tma_load_b.get_tma_descriptor(), p.b_map);
    __threadfence();
    return;
  }
  // The maps were written with ordinary stores.
  cute::tma_descriptor_fence_acquire(copies.tma_load_a.get_tma_descriptor());
  cute::tma_descriptor_fence_acquire(copies.tma_load_b.get_tma_descriptor());
  Kernel kernel;
  kernel(prepared, memory);
}

}  // namespace cutlass_kernels
}  // namespace kronop
