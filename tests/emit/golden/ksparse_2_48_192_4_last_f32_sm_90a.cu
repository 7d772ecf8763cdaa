// weights in the order of products, 147456 bytes for each group
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
  static constexpr int kLanes = 4;
  static constexpr int kPlanes = 2;
  static constexpr int kTileLanes = 1;
  static constexpr int kTileN = 48;
  static constexpr int kTileK = 64;
  static constexpr int kContracted = 192;
  static constexpr int kProduced = 48;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_2_48_192_4_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_2 x dense(48, 192) x I_4, batch_last, tiles of 1 lanes x 128 x 48 x 64, 3 stages, 2 teams along rows, W in images
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
  static constexpr int kStages = 3;
  static constexpr bool kResident = false;
  static constexpr bool kImages = true;
  static constexpr bool kPacks = false;
  static constexpr bool kDirect = false;
  static constexpr bool kSplit = true;
  static constexpr int kLanes = 1;
  static constexpr int kTileM = 128;
  static constexpr int kTileN = 48;
  static constexpr int kTileK = 64;
  static constexpr int kTogether = 1;
  static constexpr int kChainSlabs = 4;
  static constexpr int kChainN = 48;
  static constexpr int kTeamM = 1;
  static constexpr int kGroupsM = 2;
  static constexpr int kGroupsLanes = 1;
  static constexpr int kGroupsN = 1;
  static constexpr int kPartM = 64;
  static constexpr int kPartN = 16;
  static constexpr int kKept = 3;
  static constexpr int kContracted = 192;
  static constexpr int kProduced = 48;
  static constexpr int kPlane = 9216;
  static constexpr int kXOrder = 1;
  static constexpr int kYOrder = 1;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 1;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 136;
  static constexpr int kYPitch = 68;
  static constexpr int kXSize = 8704;
  static constexpr int kWRoom = 6144;
  static constexpr int kResultsAt = 178176;
  static constexpr int kBarriersAt = 204672;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_48_192_4_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}
