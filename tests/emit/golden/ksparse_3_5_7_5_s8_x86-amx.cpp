// one Kronecker-sparse factor: lanes along the batch, tiles of 5 by 2 vectors, 512 rows by 3
// blocks by 5 outputs by 5 slices, 7 contraction steps at once
#include "ksparse.hpp"

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
  static constexpr int kWidth = 16, kVectors = 2, kA = 3, kB = 5, kC = 7, kD = 5, kBlocks = 3,
      kSlices = 5, kOutputs = 5, kDepth = 7, kTile = 5, kPitch = 160, kBiasAt = 2112,
      kInputAt = 2432, kResultsAt = 74112;
  static constexpr bool kDirect = true, kStreams = false;
};
}  // namespace

extern "C" int ksparse_s8_3_5_7_5_amx(const void* parameters, int alone) {
  return kronop::ksparse_along_batch<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
