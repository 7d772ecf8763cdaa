// I_2 x dense(48, 192) x I_4, batch_last, tiles of 4 lanes x 64 x 64 x 16, 3 stages, 2 x 1 x 2 x
// 1 warps of 64 x 32
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = kronop::float_e4m3_t;
  using Factor = kronop::float_e4m3_t;
  using Output = kronop::bfloat16_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 3, kLanes = 4, kTileM = 64,
      kTileN = 64, kTileK = 16, kWarpLanes = 2, kWarpM = 4, kWarpN = 4, kWarpsLanes = 2,
      kWarpsM = 1, kWarpsN = 2, kWarpsK = 1, kContracted = 192, kProduced = 48, kXOrder = 1,
      kWOrder = 2, kYOrder = 1, kXVector = 16, kWVector = 16, kYVector = 8, kXPitch = 80,
      kWPitch = 64, kYPitch = 68, kTileBytesAt = 1536;
  static constexpr bool kSplit = false, kXPairs = false, kWPairs = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_e4m3_2_48_192_4_batch_last_bf16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
