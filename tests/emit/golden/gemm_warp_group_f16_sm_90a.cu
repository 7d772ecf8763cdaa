// a matrix product by warp groups, tiles of 128 x 256 shared, 3 stages, clusters of 2
#include "gemm_warp_group.cuh"

using Parameters = kronop::GemmWarpGroupParameters<double, 2>;
static_assert(sizeof(Parameters) == 576);

struct Step {
  using Input = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 256, kStages = 3,
      kLines = 4, kBuffers = 1, kCluster = 2, kBand = 8, kSharedBytes = 214016, kCopyRegisters = 24,
      kProductRegisters = 240;
  static constexpr bool kAlternate = false, kTurnedA = false, kTurnedB = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks) __cluster_dims__(Step::kCluster)
gemm_warp_group_f16_linear_128x256_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_warp_group<Step>(parameters);
}
