// X times 5 factors: Rows 1 by 64, then Rows 3*2 by 64, then Rows 5*4 by 64 (digits by lanes), 64
// rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<5, 2, double>;
static_assert(sizeof(Parameters) == 568);

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
  static constexpr int kWidth = 8, kRowTile = 64, kState = 4096, kFactorRows[] = {8, 8, 8, 8, 8},
      kFactorColumns[] = {8, 8, 8, 8, 8}, kDigitFactor[] = {0, 1, 2, 3, 4, 5},
      kContracted[] = {8, 8, 8, 8, 8}, kProduced[] = {8, 8, 8, 8, 8}, kPanel[] = {4, 4, 4, 4, 4},
      kTileRows[] = {4, 4, 4, 4, 4}, kTileVectors[] = {2, 2, 2, 2, 2},
      kTileWidth[] = {8, 8, 8, 8, 8}, kUnroll[] = {8, 8, 8, 8, 8}, kPassKind[] = {2, 2, 2},
      kPassEnd[] = {1, 3, 5}, kLanes[] = {64, 64, 64}, kPad[] = {0, 0, 0},
      kOrder[] = {0, 2, 1, 4, 3}, kLeft[] = {1, 8, 1, 8, 1}, kRight[] = {1, 1, 8, 1, 8},
      kInPlace[] = {0, 0, 0, 0, 0};
};
}  // namespace

extern "C" int kron_f32_8x8p5_avx2(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
