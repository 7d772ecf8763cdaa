// X times 1 factors: RowsAndLead 1 by 32 (digits by lanes), 64 rows
#include "kronop_x86/kron.hpp"

using Parameters = kronop::KronParameters<1, 2, double>;
static_assert(sizeof(Parameters) == 344);

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
  static constexpr int kRowTile = 64;
  static constexpr int kState = 16160;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 1;
  static constexpr int kFactorRows[] = {505};
  static constexpr int kFactorColumns[] = {3};
  static constexpr int kDigits = 1;
  static constexpr int kDigitFactor[] = {0, 1};
  static constexpr int kContracted[] = {505};
  static constexpr int kProduced[] = {3};
  static constexpr int kPanel[] = {3};
  static constexpr int kTileRows[] = {3};
  static constexpr int kTileVectors[] = {2};
  static constexpr int kTileWidth[] = {16};
  static constexpr int kUnroll[] = {4};
  static constexpr int kPasses = 1;
  static constexpr int kPassKind[] = {0};
  static constexpr int kPassEnd[] = {1};
  static constexpr int kLanes[] = {32};
  static constexpr int kPad[] = {0};
  static constexpr int kOrder[] = {0};
  static constexpr int kLeft[] = {1};
  static constexpr int kRight[] = {1};
  static constexpr int kInPlace[] = {0};
};
}  // namespace

extern "C" int kron_f32_505x3_avx512(const void* parameters, int alone) {
  return kronop::kron_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
