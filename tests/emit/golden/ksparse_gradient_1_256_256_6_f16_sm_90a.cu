// 6 lanes of 256 apart
#include "kronop/lanes.cuh"

using Parameters = kronop::LanesParameters;
static_assert(sizeof(Parameters) == 80);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 5;
  static constexpr bool kJoin = false;
  static constexpr int kOwn = 256;
  static constexpr int kLanes = 6;
  static constexpr int kMatrices = 21;
  static constexpr int kOctets = 8;
  static constexpr int kRun = 8;
  static constexpr int kPitch = 6;
  static constexpr int kStartsAt = 16128;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
part_x_gradient_f16_256x6_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::move_lanes<Step>(parameters);
}

// 6 lanes of 256 apart
#include "kronop/lanes.cuh"

using Parameters = kronop::LanesParameters;
static_assert(sizeof(Parameters) == 80);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 5;
  static constexpr bool kJoin = false;
  static constexpr int kOwn = 256;
  static constexpr int kLanes = 6;
  static constexpr int kMatrices = 21;
  static constexpr int kOctets = 8;
  static constexpr int kRun = 8;
  static constexpr int kPitch = 6;
  static constexpr int kStartsAt = 16128;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
part_g_gradient_f16_256x6_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::move_lanes<Step>(parameters);
}

// sums over rows of 3072 elements, tiles of 128 x 128 x 128, 3 stages, 1 teams, 2 of copies
#include "kronop/gradient_group.cuh"

using Parameters = kronop::GradientGroupParameters;
static_assert(sizeof(Parameters) == 144);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 384;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 3;
  static constexpr int kTeams = 1;
  static constexpr int kTeamP = 2;
  static constexpr int kP = 256;
  static constexpr int kQ = 256;
  static constexpr int kTileP = 128;
  static constexpr int kTileQ = 128;
  static constexpr int kTileK = 128;
  static constexpr bool kAlongSums = false;
  static constexpr int kCopyThreads = 256;
  static constexpr int kCopyRegisters = 0;
  static constexpr int kProductRegisters = 168;
  static constexpr int kBarriersAt = 196608;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gradient_group_f16_256x256_first_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gradient_group<Step>(parameters);
}

// adds the shares of 393216 results
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
