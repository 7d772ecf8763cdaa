// sums over rows of 384 elements, tiles of 8 x 8 x 64, 1 x 1 x 4 warps, 3 stages
#include "kronop/ksparse_gradient.cuh"

using Parameters = kronop::KSparseGradientParameters;
static_assert(sizeof(Parameters) == 272);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 2;
  static constexpr int kStages = 3;
  static constexpr int kP = 8;
  static constexpr int kQ = 8;
  static constexpr int kTileP = 8;
  static constexpr int kTileQ = 8;
  static constexpr int kHalvesP = 1;
  static constexpr int kHalvesQ = 1;
  static constexpr int kWarpsP = 1;
  static constexpr int kWarpsQ = 1;
  static constexpr int kWarpsK = 4;
  static constexpr bool kAlongSums = false;
  static constexpr int kLanes = 8;
  static constexpr int kMatrices = 1;
  static constexpr int kVector = 4;
  static constexpr int kPositions = 64;
  static constexpr int kAcross = 8;
  static constexpr int kBites = 8;
  static constexpr int kSteps = 4;
  static constexpr int kPitchP = 288;
  static constexpr int kPitchQ = 288;
  static constexpr int kBytesP = 18432;
  static constexpr int kBytesQ = 18432;
  static constexpr bool kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_gradient_f32_8x8_lanes8_tied_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::ksparse_gradient<Step>(parameters);
}

// adds the shares of 64 results
#include "kronop/add_shares.cuh"

using Parameters = kronop::AddSharesParameters<double>;
static_assert(sizeof(Parameters) == 192);

struct Epilogue {
  using Compute = float;
  Compute alpha, beta;
  template <class Scalar>
  KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : alpha(Compute(scalars[0])), beta(Compute(scalars[1])) {}
  KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
    namespace math = kronop::math;
    const Compute v0 = alpha * accumulator;
    const Compute v1 = beta * source;
    const Compute v2 = v0 + v1;
    const Compute v3 = v2 + bias;
    return v3;
  }
};

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 4;
  static constexpr int kSlices = 8;
  static constexpr int kVector = 4;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
