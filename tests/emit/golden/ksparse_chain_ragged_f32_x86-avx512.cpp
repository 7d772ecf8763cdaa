// 3 Kronecker-sparse factors, 96 rows at once: lanes along the batch, tiles of 12 by 2 vectors,
// 512 rows by 2 blocks by 20 outputs by 3 slices, 16 contraction steps at once; lanes along the
// batch, tiles of 8 by 3 vectors, 480 rows by 1 blocks by 16 outputs by 1 slices, 10 contraction
// steps at once; lanes along the batch, tiles of 9 by 2 vectors, 288 rows by 1 blocks by 9
// outputs by 8 slices, 24 contraction steps at once
#include "ksparse_chain.hpp"

using Parameters = kronop::KSparseChainParameters<3, 2, double>;
static_assert(sizeof(Parameters) == 272);

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
  static constexpr int kFactors = 3, kLanes = 48, kChunk = 96, kPackedAt[] = {0, 8192, 16640},
      kSlicesAt = 23872, kMiddleAt[] = {0, 53760}, kMiddlePitch = 112, kWorkAt = 139776,
      kRowTile[] = {512, 480, 288}, kAlongOutputs[] = {0, 0, 0}, kWidth[] = {16, 16, 16},
      kVectors[] = {2, 3, 2}, kDirect[] = {1, 1, 1}, kStreams[] = {0, 0, 0}, kA[] = {2, 4, 1},
      kB[] = {20, 16, 9}, kC[] = {16, 10, 24}, kD[] = {3, 3, 8}, kBlocks[] = {2, 1, 1},
      kSlices[] = {3, 1, 8}, kOutputs[] = {20, 16, 9}, kDepth[] = {16, 10, 24},
      kTile[] = {12, 8, 9}, kPitch[] = {96, 48, 288}, kBiasAt[] = {7680, 640, 6912},
      kInputAt[] = {8192, 704, 7232}, kResultsAt[] = {106496, 19904, 256064};
};
}  // namespace

extern "C" int ksparse_chain_f32_2_20_16_3_then_4_16_10_3_then_1_9_24_8_avx512(const void* parameters, int alone) {
  return kronop::ksparse_chain<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
