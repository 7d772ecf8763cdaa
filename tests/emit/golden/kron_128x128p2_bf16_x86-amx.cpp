// X times 2 factors: on tiles, digits 128x128, 128x128, 1 rows at once
#include "kronop_x86/kron_amx.hpp"

using Parameters = kronop::KronParameters<2, 2, double>;
static_assert(sizeof(Parameters) == 400);

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
  using Element = kronop::bfloat16_t;
  using Output = kronop::bfloat16_t;
  using Compute = float;
  using Epilogue = ::Epilogue;
  static constexpr int kGroup = 1;
  static constexpr int kSlice = 143360;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 2;
  static constexpr int kFactorRows[] = {128, 128};
  static constexpr int kFactorColumns[] = {128, 128};
  static constexpr int kDigits = 2;
  static constexpr int kDigitFactor[] = {0, 1, 2};
  static constexpr int kContracted[] = {128, 128};
  static constexpr int kProduced[] = {128, 128};
};
}  // namespace

extern "C" int kron_bf16_128x128p2_amx(const void* parameters, int alone) {
  return kronop::kron_amx_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
