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

// takes the sums through the visitor tree; a row stands for one sum
#include "kronop_x86/visit_sums.hpp"

using Parameters = kronop::VisitSumsParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 568);

namespace {
struct Step {
  using Accumulator = float;
  struct Epilogue : kronop::Visitor<float, kronop::Types<float, float, float>, kronop::Types<float,
          float, kronop::Reduced<kronop::Maximum, kronop::Axis::kRow>, kronop::Reduced<kronop::Sum,
          kronop::Axis::kColumn>>> {
    Compute scalar0;
    template <class Scalar>
    KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : scalar0(Compute(scalars[0])) {}
    template <class At>
    KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {
      const Compute operand0 = at.operand(0);
      const Compute operand1 = at.operand(1);
      const Compute operand2 = at.operand(2);
      const Compute v0 = scalar0 * accumulator;
      const Compute v1 = kronop::math::max(v0 + operand0, Compute(0.0)) * operand2 + operand1;
      const Compute v2 = accumulator - operand0;
      at.keep(0, v1);
      at.keep(1, v0);
      at.keep(2, accumulator);
      at.keep(3, v2);
    }
  };
  static constexpr int kPanel = 32;
};
}  // namespace

extern "C" int visit_f32_f32_avx512(const void* parameters, int alone) {
  return kronop::visit_sums<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
