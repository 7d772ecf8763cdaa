// sums over rows of 4608 elements, tiles of 256 x 128 x 64, 4 stages, 2 teams, 2 of copies
#include "gradient_warp_group.cuh"

using Parameters = kronop::GradientWarpGroupParameters;
static_assert(sizeof(Parameters) == 144);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 512, kBlocks = 1, kStages = 4, kTeams = 2, kTeamP = 2, kP = 192,
      kQ = 192, kTileP = 256, kTileQ = 128, kTileK = 64, kCopyThreads = 256, kCopyRegisters = 64,
      kProductRegisters = 192, kBarriersAt = 196608;
  static constexpr bool kAlongSums = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gradient_warp_group_f16_192x192_first_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gradient_warp_group<Step>(parameters);
}

// adds the shares of 442368 results
#include "add_shares.cuh"

using Parameters = kronop::AddSharesParameters<double>;
static_assert(sizeof(Parameters) == 192);

struct Step {
  using Input = float;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 4, kSlices = 2, kVector = 4;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
