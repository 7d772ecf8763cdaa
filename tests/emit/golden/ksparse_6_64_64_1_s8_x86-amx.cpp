// one Kronecker-sparse factor: on tiles along the outputs, 128 rows by 6 blocks by 64 outputs by 1 slices
#include "kronop_x86/ksparse_amx.hpp"

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
  static constexpr int kA = 6;
  static constexpr int kB = 64;
  static constexpr int kC = 64;
  static constexpr int kD = 1;
  static constexpr int kRowTile = 128;
  static constexpr int kBlocks = 6;
  static constexpr int kSlices = 1;
  static constexpr int kOutputs = 64;
  static constexpr int kDepth = 64;
  static constexpr int kTile = 16;
  static constexpr int kPitch = 32;
  static constexpr int kBiasAt = 24576;
  static constexpr int kInputAt = 26112;
  static constexpr int kResultsAt = 28160;
};
}  // namespace

extern "C" int ksparse_s8_6_64_64_1_amx(const void* parameters, int alone) {
  return kronop::ksparse_tiles_along_outputs<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
