// X times 1 factors: RowsAndLead 1 by 32 (digits by lanes), 64 rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<1, 2, double>;
static_assert(sizeof(Parameters) == 344);

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
  static constexpr int kWidth = 16, kRowTile = 64, kState = 16160, kFactorRows[] = {505},
      kFactorColumns[] = {3}, kDigitFactor[] = {0, 1}, kContracted[] = {505}, kProduced[] = {3},
      kPanel[] = {3}, kTileRows[] = {3}, kTileVectors[] = {2}, kTileWidth[] = {16}, kUnroll[] = {4},
      kPassKind[] = {0}, kPassEnd[] = {1}, kLanes[] = {32}, kPad[] = {0}, kOrder[] = {0},
      kLeft[] = {1}, kRight[] = {1}, kInPlace[] = {0};
};
}  // namespace

extern "C" int kron_f32_505x3_avx512(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
