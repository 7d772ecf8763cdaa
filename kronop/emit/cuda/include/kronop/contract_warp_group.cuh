// One contraction for many rows on the tensor cores of sm_90a, in lanes and sections as in
// contract.cuh:
//
//     Y[row, j] = sum over k of X[row, k] W[k, j].
//
// Rows have a constant stride. Blocks are persistent (each processes several tiles of rows x
// outputs x lanes) and warp-specialised: consumer warp groups multiply the stages of a ring and
// leave results in shared memory, a producer warp group only copies to the ring, and another one
// stores results while products continue.
//
// W is in shared memory in the order of the tensor cores' descriptors (contracted index contiguous,
// pack_weights.cuh): resident while a block keeps its outputs (kResident), else stage by stage. A
// small resident W is packed while it is copied (kPacks); the weights of a stage may be one image
// (kImages, pack_images.cuh). A 16-bit X of one lane is read from shared memory by the tensor cores
// as well. Several lanes are deinterleaved, and float32 is split, in registers.
#pragma once

#include "warp_group_copies.cuh"
#include "warp_group_stores.cuh"

namespace kronop {
namespace contract {

template <class Step, class Parameters>
KRONOP_INLINE void use_stages(const Parameters& parameters, WarpGroupBarriers<Step>& barriers,
                              const typename Step::Factor* of_x, const typename Step::Factor* of_w,
                              typename Step::Output* staged) {
  using Tiles = WarpGroupTiles<Step>;
  static_assert(Tiles::kSteps % Step::kTogether == 0, "whole runs of stages");
  const bool speaks = threadIdx.x % 32 == 0;
  WarpGroupResults<Step, Parameters> results(parameters, barriers, staged);
  Turn<Step::kStages> turn;
  Turn<1> w_turn;
  int had = -1;
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const bool fresh = walk.part != had;
    if (Step::kResident && fresh) {
      if (had >= 0 && speaks) barriers.w_free.arrive();
      barriers.w_filled.wait(w_turn.parity);
      publish_to_warp_group_products();
      w_turn.advance();
    }
    had = walk.part;
    WarpGroupSums<Step> sums;
    int before = -1;
    // NOTE: one thread arrives for its whole warp: what the others read was used by MMAs that have
    // ended. A __syncwarp() before it would tell the memory model so, but spills 20 bytes where 8
    // lanes are interleaved.
    const auto release = [&] {
      if (before >= 0 && speaks) barriers.free[before].arrive();
    };
#pragma unroll 1
    for (int step = 0; step < Tiles::kSteps; step += Step::kTogether) {
#pragma unroll
      for (int i = 0; i < Step::kTogether; ++i) {
        barriers.filled[turn.stage].wait(turn.parity);
        if constexpr (!Step::kResident || Step::kDirect) publish_to_warp_group_products();
        const auto* w =
            of_w + (Step::kResident ? (step + i) * Tiles::kWSize : turn.stage * Step::kWRoom);
        sums.add(of_x + turn.stage * Step::kXSize, w, i, release);
        before = turn.stage;
        turn.advance();
      }
      sums.settle(release);
    }
    sums.finish(release);
    results.take(sums, fresh);
  }
}

}  // namespace contract

template <class Step, class Parameters>
KRONOP_INLINE void contract_warp_group(const Parameters& parameters) {
  using Tiles = contract::WarpGroupTiles<Step>;
  using Operand = typename Step::Factor;
  unsigned char* shared = shared_memory();
  auto& barriers =
      *reinterpret_cast<contract::WarpGroupBarriers<Step>*>(shared + Step::kBarriersAt);
  auto* results = reinterpret_cast<typename Step::Output*>(shared + Step::kResultsAt);
  auto* stages = reinterpret_cast<Operand*>(shared);
  auto* weights = stages + Step::kStages * Step::kXSize;
  if (threadIdx.x == 0) {
    barriers.begin();
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < Tiles::kWarps * 32) {
    take_registers<Step::kProductRegisters>();
    contract::use_stages<Step>(parameters, barriers, stages, weights, results);
  } else if (threadIdx.x < Tiles::kWarps * 32 + contract::kTeam) {
    give_registers_back<Step::kCopyRegisters>();
    contract::fill_stages<Step>(parameters, barriers, stages, weights);
  } else {
    give_registers_back<Step::kStoreRegisters>();
    contract::store_results<Step>(parameters, barriers, results);
  }
}

}  // namespace kronop
