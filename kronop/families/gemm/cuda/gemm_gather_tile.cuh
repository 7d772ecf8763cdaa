// Products by ordinary (SIMT) cores, of gathered operands.
#pragma once

#include "gemm_gather.cuh"
#include "gemm_tile.cuh"

namespace kronop {

template <class Step, class Parameters>
KRONOP_INLINE void gemm_gather_tile(const Parameters& parameters) {
  using namespace gemm;
  using UnitsOfA = TileUnits<Step, Step::kTileM, Step::kAcrossA, Step::kVectorA>;
  using UnitsOfB = TileUnits<Step, Step::kTileN, Step::kAcrossB, Step::kVectorB>;
  run_gathered<
      Step,
      Tile<Step, GatherFeed<Step, UnitsOfA, Step::kTileM, Step::kAcrossA, Access(Step::kAccessA)>,
           GatherFeed<Step, UnitsOfB, Step::kTileN, Step::kAcrossB, Access(Step::kAccessB)>>>(
      parameters);
}

}  // namespace kronop
