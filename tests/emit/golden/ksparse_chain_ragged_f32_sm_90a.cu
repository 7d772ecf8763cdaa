// I_2 x dense(20, 16) x I_3, batch_first, tiles of 3 lanes x 64 x 32 x 16, 8 stages, 2 teams along outputs, W stays
#include "kronop/contract_group.cuh"

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
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 512;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 8;
  static constexpr bool kResident = true;
  static constexpr bool kImages = false;
  static constexpr bool kPacks = true;
  static constexpr bool kDirect = false;
  static constexpr bool kSplit = true;
  static constexpr int kLanes = 3;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 32;
  static constexpr int kTileK = 16;
  static constexpr int kTogether = 1;
  static constexpr int kChainSlabs = 1;
  static constexpr int kChainN = 16;
  static constexpr int kTeamM = 1;
  static constexpr int kGroupsM = 1;
  static constexpr int kGroupsLanes = 1;
  static constexpr int kGroupsN = 2;
  static constexpr int kPartM = 16;
  static constexpr int kPartN = 16;
  static constexpr int kKept = 1;
  static constexpr int kContracted = 16;
  static constexpr int kProduced = 20;
  static constexpr int kPlane = 320;
  static constexpr int kXOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 1;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 56;
  static constexpr int kYPitch = 56;
  static constexpr int kXSize = 3584;
  static constexpr int kWRoom = 0;
  static constexpr int kResultsAt = 126976;
  static constexpr int kBarriersAt = 156416;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_20_16_3_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}

// (4, 16, 10, 3) then (1, 9, 24, 8), batch_first, [3 lanes x 64 x 16 x 16, 2 stages, 1 x 4 x 1 x 1 warps of 16 x 16] then [8 lanes x 64 x 16 x 16, 2 stages, 4 x 1 x 1 x 1 warps of 64 x 16], 2 stages, weights resident
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
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 2;
  static constexpr bool kResident = true;
  static constexpr int kTileM = 64;
  static constexpr bool kSplit = true;
  static constexpr int kParts = 1;
  static constexpr int kCommonLanes = 1;
  static constexpr int kPartLanes = 1;
  static constexpr int kXOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 56;
  static constexpr int kMiddlePitch = 40;
  static constexpr int kYPitch = 132;
  static constexpr int kPairGroups[] = {4, 1};
  static constexpr int kPairAllLanes[] = {3, 8};
  static constexpr int kPairContracted[] = {10, 24};
  static constexpr int kPairProduced[] = {16, 9};
  static constexpr int kPairLanes[] = {3, 8};
  static constexpr int kPairTileN[] = {16, 16};
  static constexpr int kPairTileK[] = {16, 16};
  static constexpr int kPairWarpLanes[] = {3, 2};
  static constexpr int kPairWarpM[] = {1, 4};
  static constexpr int kPairWarpN[] = {2, 2};
  static constexpr int kPairWarpsLanes[] = {1, 4};
  static constexpr int kPairWarpsM[] = {4, 1};
  static constexpr int kPairWarpsN[] = {1, 1};
  static constexpr int kPairWOrder[] = {2, 2};
  static constexpr int kPairWVector[] = {2, 4};
  static constexpr int kPairWPitch[] = {56, 128};
  static constexpr int kMiddleAt = 1536;
  static constexpr int kWeightsAt = 83456;
  static constexpr int kRingAt = 114176;
  static constexpr int kSlot = 3584;
  static constexpr int kResultsAt = 142848;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f32_4_16_10_3_then_1_9_24_8_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
