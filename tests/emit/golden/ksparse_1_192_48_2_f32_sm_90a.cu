// weights in the order of products, 73728 bytes for each group
#include "kronop/pack_images.cuh"

using Parameters = kronop::PackParameters;
static_assert(sizeof(Parameters) == 72);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 1;
  static constexpr int kLanes = 2;
  static constexpr int kPlanes = 2;
  static constexpr int kTileLanes = 2;
  static constexpr int kTileN = 96;
  static constexpr int kTileK = 16;
  static constexpr int kContracted = 48;
  static constexpr int kProduced = 192;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_1_192_48_2_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_1 x dense(192, 48) x I_2, batch_first, tiles of 2 lanes x 64 x 96 x 16, 5 stages, 2 teams along outputs, W in images
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
  static constexpr int kStages = 5;
  static constexpr bool kResident = false;
  static constexpr bool kImages = true;
  static constexpr bool kPacks = false;
  static constexpr bool kDirect = false;
  static constexpr bool kSplit = true;
  static constexpr int kLanes = 2;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 96;
  static constexpr int kTileK = 16;
  static constexpr int kTogether = 1;
  static constexpr int kChainSlabs = 1;
  static constexpr int kChainN = 48;
  static constexpr int kTeamM = 1;
  static constexpr int kGroupsM = 1;
  static constexpr int kGroupsLanes = 1;
  static constexpr int kGroupsN = 2;
  static constexpr int kPartM = 16;
  static constexpr int kPartN = 24;
  static constexpr int kKept = 2;
  static constexpr int kContracted = 48;
  static constexpr int kProduced = 192;
  static constexpr int kPlane = 9216;
  static constexpr int kXOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 2;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 40;
  static constexpr int kYPitch = 48;
  static constexpr int kXSize = 2560;
  static constexpr int kWRoom = 6144;
  static constexpr int kResultsAt = 174080;
  static constexpr int kBarriersAt = 224768;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_1_192_48_2_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}
