// (6, 64, 64, 1) then (1, 768, 192, 2), batch_last, [1 lanes x 64 x 64 x 64, 2 stages, 1 x 2 x 4 x 1 warps of 32 x 16] then [2 lanes x 64 x 256 x 32, 2 stages, 2 x 1 x 4 x 1 warps of 64 x 64], 2 stages
#include "kronop/chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters) == 368);

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
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 2;
  static constexpr bool kResident = false;
  static constexpr int kTileM = 64;
  static constexpr bool kSplit = false;
  static constexpr int kParts = 1;
  static constexpr int kCommonLanes = 1;
  static constexpr int kPartLanes = 1;
  static constexpr int kXOrder = 1;
  static constexpr int kYOrder = 1;
  static constexpr int kXVector = 8;
  static constexpr int kYVector = 8;
  static constexpr int kXPitch = 72;
  static constexpr int kMiddlePitch = 200;
  static constexpr int kYPitch = 68;
  static constexpr int kPairGroups[] = {6, 1};
  static constexpr int kPairAllLanes[] = {1, 2};
  static constexpr int kPairContracted[] = {64, 192};
  static constexpr int kPairProduced[] = {64, 768};
  static constexpr int kPairLanes[] = {1, 2};
  static constexpr int kPairTileN[] = {64, 256};
  static constexpr int kPairTileK[] = {64, 32};
  static constexpr int kPairWarpLanes[] = {1, 1};
  static constexpr int kPairWarpM[] = {2, 4};
  static constexpr int kPairWarpN[] = {2, 8};
  static constexpr int kPairWarpsLanes[] = {1, 2};
  static constexpr int kPairWarpsM[] = {2, 1};
  static constexpr int kPairWarpsN[] = {4, 4};
  static constexpr int kPairWOrder[] = {0, 2};
  static constexpr int kPairWVector[] = {8, 8};
  static constexpr int kPairWPitch[] = {72, 80};
  static constexpr int kMiddleAt = 1536;
  static constexpr int kWeightsAt = 52736;
  static constexpr int kRingAt = 52736;
  static constexpr int kSlot = 20480;
  static constexpr int kResultsAt = 134656;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f16_6_64_64_1_then_1_768_192_2_batch_last_f16_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
