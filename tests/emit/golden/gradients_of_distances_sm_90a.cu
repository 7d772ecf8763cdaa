// sums of derivatives of powers of differences
#include "gradient_tile.cuh"

using Parameters = kronop::powers_of_distances::Parameters<4, double>;
static_assert(sizeof(Parameters) == 560);

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
  static constexpr int kThreads = 128, kBlocks = 2, kPower = 4, kOutputs = 4, kTileN = 64,
      kTileM = 64, kThreadsM = 16, kDepth = 16, kStages = 3;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
distance_gradient_f32_two_4_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gradient_tile<Step>(parameters);
}
