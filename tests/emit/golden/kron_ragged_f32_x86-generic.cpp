// X times 3 factors: Whole 2*3*1 by 1 (digits by lanes), 64 rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<3, 2, double>;
static_assert(sizeof(Parameters) == 456);

namespace {
struct Step {
  using Element = float;
  using Output = float;
  using Compute = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kWidth = 4, kRowTile = 64, kState = 60, kFactorRows[] = {2, 5, 6},
      kFactorColumns[] = {3, 2, 4}, kDigitFactor[] = {0, 1, 2, 3}, kContracted[] = {2, 5, 6},
      kProduced[] = {3, 2, 4}, kPanel[] = {3, 2, 4}, kTileRows[] = {3, 2, 4},
      kTileVectors[] = {2, 1, 1}, kTileWidth[] = {4, 4, 4}, kUnroll[] = {2, 5, 6},
      kPassKind[] = {3}, kPassEnd[] = {3}, kLanes[] = {1}, kPad[] = {0}, kOrder[] = {1, 2, 0},
      kLeft[] = {2, 4, 1}, kRight[] = {6, 1, 8}, kInPlace[] = {0, 0, 0};
};
}  // namespace

extern "C" int kron_f32_2x3_5x2_6x4_generic(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
