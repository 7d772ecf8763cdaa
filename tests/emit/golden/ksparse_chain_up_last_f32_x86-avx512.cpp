// 2 Kronecker-sparse factors, 96 rows at once: lanes along the batch, tiles of 8 by 3 vectors, 480 rows by 1 blocks by 64 outputs by 1 slices, 64 contraction steps at once; lanes along the batch, tiles of 8 by 3 vectors, 336 rows by 1 blocks by 256 outputs by 1 slices, 192 contraction steps at once
#include "kronop_x86/ksparse_chain.hpp"

using Parameters = kronop::KSparseChainParameters<2, 2, double>;
static_assert(sizeof(Parameters{.x = {}, .weights = {}, .z = {}, .bias = {}, .y = {}, .workspace =
    {}, .rows = {}, .threads = {}, .stream = {}, .ahead = {}, .x_strides = {}, .z_strides = {},
    .y_strides = {}, .weight_strides = {}, .bias_stride = {}, .slice = {}, .scalars = {}}) == 232);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::weights) == 16 &&
    sizeof(Parameters::z) == 8 && sizeof(Parameters::bias) == 8 && sizeof(Parameters::y) == 8 &&
    sizeof(Parameters::workspace) == 8 && sizeof(Parameters::rows) == 8 &&
    sizeof(Parameters::threads) == 8 && sizeof(Parameters::stream) == 8 && sizeof(Parameters::ahead)
    == 8 && sizeof(Parameters::x_strides) == 16 && sizeof(Parameters::z_strides) == 16 &&
    sizeof(Parameters::y_strides) == 16 && sizeof(Parameters::weight_strides) == 64 &&
    sizeof(Parameters::bias_stride) == 8 && sizeof(Parameters::slice) == 8 &&
    sizeof(Parameters::scalars) == 16);

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
  static constexpr int kFactors = 2;
  static constexpr int kLanes = 48;
  static constexpr int kChunk = 96;
  static constexpr int kPackedAt[] = {0, 99840};
  static constexpr int kSlicesAt = 1285632;
  static constexpr int kMiddleAt[] = {0};
  static constexpr int kMiddlePitch = 112;
  static constexpr int kWorkAt = 172032;
  static constexpr int kAlongOutputs[] = {0, 0};
  static constexpr int kWidth[] = {16, 16};
  static constexpr int kVectors[] = {3, 3};
  static constexpr int kUnroll[] = {1, 1};
  static constexpr int kSaturate[] = {0, 0};
  static constexpr int kDirect[] = {1, 1};
  static constexpr int kStreams[] = {0, 1};
  static constexpr int kA[] = {6, 1};
  static constexpr int kB[] = {64, 768};
  static constexpr int kC[] = {64, 192};
  static constexpr int kD[] = {1, 2};
  static constexpr int kRowTile[] = {480, 336};
  static constexpr int kBlocks[] = {1, 1};
  static constexpr int kSlices[] = {1, 1};
  static constexpr int kOutputs[] = {64, 256};
  static constexpr int kDepth[] = {64, 192};
  static constexpr int kTile[] = {8, 8};
  static constexpr int kPitch[] = {48, 48};
  static constexpr int kBiasAt[] = {16384, 196608};
  static constexpr int kInputAt[] = {16640, 197632};
  static constexpr int kResultsAt[] = {139520, 455680};
};
}  // namespace

extern "C" int ksparse_chain_f32_6_64_64_1_then_1_768_192_2_last_avx512(const void* parameters, int alone) {
  return kronop::ksparse_chain<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
