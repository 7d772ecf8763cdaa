// (6, 64, 64, 1) then (1, 768, 192, 2), batch_last, [1 lanes x 64 x 64 x 64, 2 stages, 1 x 2 x 4
// x 1 warps of 32 x 16] then [2 lanes x 64 x 256 x 32, 2 stages, 2 x 1 x 4 x 1 warps of 64 x 64],
// 2 stages
#include "chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters) == 368);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 1, kStages = 2, kTileM = 64, kParts = 1,
      kCommonLanes = 1, kPartLanes = 1, kXOrder = 1, kYOrder = 1, kXVector = 8, kYVector = 8,
      kXPitch = 72, kMiddlePitch = 200, kYPitch = 68, kPairSections[] = {6, 1},
      kPairAllLanes[] = {1, 2}, kPairContracted[] = {64, 192}, kPairProduced[] = {64, 768},
      kPairLanes[] = {1, 2}, kPairTileN[] = {64, 256}, kPairTileK[] = {64, 32},
      kPairWarpLanes[] = {1, 1}, kPairWarpM[] = {2, 4}, kPairWarpN[] = {2, 8},
      kPairWarpsLanes[] = {1, 2}, kPairWarpsM[] = {2, 1}, kPairWarpsN[] = {4, 4},
      kPairWOrder[] = {0, 2}, kPairWVector[] = {8, 8}, kPairWPitch[] = {72, 80}, kMiddleAt = 1536,
      kWeightsAt = 52736, kRingAt = 52736, kSlot = 20480, kResultsAt = 134656;
  static constexpr bool kResident = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f16_6_64_64_1_then_1_768_192_2_batch_last_f16_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
