// X times 2 factors: Whole 2*1 by 1 (digits by lanes), 64 rows
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
  static constexpr int kWidth = 16, kRowTile = 64, kState = 64, kFactorRows[] = {8, 8},
      kFactorColumns[] = {8, 8}, kDigitFactor[] = {0, 1, 2}, kContracted[] = {8, 8},
      kProduced[] = {8, 8}, kPanel[] = {8, 8}, kTileRows[] = {8, 8}, kTileVectors[] = {1, 1},
      kTileWidth[] = {8, 8}, kUnroll[] = {8, 8}, kPassKind[] = {3}, kPassEnd[] = {2},
      kLanes[] = {1}, kPad[] = {0}, kOrder[] = {1, 0}, kLeft[] = {8, 1}, kRight[] = {1, 8},
      kInPlace[] = {0, 0};
};
}  // namespace

extern "C" int kron_f32_8x8p2_avx512(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}

// a scale for each row of the product, and its integers
#include "quantized_rows.hpp"

using Parameters = kronop::QuantizedRowsParameters;
static_assert(sizeof(Parameters) == 48);

namespace {
struct Step {
  using Element = float;
  static constexpr int kColumns = 64, kBits = 8;
};
}  // namespace

extern "C" int quantized_rows_f32_64_s8_avx512(const void* parameters, int alone) {
  return kronop::quantized_rows<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
