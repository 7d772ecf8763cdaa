// products of kernel matrices
#include "product.hpp"

using Parameters = kronop::ProductParameters<2, 1, 2, double>;
static_assert(sizeof(Parameters) == 536);

namespace {
struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  using Numbers = kronop::Numbers<kronop::Vector<float, 16>>;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kTerm[] = {2}, kTermValue[] = {-1}, kTermVector[] = {-1}, kValues = 2,
      kVectors = 0, kWidth = 16, kTileVectors = 2, kRows = 4, kDepth = 256, kBlockColumns = 128;
  static constexpr bool kRegularized = true;
  struct Kernel {
    KRONOP_INLINE static Numbers value(const Numbers (&s)[1], const Numbers* h) {
      return kronop::math::exp(s[0] / h[0] * Numbers(-1.0));
    }
  };
};
}  // namespace

extern "C" int product_f32_one_linear_avx512(const void* parameters, int alone) {
  return kronop::product<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
