// one Kronecker-sparse factor: lanes along the batch, tiles of 12 by 2 vectors, 448 rows by 1 blocks by 192 outputs by 2 slices, 48 contraction steps at once
#include "kronop_x86/ksparse.hpp"

using Parameters = kronop::KSparseParameters<2, double>;
static_assert(sizeof(Parameters) == 200);

namespace {
struct Epilogue {
  using Compute = float;
  Compute alpha, beta;
  template <class Scalar>
  KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : alpha(Compute(scalars[0])), beta(Compute(scalars[1])) {}
  KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
    namespace math = kronop::math;
    const Compute v0 = alpha * accumulator;
    const Compute v1 = beta * source;
    const Compute v2 = v0 + v1;
    const Compute v3 = v2 + bias;
    return v3;
  }
};

struct Step {
  using Element = float;
  using Output = float;
  using Compute = float;
  using Epilogue = ::Epilogue;
  static constexpr int kWidth = 16;
  static constexpr int kVectors = 2;
  static constexpr int kUnroll = 1;
  static constexpr bool kSaturate = false;
  static constexpr bool kDirect = true;
  static constexpr bool kStreams = false;
  static constexpr int kA = 1;
  static constexpr int kB = 192;
  static constexpr int kC = 48;
  static constexpr int kD = 2;
  static constexpr int kRowTile = 448;
  static constexpr int kBlocks = 1;
  static constexpr int kSlices = 2;
  static constexpr int kOutputs = 192;
  static constexpr int kDepth = 48;
  static constexpr int kTile = 12;
  static constexpr int kPitch = 96;
  static constexpr int kBiasAt = 73728;
  static constexpr int kInputAt = 75264;
  static constexpr int kResultsAt = 333312;
};
}  // namespace

extern "C" int ksparse_f32_1_192_48_2_avx512(const void* parameters, int alone) {
  return kronop::ksparse_along_batch<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
