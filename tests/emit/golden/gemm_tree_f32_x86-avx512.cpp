// matrix products: tiles of 8 by 48 in blocks of 96 by 96 by 128
#include "gemm_vectors.hpp"

using Parameters = kronop::GemmVisitorParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 704);

namespace {
struct Step {
  using Input = float;
  using Output = float;
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
  static constexpr int kBlockRows = 96, kWidth = 16, kRows = 8, kLeastRows = 1, kVectors = 3,
      kUnroll = 4;
};
}  // namespace

extern "C" int gemm_f32_f32_visitor_avx512(const void* parameters, int alone) {
  return kronop::gemm_vectors<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
