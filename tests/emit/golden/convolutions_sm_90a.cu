// float32 as two TF32 numbers each
#include "gemm_split.cuh"

using Parameters = kronop::GemmSplitParameters;
static_assert(sizeof(Parameters) == 88);

struct Step {
  static constexpr int kThreads = 256, kBlocks = 8;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gemm_split_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_split<Step>(parameters);
}

// a convolution by copies of pixels, warp groups of operands in two planes, tiles of 128 x 128
// shared, 3 stages
#include "conv2d_warp_group.cuh"

using Parameters = kronop::Conv2dWarpGroupParameters<kronop::Conv2dPart<kronop::GemmWarpGroupParameters<double, 2>>, 1>;
static_assert(sizeof(Parameters) == 896);

struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 128, kStages = 3,
      kLines = 2, kBuffers = 1, kCluster = 1, kBand = 16, kSharedBytes = 230400,
      kCopyRegisters = 24, kProductRegisters = 240;
  static constexpr bool kAlternate = false, kTurnedA = false, kTurnedB = false, kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
conv2d_warp_group_fprop_f32_linear_128x128_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::conv2d_warp_group<Step>(parameters);
}
