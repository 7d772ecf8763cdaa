// sums over rows of 1920 elements, tiles of 64 x 64 x 32, 2 x 1 x 2 warps, 3 stages
#include "ksparse_gradient.cuh"

using Parameters = kronop::KSparseGradientParameters;
static_assert(sizeof(Parameters) == 272);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 3, kP = 48, kQ = 192, kTileP = 64,
      kTileQ = 64, kHalvesP = 4, kHalvesQ = 8, kWarpsP = 2, kWarpsQ = 1, kWarpsK = 2, kLanes = 1,
      kMatrices = 1, kVector = 4, kPositions = 8, kAcross = 8, kBites = 2, kSteps = 2,
      kPitchP = 288, kPitchQ = 288, kBytesP = 8192, kBytesQ = 8192;
  static constexpr bool kAlongSums = true, kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_gradient_f32_48x192_along_apart_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::ksparse_gradient<Step>(parameters);
}

// adds the shares of 73728 results
#include "add_shares.cuh"

using Parameters = kronop::AddSharesParameters<double>;
static_assert(sizeof(Parameters) == 192);

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
  static constexpr int kThreads = 256, kBlocks = 4, kSlices = 4, kVector = 4;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
