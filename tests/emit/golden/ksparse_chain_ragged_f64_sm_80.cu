// I_2 x dense(20, 16) x I_3, batch_first, tiles of 3 lanes x 32 x 32 x 16, 1 stages, 3 x 2 x 1 x
// 1 warps of 16 x 32
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  struct Epilogue : kronop::Scaling<double> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 192, kBlocks = 2, kStages = 1, kLanes = 3, kTileM = 32,
      kTileN = 32, kTileK = 16, kWarpLanes = 1, kWarpM = 1, kWarpN = 4, kWarpsLanes = 3,
      kWarpsM = 2, kWarpsN = 1, kWarpsK = 1, kContracted = 16, kProduced = 20, kXOrder = 2,
      kWOrder = 2, kYOrder = 2, kXVector = 2, kWVector = 2, kYVector = 2, kXPitch = 52,
      kWPitch = 52, kYPitch = 100, kTileBytesAt = 768;
  static constexpr bool kSplit = false, kXPairs = false, kWPairs = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f64_2_20_16_3_batch_first_f64_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}

// (4, 16, 10, 3) then (1, 9, 24, 8), batch_first, [3 lanes x 32 x 16 x 16, 2 stages, 3 x 2 x 1 x
// 1 warps of 16 x 16] then [2 lanes x 32 x 48 x 32, 2 stages, 2 x 1 x 3 x 1 warps of 32 x 16], 2
// stages
#include "chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters) == 368);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  struct Epilogue : kronop::Scaling<double> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 192, kBlocks = 1, kStages = 2, kTileM = 32, kParts = 1,
      kCommonLanes = 1, kPartLanes = 1, kXOrder = 2, kYOrder = 2, kXVector = 2, kYVector = 2,
      kXPitch = 52, kMiddlePitch = 40, kYPitch = 98, kPairSections[] = {4, 1},
      kPairAllLanes[] = {3, 8}, kPairContracted[] = {10, 24}, kPairProduced[] = {16, 9},
      kPairLanes[] = {3, 2}, kPairTileN[] = {16, 48}, kPairTileK[] = {16, 32},
      kPairWarpLanes[] = {1, 1}, kPairWarpM[] = {1, 2}, kPairWarpN[] = {2, 2},
      kPairWarpsLanes[] = {3, 2}, kPairWarpsM[] = {2, 1}, kPairWarpsN[] = {1, 3},
      kPairWOrder[] = {2, 2}, kPairWVector[] = {2, 2}, kPairWPitch[] = {52, 68}, kMiddleAt = 768,
      kWeightsAt = 82688, kRingAt = 82688, kSlot = 3264, kResultsAt = 134912;
  static constexpr bool kResident = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f64_4_16_10_3_then_1_9_24_8_batch_first_f64_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
