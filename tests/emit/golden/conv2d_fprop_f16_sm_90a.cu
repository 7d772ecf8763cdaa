// a convolution by copies of pixels, warp groups, tiles of 256 x 64 shared, 4 stages
#include "conv2d_warp_group.cuh"

using Parameters = kronop::Conv2dWarpGroupParameters<kronop::Conv2dPart<kronop::GemmWarpGroupParameters<double, 2>>, 1>;
static_assert(sizeof(Parameters) == 896);

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
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 256, kTileN = 64, kStages = 4,
      kLines = 1, kBuffers = 2, kCluster = 1, kBand = 16, kSharedBytes = 197632,
      kCopyRegisters = 24, kProductRegisters = 240;
  static constexpr bool kAlternate = false, kTurnedA = false, kTurnedB = false, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
conv2d_warp_group_fprop_f16_linear_256x64_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::conv2d_warp_group<Step>(parameters);
}
