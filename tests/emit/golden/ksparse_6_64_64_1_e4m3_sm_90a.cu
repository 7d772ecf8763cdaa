// I_6 x dense(64, 64) x I_1, batch_first, tiles of 1 lanes x 256 x 64 x 32, 2 stages, 1 x 4 x 1 x
// 1 warps of 64 x 64
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
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 2, kLanes = 1, kTileM = 256,
      kTileN = 64, kTileK = 32, kWarpLanes = 1, kWarpM = 4, kWarpN = 8, kWarpsLanes = 1,
      kWarpsM = 4, kWarpsN = 1, kWarpsK = 1, kContracted = 64, kProduced = 64, kXOrder = 0,
      kWOrder = 0, kYOrder = 0, kXVector = 16, kWVector = 16, kYVector = 8, kXPitch = 48,
      kWPitch = 48, kYPitch = 72, kTileBytesAt = 6144;
  static constexpr bool kSplit = false, kXPairs = false, kWPairs = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_e4m3_6_64_64_1_batch_first_bf16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
