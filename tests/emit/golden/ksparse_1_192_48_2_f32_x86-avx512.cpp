// one Kronecker-sparse factor: lanes along the batch, tiles of 12 by 2 vectors, 448 rows by 1
// blocks by 192 outputs by 2 slices, 48 contraction steps at once
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
  static constexpr int kWidth = 16, kVectors = 2, kA = 1, kB = 192, kC = 48, kD = 2, kBlocks = 1,
      kSlices = 2, kOutputs = 192, kDepth = 48, kTile = 12, kPitch = 96, kBiasAt = 73728,
      kInputAt = 75264, kResultsAt = 333312;
  static constexpr bool kDirect = true, kStreams = false;
};
}  // namespace

extern "C" int ksparse_f32_1_192_48_2_avx512(const void* parameters, int alone) {
  return kronop::ksparse_along_batch<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
