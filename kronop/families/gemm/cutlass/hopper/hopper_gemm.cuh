// Matrix products of CUTLASS 3.x, for sm_90a: its kernels of warp groups, which store results
// directly from registers.
//
// Their parameter struct, with tensor maps in it, is computed by CUTLASS's host code. Here a first
// launch computes it with one thread, from tensor maps that are passed as parameters.
#pragma once

#include "kronop/hopper_prelude.cuh"

#include <cutlass/epilogue/collective/default_epilogue.hpp>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kronop/hopper_adapters.cuh"
#include "hopper_parameters.cuh"

namespace kronop {
namespace cutlass_kernels {

template <class Decisions>
struct HopperStep : Decisions {
  using Tile = cute::Shape<cute::Int<Decisions::kTileM>, cute::Int<Decisions::kTileN>,
                           cute::Int<Decisions::kTileK>>;
  using Cluster = cute::Shape<cute::Int<Decisions::kCluster>, cute::_1, cute::_1>;
  using Schedule =
      cute::conditional_t<Decisions::kAlternate, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                          cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  static constexpr int kAlignment = 16 / int(sizeof(typename Decisions::Element));
  using MainLoop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Decisions::Element,
      cutlass::layout::RowMajor, kAlignment, typename Decisions::Element,
      cutlass::layout::ColumnMajor, kAlignment, typename Decisions::ElementAccumulator, Tile,
      Cluster, cutlass::gemm::collective::StageCount<Decisions::kStages>, Schedule>::CollectiveOp;
  // Strides of results: rows, columns, problems.
  using Strides = cute::Stride<long long, long long, long long>;
  using Functor = ElementFunctor<Decisions>;
  using Epilogue = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<
      cutlass::epilogue::collective::DefaultEpilogue<typename Decisions::ElementOutput, Strides,
                                                     Strides, Functor,
                                                     cutlass::gemm::EpilogueDefault>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, MainLoop,
                                                      Epilogue, cutlass::gemm::PersistentScheduler>;
  using Params = typename Kernel::Params;
};

template <class Step, class Parameters>
KRONOP_INLINE void prepare(const Parameters& p, typename Step::Params& prepared) {
  using Kernel = typename Step::Kernel;
  using Scheduler = typename Kernel::TileScheduler;
  typename Kernel::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {int(p.m), int(p.n), int(p.k), int(p.problems)};
  cute::get<0>(arguments.mainloop.dA) = cute::get<0>(arguments.mainloop.dB) = p.k;
  cute::get<2>(arguments.mainloop.dA) = cute::get<2>(arguments.mainloop.dB) = p.k;
#pragma unroll
  for (int i = 0; i < 4; ++i) arguments.epilogue.thread.scalars[i] = p.scalars[i];
  arguments.epilogue.thread.reads = p.source != nullptr;
  arguments.epilogue.ptr_C = static_cast<const typename Step::ElementOutput*>(p.source);
  arguments.epilogue.dC = {p.source_row, p.source_column, p.source_batch};
  arguments.epilogue.ptr_D = static_cast<typename Step::ElementOutput*>(p.result);
  arguments.epilogue.dD = {p.result_row, p.result_column, p.result_batch};
  arguments.hw_info.sm_count = int(p.cores);
  // The grid has one dimension.
  arguments.scheduler.raster_order = Scheduler::RasterOrderOptions::AlongN;
  prepared = Kernel::to_underlying_arguments(arguments, nullptr);
  place_map(prepared.mainloop.tma_load_a.get_tma_descriptor(), p.a_map);
  place_map(prepared.mainloop.tma_load_b.get_tma_descriptor(), p.b_map);
  __threadfence();
}

}  // namespace cutlass_kernels

template <class Decisions, class Parameters>
KRONOP_INLINE void hopper_gemm(const Parameters& p) {
  using namespace cutlass_kernels;
  using Step = HopperStep<Decisions>;
  using Kernel = typename Step::Kernel;
  static_assert(Kernel::SharedStorageSize <= Decisions::kSharedBytes,
                "the planner counts too little shared memory");
  static_assert(Kernel::MaxThreadsPerBlock == Decisions::kThreads,
                "the planner counts other threads");
  static_assert(sizeof(typename Step::Params) <= Decisions::kPreparedBytes,
                "the planner counts too little of the workspace");
  extern __shared__ __align__(1024) char memory[];

  auto& prepared = *static_cast<typename Step::Params*>(p.prepared);
  if (p.prepares) {
    if (blockIdx.x == 0 && threadIdx.x == 0) prepare<Step>(p, prepared);
    return;
  }
  // The maps were written with ordinary stores.
  cute::tma_descriptor_fence_acquire(prepared.mainloop.tma_load_a.get_tma_descriptor());
  cute::tma_descriptor_fence_acquire(prepared.mainloop.tma_load_b.get_tma_descriptor());
  Kernel kernel;
  kernel(prepared, memory);
}

}  // namespace kronop
