// X times 2 factors: Whole 2 by 16, then Trail 1 by 16 (digits by lanes), 1 rows
#include "kronop_x86/kron.hpp"

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
  using Element = float;
  using Output = float;
  using Compute = float;
  using Epilogue = ::Epilogue;
  static constexpr int kWidth = 8;
  static constexpr int kRowTile = 1;
  static constexpr int kState = 2048;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 2;
  static constexpr int kFactorRows[] = {128, 128};
  static constexpr int kFactorColumns[] = {128, 128};
  static constexpr int kDigits = 2;
  static constexpr int kDigitFactor[] = {0, 1, 2};
  static constexpr int kContracted[] = {128, 128};
  static constexpr int kProduced[] = {128, 128};
  static constexpr int kPanel[] = {5, 16};
  static constexpr int kTileRows[] = {5, 4};
  static constexpr int kTileVectors[] = {2, 2};
  static constexpr int kTileWidth[] = {8, 8};
  static constexpr int kUnroll[] = {4, 4};
  static constexpr int kPasses = 2;
  static constexpr int kPassKind[] = {3, 1};
  static constexpr int kPassEnd[] = {1, 2};
  static constexpr int kLanes[] = {16, 16};
  static constexpr int kPad[] = {0, 0};
  static constexpr int kOrder[] = {1, 0};
  static constexpr int kLeft[] = {1, 1};
  static constexpr int kRight[] = {1, 1};
  static constexpr int kInPlace[] = {0, 0};
};
}  // namespace

extern "C" int kron_f32_128x128p2_avx2(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
