// a convolution by copies of pixels, warp groups, tiles of 64 x 128 in turn, 6 stages
#include "conv2d_warp_group.cuh"

using Parameters = kronop::Conv2dWarpGroupParameters<kronop::Conv2dPart<kronop::GemmWarpGroupParameters<double, 2>>, 1>;
static_assert(sizeof(Parameters) == 896);

struct Step {
  using Input = kronop::half_t;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 64, kTileN = 128, kStages = 6,
      kLines = 4, kBuffers = 1, kCluster = 1, kBand = 16, kSharedBytes = 214016,
      kCopyRegisters = 24, kProductRegisters = 240;
  static constexpr bool kAlternate = true, kTurnedA = true, kTurnedB = true, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
conv2d_warp_group_wgrad_f16_linear_64x128_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::conv2d_warp_group<Step>(parameters);
}

// the sums of slices
#include "conv2d_add_slices.cuh"

using Parameters = kronop::Conv2dAddSlicesParameters<double, 2>;
static_assert(sizeof(Parameters) == 192);

struct Step {
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 5, kVector = 4;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
conv2d_add_slices_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::conv2d_add_slices<Step>(parameters);
}
