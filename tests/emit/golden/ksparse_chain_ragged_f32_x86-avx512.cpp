// 3 Kronecker-sparse factors, 96 rows at once: lanes along the batch, tiles of 12 by 2 vectors, 512 rows by 2 blocks by 20 outputs by 3 slices, 16 contraction steps at once; lanes along the batch, tiles of 8 by 3 vectors, 480 rows by 1 blocks by 16 outputs by 1 slices, 10 contraction steps at once; lanes along the batch, tiles of 9 by 2 vectors, 288 rows by 1 blocks by 9 outputs by 8 slices, 24 contraction steps at once
#include "kronop_x86/ksparse_chain.hpp"

using Parameters = kronop::KSparseChainParameters<3, 2, double>;
static_assert(sizeof(Parameters) == 272);

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
  static constexpr int kFactors = 3;
  static constexpr int kLanes = 48;
  static constexpr int kChunk = 96;
  static constexpr int kPackedAt[] = {0, 8192, 16640};
  static constexpr int kSlicesAt = 23872;
  static constexpr int kMiddleAt[] = {0, 53760};
  static constexpr int kMiddlePitch = 112;
  static constexpr int kWorkAt = 139776;
  static constexpr int kAlongOutputs[] = {0, 0, 0};
  static constexpr int kWidth[] = {16, 16, 16};
  static constexpr int kVectors[] = {2, 3, 2};
  static constexpr int kUnroll[] = {1, 1, 1};
  static constexpr int kSaturate[] = {0, 0, 0};
  static constexpr int kDirect[] = {1, 1, 1};
  static constexpr int kStreams[] = {0, 0, 0};
  static constexpr int kA[] = {2, 4, 1};
  static constexpr int kB[] = {20, 16, 9};
  static constexpr int kC[] = {16, 10, 24};
  static constexpr int kD[] = {3, 3, 8};
  static constexpr int kRowTile[] = {512, 480, 288};
  static constexpr int kBlocks[] = {2, 1, 1};
  static constexpr int kSlices[] = {3, 1, 8};
  static constexpr int kOutputs[] = {20, 16, 9};
  static constexpr int kDepth[] = {16, 10, 24};
  static constexpr int kTile[] = {12, 8, 9};
  static constexpr int kPitch[] = {96, 48, 288};
  static constexpr int kBiasAt[] = {7680, 640, 6912};
  static constexpr int kInputAt[] = {8192, 704, 7232};
  static constexpr int kResultsAt[] = {106496, 19904, 256064};
};
}  // namespace

extern "C" int ksparse_chain_f32_2_20_16_3_then_4_16_10_3_then_1_9_24_8_avx512(const void* parameters, int alone) {
  return kronop::ksparse_chain<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
