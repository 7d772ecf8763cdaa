// a matrix product by warp groups, tiles of 128 x 128 shared, 6 stages, clusters of 2
#include "gemm_warp_group.cuh"

using Parameters = kronop::GemmWarpGroupParameters<double, 2>;
static_assert(sizeof(Parameters) == 576);

struct Step {
  using Input = kronop::float_e4m3_t;
  using Output = kronop::bfloat16_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 128, kStages = 6,
      kLines = 2, kBuffers = 1, kCluster = 2, kBand = 8, kSharedBytes = 230400, kCopyRegisters = 24,
      kProductRegisters = 240;
  static constexpr bool kAlternate = false, kTurnedA = false, kTurnedB = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks) __cluster_dims__(Step::kCluster)
gemm_warp_group_e4m3_linear_128x128_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_warp_group<Step>(parameters);
}
