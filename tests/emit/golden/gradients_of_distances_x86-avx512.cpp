// sums of derivatives of powers of differences
#include "gradient.hpp"

using Parameters = kronop::powers_of_distances::Parameters<2, double>;
static_assert(sizeof(Parameters) == 544);

namespace {
struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kPower = 4, kOutputs = 4, kWidth = 16, kRows = 4, kVectors = 2, kDepth = 256,
      kBlockRows = 32, kBlockLanes = 128;
};
}  // namespace

extern "C" int distance_gradient_f32_two_4_linear_avx512(const void* parameters, int alone) {
  return kronop::distance_gradient<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
