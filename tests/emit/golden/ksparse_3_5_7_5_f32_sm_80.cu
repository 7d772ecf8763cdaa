// I_3 x dense(5, 7) x I_5, batch_first, tiles of 5 lanes x 64 x 16 x 16, 1 stages, 5 x 1 x 1 x 1
// warps of 64 x 16
#include "kronop/contract_mma.cuh"

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
  static constexpr int kThreads = 160, kBlocks = 1, kStages = 1, kLanes = 5, kTileM = 64,
      kTileN = 16, kTileK = 16, kWarpLanes = 1, kWarpM = 4, kWarpN = 2, kWarpsLanes = 5,
      kWarpsM = 1, kWarpsN = 1, kWarpsK = 1, kContracted = 7, kProduced = 5, kXOrder = 2,
      kWOrder = 2, kYOrder = 2, kXVector = 1, kWVector = 1, kYVector = 1, kXPitch = 88,
      kWPitch = 88, kYPitch = 84, kTileBytesAt = 1536;
  static constexpr bool kSplit = true, kXPairs = false, kWPairs = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_3_5_7_5_batch_first_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
