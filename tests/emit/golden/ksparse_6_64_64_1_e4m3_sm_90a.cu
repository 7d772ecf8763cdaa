// I_6 x dense(64, 64) x I_1, batch_first, tiles of 1 lanes x 256 x 64 x 32, 2 stages, 1 x 4 x 1 x 1 warps of 64 x 64
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

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
  using Input = kronop::float_e4m3_t;
  using Factor = kronop::float_e4m3_t;
  using Output = kronop::bfloat16_t;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 2;
  static constexpr int kStages = 2;
  static constexpr int kLanes = 1;
  static constexpr int kTileM = 256;
  static constexpr int kTileN = 64;
  static constexpr int kTileK = 32;
  static constexpr int kWarpLanes = 1;
  static constexpr int kWarpM = 4;
  static constexpr int kWarpN = 8;
  static constexpr int kWarpsLanes = 1;
  static constexpr int kWarpsM = 4;
  static constexpr int kWarpsN = 1;
  static constexpr int kWarpsK = 1;
  static constexpr bool kSplit = false;
  static constexpr int kContracted = 64;
  static constexpr int kProduced = 64;
  static constexpr int kXOrder = 0;
  static constexpr int kWOrder = 0;
  static constexpr int kYOrder = 0;
  static constexpr int kXVector = 16;
  static constexpr int kWVector = 16;
  static constexpr bool kXPairs = false;
  static constexpr bool kWPairs = false;
  static constexpr int kYVector = 8;
  static constexpr int kXPitch = 48;
  static constexpr int kWPitch = 48;
  static constexpr int kYPitch = 72;
  static constexpr int kTileBytesAt = 6144;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_e4m3_6_64_64_1_batch_first_bf16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
