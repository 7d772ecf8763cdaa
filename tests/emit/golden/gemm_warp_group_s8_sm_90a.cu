// a matrix product by warp groups, tiles of 128 x 128 in turn, 5 stages, clusters of 2
#include "gemm_warp_group.cuh"

using Parameters = kronop::GemmWarpGroupParameters<long long, 2>;
static_assert(sizeof(Parameters) == 576);

struct Step {
  using Input = kronop::int8_t;
  using Output = kronop::int32_t;
  using Accumulator = kronop::int32_t;
  struct Epilogue : kronop::Scaling<kronop::int32_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 128, kStages = 5,
      kLines = 4, kBuffers = 1, kCluster = 2, kBand = 8, kSharedBytes = 230400, kCopyRegisters = 24,
      kProductRegisters = 240;
  static constexpr bool kAlternate = true, kTurnedA = false, kTurnedB = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks) __cluster_dims__(Step::kCluster)
gemm_warp_group_s8_linear_128x128_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_warp_group<Step>(parameters);
}
