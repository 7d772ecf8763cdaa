// one Kronecker-sparse factor: lanes along the outputs, tiles of 6 by 2 vectors, 96 rows by 6
// blocks by 64 outputs by 1 slices, 64 contraction steps at once
#include "ksparse.hpp"

using Parameters = kronop::KSparseParameters<2, double>;
static_assert(sizeof(Parameters) == 200);

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
  static constexpr int kWidth = 8, kVectors = 2, kA = 6, kB = 64, kC = 64, kD = 1, kBlocks = 6,
      kSlices = 1, kOutputs = 64, kDepth = 64, kTile = 6, kPitch = 80, kBiasAt = 98304,
      kInputAt = 99840, kResultsAt = 130560;
  static constexpr bool kDirect = true, kStreams = false;
};
}  // namespace

extern "C" int ksparse_f32_6_64_64_1_avx2(const void* parameters, int alone) {
  return kronop::ksparse_along_outputs<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
