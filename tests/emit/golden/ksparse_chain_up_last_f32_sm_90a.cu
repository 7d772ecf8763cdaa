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
pack_ksparse_f32_6_64_64_1_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_6 x dense(64, 64) x I_1, batch_last, tiles of 1 lanes x 128 x 64 x 32, 5 stages, 2 teams along rows, W in images
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
  static constexpr int kPartM = 64;
  static constexpr int kPartN = 16;
  static constexpr int kKept = 4;
  static constexpr int kContracted = 64;
  static constexpr int kProduced = 64;
  static constexpr int kPlane = 4096;
  static constexpr int kXOrder = 1;
  static constexpr int kYOrder = 1;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 1;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 136;
  static constexpr int kYPitch = 68;
  static constexpr int kXSize = 4352;
  static constexpr int kWRoom = 4096;
  static constexpr int kResultsAt = 168960;
  static constexpr int kBarriersAt = 204288;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_6_64_64_1_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}

// weights in the order of products, 1179648 bytes for each group
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
  static constexpr int kTileLanes = 1;
  static constexpr int kTileN = 128;
  static constexpr int kTileK = 32;
  static constexpr int kContracted = 192;
  static constexpr int kProduced = 768;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_1_768_192_2_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_1 x dense(768, 192) x I_2, batch_last, tiles of 1 lanes x 128 x 128 x 32, 3 stages, 2 teams along rows, W in images
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
  static constexpr int kTileN = 128;
  static constexpr int kTileK = 32;
  static constexpr int kTogether = 1;
  static constexpr int kChainSlabs = 4;
  static constexpr int kChainN = 64;
  static constexpr int kTeamM = 1;
  static constexpr int kGroupsM = 2;
  static constexpr int kGroupsLanes = 1;
  static constexpr int kGroupsN = 1;
  static constexpr int kPartM = 64;
  static constexpr int kPartN = 16;
  static constexpr int kKept = 8;
  static constexpr int kContracted = 192;
  static constexpr int kProduced = 768;
  static constexpr int kPlane = 147456;
  static constexpr int kXOrder = 1;
  static constexpr int kYOrder = 1;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr int kWLanes = 1;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 136;
  static constexpr int kYPitch = 68;
  static constexpr int kXSize = 4352;
  static constexpr int kWRoom = 8192;
  static constexpr int kResultsAt = 150528;
  static constexpr int kBarriersAt = 221184;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kProductRegisters = 184;
  static constexpr int kStoreRegisters = 72;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_1_768_192_2_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_group<Step>(parameters);
}
