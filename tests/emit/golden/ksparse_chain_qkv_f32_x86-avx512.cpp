// one Kronecker-sparse factor: lanes along the outputs, tiles of 8 by 3 vectors, 96 rows by 2
// blocks by 48 outputs by 1 slices, 192 contraction steps at once
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
  static constexpr int kWidth = 16, kVectors = 3, kA = 2, kB = 48, kC = 192, kD = 1, kBlocks = 2,
      kSlices = 1, kOutputs = 48, kDepth = 192, kTile = 8, kPitch = 208, kBiasAt = 73728,
      kInputAt = 74112, kResultsAt = 153984;
  static constexpr bool kDirect = true, kStreams = true;
};
}  // namespace

extern "C" int ksparse_f32_2_48_192_1_avx512(const void* parameters, int alone) {
  return kronop::ksparse_along_outputs<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}

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
