// Matrix products of CUTLASS 3.x, for sm_90a: its kernels of warp groups, which store results
// directly from registers.
#pragma once

#include "kronop/hopper_prelude.cuh"

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
  using Epilogue = HopperEpilogue<Decisions, Strides>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, MainLoop,
                                                      Epilogue, cutlass::gemm::PersistentScheduler>;
  using Arguments = typename Kernel::Arguments;

  template <class Parameters>
  static KRONOP_INLINE Arguments arguments(const Parameters& p) {
    Arguments found{};
    found.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    found.problem_shape = {int(p.m), int(p.n), int(p.k), int(p.problems)};
    cute::get<0>(found.mainloop.dA) = cute::get<0>(found.mainloop.dB) = p.k;
    cute::get<2>(found.mainloop.dA) = cute::get<2>(found.mainloop.dB) = p.k;
    place_results(found.epilogue, p, Strides{p.result_row, p.result_column, p.result_batch},
                  Strides{p.source_row, p.source_column, p.source_batch});
    found.hw_info.sm_count = int(p.cores);
    // The grid has one dimension.
    found.scheduler.raster_order = Kernel::TileScheduler::RasterOrderOptions::AlongN;
    return found;
  }
};

}  // namespace cutlass_kernels

template <class Decisions, class Parameters>
KRONOP_INLINE void hopper_gemm(const Parameters& p) {
  cutlass_kernels::run_prepared<cutlass_kernels::HopperStep<Decisions>>(p);
}

}  // namespace kronop
