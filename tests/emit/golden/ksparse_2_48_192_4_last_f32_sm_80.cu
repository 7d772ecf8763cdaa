// I_2 x dense(48, 192) x I_4, batch_last, tiles of 4 lanes x 64 x 64 x 16, 4 stages, 4 x 1 x 2 x
// 1 warps of 64 x 32
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
  static constexpr int kThreads = 256, kBlocks = 1, kStages = 4, kLanes = 4, kTileM = 64,
      kTileN = 64, kTileK = 16, kWarpLanes = 1, kWarpM = 4, kWarpN = 4, kWarpsLanes = 4,
      kWarpsM = 1, kWarpsN = 2, kWarpsK = 1, kContracted = 192, kProduced = 48, kXOrder = 1,
      kWOrder = 2, kYOrder = 1, kXVector = 4, kWVector = 4, kYVector = 4, kXPitch = 72,
      kWPitch = 72, kYPitch = 68, kTileBytesAt = 1536;
  static constexpr bool kSplit = true, kXPairs = false, kWPairs = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_48_192_4_batch_last_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
