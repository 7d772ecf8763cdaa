// X times W
#include "scaled.cuh"

using Parameters = kronop::ScaledParameters<2, double>;
static_assert(sizeof(Parameters) == 64);

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
  static constexpr int kThreads = 256, kBlocks = 1;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
scaled_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::scaled<Step>(parameters);
}
