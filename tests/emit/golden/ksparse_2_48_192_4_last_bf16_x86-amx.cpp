// one Kronecker-sparse factor: on tiles along the batch, 512 rows by 1 blocks by 48 outputs by 1
// slices
#include "ksparse_amx.hpp"

using Parameters = kronop::KSparseParameters<2, double>;
static_assert(sizeof(Parameters) == 200);

namespace {
struct Step {
  using Element = kronop::bfloat16_t;
  using Output = kronop::bfloat16_t;
  using Compute = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kWidth = 16, kVectors = 2, kA = 2, kB = 48, kC = 192, kD = 4, kBlocks = 1,
      kSlices = 1, kOutputs = 48, kDepth = 192, kTile = 16, kPitch = 32, kBiasAt = 24576,
      kInputAt = 24768, kResultsAt = 221376;
  static constexpr bool kDirect = true, kStreams = false;
};
}  // namespace

extern "C" int ksparse_bf16_2_48_192_4_last_amx(const void* parameters, int alone) {
  return kronop::ksparse_tiles_along_batch<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
