// X times W
#include "scaled.hpp"

using Parameters = kronop::ScaledParameters<2, double>;
static_assert(sizeof(Parameters) == 64);

namespace {
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
};
}  // namespace

extern "C" int scaled_f32_linear_avx2(const void* parameters, int alone) {
  return kronop::scaled<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
