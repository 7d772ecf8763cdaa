// one Kronecker-sparse factor: on tiles along the outputs, 128 rows by 6 blocks by 64 outputs by
// 1 slices
#include "ksparse_amx.hpp"

using Parameters = kronop::KSparseParameters<2, long long>;
static_assert(sizeof(Parameters) == 200);

namespace {
struct Step {
  using Element = kronop::int8_t;
  using Output = kronop::int32_t;
  using Compute = kronop::int32_t;
  struct Epilogue : kronop::Scaling<kronop::int32_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kWidth = 16, kVectors = 2, kA = 6, kB = 64, kC = 64, kD = 1, kBlocks = 6,
      kSlices = 1, kOutputs = 64, kDepth = 64, kTile = 16, kPitch = 32, kBiasAt = 24576,
      kInputAt = 26112, kResultsAt = 28160;
  static constexpr bool kDirect = true, kStreams = false;
};
}  // namespace

extern "C" int ksparse_s8_6_64_64_1_amx(const void* parameters, int alone) {
  return kronop::ksparse_tiles_along_outputs<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
