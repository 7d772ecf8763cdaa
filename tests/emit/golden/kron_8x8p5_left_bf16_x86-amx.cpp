// X times 5 factors: Rows 2*1 by 64, then Rows 5*4*3 by 64 (digits by lanes), 64 rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<5, 2, double>;
static_assert(sizeof(Parameters) == 568);

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
  static constexpr int kWidth = 16, kRowTile = 64, kState = 32768, kFactorRows[] = {8, 8, 8, 8, 8},
      kFactorColumns[] = {8, 8, 8, 8, 8}, kDigitFactor[] = {0, 1, 2, 3, 4, 5},
      kContracted[] = {8, 8, 8, 8, 8}, kProduced[] = {8, 8, 8, 8, 8}, kPanel[] = {4, 4, 4, 4, 4},
      kTileRows[] = {4, 4, 4, 4, 4}, kTileVectors[] = {4, 4, 4, 4, 4},
      kTileWidth[] = {16, 16, 16, 16, 16}, kUnroll[] = {8, 8, 8, 8, 8}, kPassKind[] = {2, 2},
      kPassEnd[] = {2, 5}, kLanes[] = {64, 64}, kPad[] = {0, 0}, kOrder[] = {1, 0, 4, 3, 2},
      kLeft[] = {8, 1, 64, 8, 1}, kRight[] = {1, 8, 1, 8, 64}, kInPlace[] = {0, 0, 0, 0, 0};
};
}  // namespace

extern "C" int kron_bf16_8x8p5_amx(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
