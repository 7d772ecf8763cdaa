// a convolution: tiles of 12 by 32 in blocks of 768 by 1024 by 256
#include "gemm_vectors.hpp"

using Parameters = kronop::GatheredParameters<kronop::GemmParameters<2, double>>;
static_assert(sizeof(Parameters) == 1128);

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
  static constexpr int kBlockRows = 192, kWidth = 16, kRows = 12, kLeastRows = 1, kVectors = 2,
      kUnroll = 4;
};
}  // namespace

extern "C" int conv2d_f32_fprop_f32_linear_avx512(const void* parameters, int alone) {
  return kronop::gemm_vectors<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
