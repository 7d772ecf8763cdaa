// X times 5 factors: Whole 5*4*3*2 by 1, then Trail 1 by 128 (digits by lanes), 2 rows
#include "kronop_x86/kron.hpp"

using Parameters = kronop::KronParameters<5, 2, double>;
static_assert(sizeof(Parameters) == 568);

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
  using Element = float;
  using Output = float;
  using Compute = float;
  using Epilogue = ::Epilogue;
  static constexpr int kWidth = 16;
  static constexpr int kRowTile = 2;
  static constexpr int kState = 4096;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 5;
  static constexpr int kFactorRows[] = {8, 8, 8, 8, 8};
  static constexpr int kFactorColumns[] = {8, 8, 8, 8, 8};
  static constexpr int kDigits = 5;
  static constexpr int kDigitFactor[] = {0, 1, 2, 3, 4, 5};
  static constexpr int kContracted[] = {8, 8, 8, 8, 8};
  static constexpr int kProduced[] = {8, 8, 8, 8, 8};
  static constexpr int kPanel[] = {4, 8, 8, 8, 8};
  static constexpr int kTileRows[] = {4, 8, 8, 8, 9};
  static constexpr int kTileVectors[] = {4, 2, 2, 1, 1};
  static constexpr int kTileWidth[] = {16, 16, 16, 16, 8};
  static constexpr int kUnroll[] = {8, 8, 8, 8, 8};
  static constexpr int kPasses = 2;
  static constexpr int kPassKind[] = {3, 1};
  static constexpr int kPassEnd[] = {4, 5};
  static constexpr int kLanes[] = {1, 128};
  static constexpr int kPad[] = {0, 16};
  static constexpr int kOrder[] = {4, 3, 2, 1, 0};
  static constexpr int kLeft[] = {512, 64, 8, 1, 1};
  static constexpr int kRight[] = {1, 8, 64, 512, 1};
  static constexpr int kInPlace[] = {0, 1, 1, 1, 0};
};
}  // namespace

extern "C" int kron_f32_8x8p5_avx512(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
