// matrix products: up to 64 products at once, tiles of 8 by 48 in blocks of 768 by 1008 by 256
#include "gemm_vectors.hpp"

using Parameters = kronop::ManyParameters<kronop::GemmParameters<2, double>, 64>;
static_assert(sizeof(Parameters) == 28696);

namespace {
struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kBlockRows = 192, kWidth = 16, kRows = 8, kLeastRows = 1, kVectors = 3,
      kUnroll = 4;
};
}  // namespace

extern "C" int gemm_many_f32_f32_linear_avx512(const void* parameters, int alone) {
  return kronop::gemm_vectors<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
