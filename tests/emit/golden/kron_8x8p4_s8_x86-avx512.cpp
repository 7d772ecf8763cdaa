// X times 4 factors: Whole 4*3*2*1 by 1 (digits by lanes), 64 rows
#include "kron.hpp"

using Parameters = kronop::KronParameters<4, 2, long long>;
static_assert(sizeof(Parameters) == 512);

namespace {
struct Step {
  using Element = kronop::int8_t;
  using Output = kronop::int32_t;
  using Compute = kronop::int32_t;
  struct Epilogue : kronop::Scaling<kronop::int32_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kWidth = 16, kRowTile = 64, kState = 4096, kFactorRows[] = {8, 8, 8, 8},
      kFactorColumns[] = {8, 8, 8, 8}, kDigitFactor[] = {0, 1, 2, 3, 4},
      kContracted[] = {8, 8, 8, 8}, kProduced[] = {8, 8, 8, 8}, kPanel[] = {8, 8, 8, 8},
      kTileRows[] = {8, 8, 8, 9}, kTileVectors[] = {2, 2, 1, 1}, kTileWidth[] = {16, 16, 16, 8},
      kUnroll[] = {8, 8, 8, 8}, kPassKind[] = {3}, kPassEnd[] = {4}, kLanes[] = {1}, kPad[] = {0},
      kOrder[] = {3, 2, 1, 0}, kLeft[] = {512, 64, 8, 1}, kRight[] = {1, 8, 64, 512},
      kInPlace[] = {0, 1, 1, 1};
};
}  // namespace

extern "C" int kron_s8_8x8p4_avx512(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
