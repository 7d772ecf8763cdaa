// sums over rows of 4608 elements, tiles of 256 x 128 x 64, 4 stages, 2 teams, 2 of copies
#include "kronop/gradient_group.cuh"

using Parameters = kronop::GradientGroupParameters;
static_assert(sizeof(Parameters) == 144);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 512;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 4;
  static constexpr int kTeams = 2;
  static constexpr int kTeamP = 2;
  static constexpr int kP = 192;
  static constexpr int kQ = 192;
  static constexpr int kTileP = 256;
  static constexpr int kTileQ = 128;
  static constexpr int kTileK = 64;
  static constexpr bool kAlongSums = false;
  static constexpr int kCopyThreads = 256;
  static constexpr int kCopyRegisters = 64;
  static constexpr int kProductRegisters = 192;
  static constexpr int kBarriersAt = 196608;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gradient_group_f16_192x192_first_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gradient_group<Step>(parameters);
}

// adds the shares of 442368 results
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
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 4;
  static constexpr int kSlices = 2;
  static constexpr int kVector = 4;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
