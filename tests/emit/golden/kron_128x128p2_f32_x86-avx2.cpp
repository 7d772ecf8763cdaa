// X times 2 factors: Whole 2 by 16, then Trail 1 by 16 (digits by lanes), 1 rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<2, 2, double>;
static_assert(sizeof(Parameters) == 400);

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
  static constexpr int kWidth = 8, kRowTile = 1, kState = 2048, kFactorRows[] = {128, 128},
      kFactorColumns[] = {128, 128}, kDigitFactor[] = {0, 1, 2}, kContracted[] = {128, 128},
      kProduced[] = {128, 128}, kPanel[] = {5, 16}, kTileRows[] = {5, 4}, kTileVectors[] = {2, 2},
      kTileWidth[] = {8, 8}, kUnroll[] = {4, 4}, kPassKind[] = {3, 1}, kPassEnd[] = {1, 2},
      kLanes[] = {16, 16}, kPad[] = {0, 0}, kOrder[] = {1, 0}, kLeft[] = {1, 1}, kRight[] = {1, 1},
      kInPlace[] = {0, 0};
};
}  // namespace

extern "C" int kron_f32_128x128p2_avx2(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
