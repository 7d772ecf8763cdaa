// a convolution by tensor cores of 2 x 2 warps, tiles of 128 x 64 x 16, 4 stages
#include "gemm_gather_mma.cuh"

using Parameters = kronop::GemmGatherParameters<kronop::GemmParameters<4, double>>;
static_assert(sizeof(Parameters) == 880);

struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  using Rounded = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kTileM = 128, kTileN = 64, kTileK = 16, kVectorA = 1,
      kVectorB = 1, kBand = 16, kAccessA = 2, kAccessB = 1, kBlocks = 2, kStages = 4, kWarpsM = 2,
      kWarpM = 64, kWarpN = 32, kWay = 2;
  static constexpr bool kAcrossA = false, kAcrossB = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
conv2d_fprop_mma_f32_linear_128x64x16_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_gather_mma<Step>(parameters);
}
