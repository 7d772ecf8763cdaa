// sums over rows of 480 elements, tiles of 64 x 64 x 32, 2 x 2 x 1 warps, 3 stages
#include "ksparse_gradient.cuh"

using Parameters = kronop::KSparseGradientParameters;
static_assert(sizeof(Parameters) == 272);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 3, kP = 192, kQ = 48, kTileP = 64,
      kTileQ = 64, kHalvesP = 4, kHalvesQ = 4, kWarpsP = 2, kWarpsQ = 2, kWarpsK = 1, kLanes = 2,
      kMatrices = 2, kVector = 4, kPositions = 32, kAcross = 8, kBites = 4, kSteps = 2,
      kPitchP = 544, kPitchQ = 544, kBytesP = 17408, kBytesQ = 17408;
  static constexpr bool kAlongSums = false, kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_gradient_f32_192x48_lanes2_apart_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::ksparse_gradient<Step>(parameters);
}

// adds the shares of 18432 results
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
