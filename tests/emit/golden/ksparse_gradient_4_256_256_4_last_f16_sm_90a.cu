// sums over rows of 8192 elements, tiles of 128 x 128 x 128, 3 stages, 1 teams, 2 of copies
#include "gradient_warp_group.cuh"

using Parameters = kronop::GradientWarpGroupParameters;
static_assert(sizeof(Parameters) == 144);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 384, kBlocks = 1, kStages = 3, kTeams = 1, kTeamP = 2, kP = 256,
      kQ = 256, kTileP = 128, kTileQ = 128, kTileK = 128, kCopyThreads = 256, kCopyRegisters = 0,
      kProductRegisters = 168, kBarriersAt = 196608;
  static constexpr bool kAlongSums = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gradient_warp_group_f16_256x256_last_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gradient_warp_group<Step>(parameters);
}

// adds the shares of 1048576 results
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
  static constexpr int kThreads = 256, kBlocks = 4, kSlices = 1, kVector = 4;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
add_shares_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::add_shares<Step>(parameters);
}
