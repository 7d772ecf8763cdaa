// X times W
#include "scaled.hpp"

using Parameters = kronop::ScaledParameters<2, double>;
static_assert(sizeof(Parameters) == 64);

namespace {
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
  static constexpr bool kSaturate = false;
};
}  // namespace

extern "C" int scaled_f32_linear_avx2(const void* parameters, int alone) {
  return kronop::scaled<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
