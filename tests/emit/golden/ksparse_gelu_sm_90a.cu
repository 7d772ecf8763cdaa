// weights in the order of products, 16384 bytes for each group
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
  static constexpr int kLanes = 1;
  static constexpr int kPlanes = 2;
  static constexpr int kTileLanes = 1;
  static constexpr int kTileN = 64;
  static constexpr int kTileK = 32;
  static constexpr int kContracted = 64;
  static constexpr int kProduced = 64;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_6_64_64_1_batch_first_f32_gelu_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_6 x dense(64, 64) x I_1, batch_first, tiles of 1 lanes x 128 x 64 x 32, 5 stages, 2 teams along rows, W in images
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
    const Compute v4 = v3 * Compute(0.5);
    const Compute v5 = v3 * Compute(0.7071067811865476);
    const Compute v6 = math::erf(v5);
    const Compute v7 = v6 + Compute(1.0);
    const Compute v8 = v4 * v7;
    return v8;
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
  static constexpr int kLanes = 1;
  static constexpr int kTileM = 128;
  static constexpr int kTileN = 64;
  static constexpr int kTileK = 32;
  static constexpr int kTogether = 1;
  static constexpr int kChainSlabs = 4;
  static constexpr int kChainN = 64;
  static constexpr int kTeamM = 1;
  static constexpr int kGroupsM = 2;
  static constexpr int kGroupsLanes = 1;
  static constexpr int kGroupsN = 1;
  static constexpr int kPartM = 16;
  static constexpr int kPartN = 64;
  static constexpr int kKept = 1;
  static constexpr int kContracted = 64;
  static constexpr int kProduced = 64;
  static constexpr int kPlane = 4096;
  static constexpr int kXOrder = 0;
  static constexpr int kYOrder = 0;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 1;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 40;
  static constexpr int kYPitch = 72;
  static constexpr int kXSize = 5120;
  static constexpr int kWRoom = 4096;
  static constexpr int kResultsAt = 184320;
  static constexpr int kBarriersAt = 221696;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_6_64_64_1_batch_first_f32_gelu_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}
