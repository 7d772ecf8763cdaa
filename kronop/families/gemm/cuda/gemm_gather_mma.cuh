// Products by warp-level MMAs, of gathered operands.
#pragma once

#include "gemm_gather.cuh"
#include "gemm_mma.cuh"

namespace kronop {

template <class Step, class Parameters>
KRONOP_INLINE void gemm_gather_mma(const Parameters& parameters) {
  using namespace gemm;
  using UnitsOfA = MmaUnits<Step, Step::kTileM, Step::kAcrossA, Step::kVectorA>;
  using UnitsOfB = MmaUnits<Step, Step::kTileN, Step::kAcrossB, Step::kVectorB>;
  run_gathered<
      Step,
      Mma<Step, GatherFeed<Step, UnitsOfA, Step::kTileM, Step::kAcrossA, Access(Step::kAccessA)>,
          GatherFeed<Step, UnitsOfB, Step::kTileN, Step::kAcrossB, Access(Step::kAccessB)>>>(
      parameters);
}

}  // namespace kronop
