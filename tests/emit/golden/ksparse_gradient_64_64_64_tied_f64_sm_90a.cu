// sums over rows of 8192 elements, tiles of 64 x 64 x 32, 2 x 1 x 2 warps, 3 stages
#include "ksparse_gradient.cuh"

using Parameters = kronop::KSparseGradientParameters;
static_assert(sizeof(Parameters) == 272);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  using Epilogue = kronop::Identity<double>;
  static constexpr int kThreads = 128, kBlocks = 2, kStages = 3, kP = 64, kQ = 64, kTileP = 64,
      kTileQ = 64, kHalvesP = 4, kHalvesQ = 8, kWarpsP = 2, kWarpsQ = 1, kWarpsK = 2, kLanes = 1,
      kMatrices = 1, kVector = 2, kPositions = 16, kAcross = 16, kBites = 4, kSteps = 1,
      kPitchP = 544, kPitchQ = 544, kBytesP = 16384, kBytesQ = 16384;
  static constexpr bool kAlongSums = true, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_gradient_f64_64x64_along_tied_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::ksparse_gradient<Step>(parameters);
}

// adds the shares of 4096 results
#include "add_shares.cuh"

using Parameters = kronop::AddSharesParameters<double>;
static_assert(sizeof(Parameters) == 192);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  struct Epilogue : kronop::Scaling<double> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 4, kSlices = 8, kVector = 2;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f64_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
