// one Kronecker-sparse factor: lanes along the outputs, tiles of 8 by 2 vectors, 96 rows by 6 blocks by 64 outputs by 1 slices, 64 contraction steps at once
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
    const Compute v4 = v3 * Compute(0.5);
    const Compute v5 = v3 * Compute(0.7071067811865476);
    const Compute v6 = math::erf(v5);
    const Compute v7 = v6 + Compute(1.0);
    const Compute v8 = v4 * v7;
    return v8;
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
  static constexpr bool kDirect = false;
  static constexpr bool kStreams = false;
  static constexpr int kA = 6;
  static constexpr int kB = 64;
  static constexpr int kC = 64;
  static constexpr int kD = 1;
  static constexpr int kRowTile = 96;
  static constexpr int kBlocks = 6;
  static constexpr int kSlices = 1;
  static constexpr int kOutputs = 64;
  static constexpr int kDepth = 64;
  static constexpr int kTile = 8;
  static constexpr int kPitch = 80;
  static constexpr int kBiasAt = 98304;
  static constexpr int kInputAt = 99840;
  static constexpr int kResultsAt = 130560;
};
}  // namespace

extern "C" int ksparse_f32_6_64_64_1_avx512(const void* parameters, int alone) {
  return kronop::ksparse_along_outputs<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
