// I_2 x dense(20, 16) x I_3, batch_first, tiles of 3 lanes x 64 x 32 x 16, 8 stages, 2 teams
// along outputs, W stays
#include "kronop/contract_warp_group.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 512, kBlocks = 1, kStages = 8, kLanes = 3, kTileM = 64,
      kTileN = 32, kTileK = 16, kTogether = 1, kChainSlabs = 1, kChainN = 16, kTeamM = 1,
      kTeamsAlongM = 1, kTeamsAlongLanes = 1, kTeamsAlongN = 2, kPartM = 16, kPartN = 16, kKept = 1,
      kContracted = 16, kProduced = 20, kPlane = 320, kXOrder = 2, kYOrder = 2, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 56, kYPitch = 56, kXSize = 3584,
      kWRoom = 0, kResultsAt = 126976, kBarriersAt = 156416, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = true, kImages = false, kPacks = true, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_20_16_3_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}

// (4, 16, 10, 3) then (1, 9, 24, 8), batch_first, [3 lanes x 64 x 16 x 16, 2 stages, 1 x 4 x 1 x
// 1 warps of 16 x 16] then [8 lanes x 64 x 16 x 16, 2 stages, 4 x 1 x 1 x 1 warps of 64 x 16], 2
// stages, weights resident
#include "chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters) == 368);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 1, kStages = 2, kTileM = 64, kParts = 1,
      kCommonLanes = 1, kPartLanes = 1, kXOrder = 2, kYOrder = 2, kXVector = 2, kYVector = 4,
      kXPitch = 56, kMiddlePitch = 40, kYPitch = 132, kPairSections[] = {4, 1},
      kPairAllLanes[] = {3, 8}, kPairContracted[] = {10, 24}, kPairProduced[] = {16, 9},
      kPairLanes[] = {3, 8}, kPairTileN[] = {16, 16}, kPairTileK[] = {16, 16},
      kPairWarpLanes[] = {3, 2}, kPairWarpM[] = {1, 4}, kPairWarpN[] = {2, 2},
      kPairWarpsLanes[] = {1, 4}, kPairWarpsM[] = {4, 1}, kPairWarpsN[] = {1, 1},
      kPairWOrder[] = {2, 2}, kPairWVector[] = {2, 4}, kPairWPitch[] = {56, 128}, kMiddleAt = 1536,
      kWeightsAt = 83456, kRingAt = 114176, kSlot = 3584, kResultsAt = 142848;
  static constexpr bool kResident = true, kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f32_4_16_10_3_then_1_9_24_8_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
