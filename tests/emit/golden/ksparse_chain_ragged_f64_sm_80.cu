// I_2 x dense(20, 16) x I_3, batch_first, tiles of 3 lanes x 32 x 32 x 16, 1 stages, 3 x 2 x 1 x 1 warps of 16 x 32
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Epilogue {
  using Compute = double;
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
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 192;
  static constexpr int kBlocks = 2;
  static constexpr int kStages = 1;
  static constexpr int kLanes = 3;
  static constexpr int kTileM = 32;
  static constexpr int kTileN = 32;
  static constexpr int kTileK = 16;
  static constexpr int kWarpLanes = 1;
  static constexpr int kWarpM = 1;
  static constexpr int kWarpN = 4;
  static constexpr int kWarpsLanes = 3;
  static constexpr int kWarpsM = 2;
  static constexpr int kWarpsN = 1;
  static constexpr int kWarpsK = 1;
  static constexpr bool kSplit = false;
  static constexpr int kContracted = 16;
  static constexpr int kProduced = 20;
  static constexpr int kXOrder = 2;
  static constexpr int kWOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 2;
  static constexpr int kWVector = 2;
  static constexpr bool kXPairs = false;
  static constexpr bool kWPairs = false;
  static constexpr int kYVector = 2;
  static constexpr int kXPitch = 52;
  static constexpr int kWPitch = 52;
  static constexpr int kYPitch = 100;
  static constexpr int kTileBytesAt = 768;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f64_2_20_16_3_batch_first_f64_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}

// (4, 16, 10, 3) then (1, 9, 24, 8), batch_first, [3 lanes x 32 x 16 x 16, 2 stages, 3 x 2 x 1 x 1 warps of 16 x 16] then [2 lanes x 32 x 48 x 32, 2 stages, 2 x 1 x 3 x 1 warps of 32 x 16], 2 stages
#include "kronop/chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters) == 368);

struct Epilogue {
  using Compute = double;
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
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 192;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 2;
  static constexpr bool kResident = false;
  static constexpr int kTileM = 32;
  static constexpr bool kSplit = false;
  static constexpr int kParts = 1;
  static constexpr int kCommonLanes = 1;
  static constexpr int kPartLanes = 1;
  static constexpr int kXOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 2;
  static constexpr int kXPitch = 52;
  static constexpr int kMiddlePitch = 40;
  static constexpr int kYPitch = 98;
  static constexpr int kPairGroups[] = {4, 1};
  static constexpr int kPairAllLanes[] = {3, 8};
  static constexpr int kPairContracted[] = {10, 24};
  static constexpr int kPairProduced[] = {16, 9};
  static constexpr int kPairLanes[] = {3, 2};
  static constexpr int kPairTileN[] = {16, 48};
  static constexpr int kPairTileK[] = {16, 32};
  static constexpr int kPairWarpLanes[] = {1, 1};
  static constexpr int kPairWarpM[] = {1, 2};
  static constexpr int kPairWarpN[] = {2, 2};
  static constexpr int kPairWarpsLanes[] = {3, 2};
  static constexpr int kPairWarpsM[] = {2, 1};
  static constexpr int kPairWarpsN[] = {1, 3};
  static constexpr int kPairWOrder[] = {2, 2};
  static constexpr int kPairWVector[] = {2, 2};
  static constexpr int kPairWPitch[] = {52, 68};
  static constexpr int kMiddleAt = 768;
  static constexpr int kWeightsAt = 82688;
  static constexpr int kRingAt = 82688;
  static constexpr int kSlot = 3264;
  static constexpr int kResultsAt = 134912;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f64_4_16_10_3_then_1_9_24_8_batch_first_f64_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
