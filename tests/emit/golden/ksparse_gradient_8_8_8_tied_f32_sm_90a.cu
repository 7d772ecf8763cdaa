// sums over rows of 384 elements, tiles of 8 x 8 x 64, 1 x 1 x 4 warps, 3 stages
#include "ksparse_gradient.cuh"

using Parameters = kronop::KSparseGradientParameters;
static_assert(sizeof(Parameters) == 272);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 3, kP = 8, kQ = 8, kTileP = 8,
      kTileQ = 8, kHalvesP = 1, kHalvesQ = 1, kWarpsP = 1, kWarpsQ = 1, kWarpsK = 4, kLanes = 8,
      kMatrices = 1, kVector = 4, kPositions = 64, kAcross = 8, kBites = 8, kSteps = 4,
      kPitchP = 288, kPitchQ = 288, kBytesP = 18432, kBytesQ = 18432;
  static constexpr bool kAlongSums = false, kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_gradient_f32_8x8_lanes8_tied_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::ksparse_gradient<Step>(parameters);
}

// adds the shares of 64 results
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
  static constexpr int kThreads = 256, kBlocks = 4, kSlices = 8, kVector = 4;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
