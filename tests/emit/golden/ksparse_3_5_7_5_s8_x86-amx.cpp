// one Kronecker-sparse factor: lanes along the batch, tiles of 5 by 2 vectors, 512 rows by 3 blocks by 5 outputs by 5 slices, 7 contraction steps at once
#include "kronop_x86/ksparse.hpp"

using Parameters = kronop::KSparseParameters<2, long long>;
static_assert(sizeof(Parameters) == 200);

namespace {
struct Epilogue {
  using Compute = kronop::int32_t;
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
  using Element = kronop::int8_t;
  using Output = kronop::int32_t;
  using Compute = kronop::int32_t;
  using Epilogue = ::Epilogue;
  static constexpr int kWidth = 16;
  static constexpr int kVectors = 2;
  static constexpr int kUnroll = 1;
  static constexpr bool kSaturate = false;
  static constexpr bool kDirect = true;
  static constexpr bool kStreams = false;
  static constexpr int kA = 3;
  static constexpr int kB = 5;
  static constexpr int kC = 7;
  static constexpr int kD = 5;
  static constexpr int kRowTile = 512;
  static constexpr int kBlocks = 3;
  static constexpr int kSlices = 5;
  static constexpr int kOutputs = 5;
  static constexpr int kDepth = 7;
  static constexpr int kTile = 5;
  static constexpr int kPitch = 160;
  static constexpr int kBiasAt = 2112;
  static constexpr int kInputAt = 2432;
  static constexpr int kResultsAt = 74112;
};
}  // namespace

extern "C" int ksparse_s8_3_5_7_5_amx(const void* parameters, int alone) {
  return kronop::ksparse_along_batch<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
