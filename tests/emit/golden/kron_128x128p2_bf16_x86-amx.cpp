// X times 2 factors: on tiles, digits 128x128, 128x128, 1 rows at once
#include "kron_amx.hpp"

using Parameters = kronop::KronParameters<2, 2, double>;
static_assert(sizeof(Parameters) == 400);

namespace {
struct Step {
  using Element = kronop::bfloat16_t;
  using Output = kronop::bfloat16_t;
  using Compute = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kAtOnce = 1, kSlice = 143360, kFactorRows[] = {128, 128},
      kFactorColumns[] = {128, 128}, kDigitFactor[] = {0, 1, 2}, kContracted[] = {128, 128},
      kProduced[] = {128, 128};
};
}  // namespace

extern "C" int kron_bf16_128x128p2_amx(const void* parameters, int alone) {
  return kronop::kron_amx_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
