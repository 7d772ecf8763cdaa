// weights in the order of products, 16384 bytes for each section
#include "kronop/pack_images.cuh"

using Parameters = kronop::PackParameters;
static_assert(sizeof(Parameters) == 72);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 1, kLanes = 1, kPlanes = 2, kTileLanes = 1,
      kTileN = 64, kTileK = 32, kContracted = 64, kProduced = 64;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_6_64_64_1_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_6 x dense(64, 64) x I_1, batch_last, tiles of 1 lanes x 128 x 64 x 32, 5 stages, 2 teams
// along rows, W in images
#include "kronop/contract_warp_group.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 512, kBlocks = 1, kStages = 5, kLanes = 1, kTileM = 128,
      kTileN = 64, kTileK = 32, kTogether = 1, kChainSlabs = 4, kChainN = 64, kTeamM = 1,
      kTeamsAlongM = 2, kTeamsAlongLanes = 1, kTeamsAlongN = 1, kPartM = 64, kPartN = 16, kKept = 4,
      kContracted = 64, kProduced = 64, kPlane = 4096, kXOrder = 1, kYOrder = 1, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 136, kYPitch = 68, kXSize = 4352,
      kWRoom = 4096, kResultsAt = 168960, kBarriersAt = 204288, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_6_64_64_1_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}

// weights in the order of products, 1179648 bytes for each section
#include "kronop/pack_images.cuh"

using Parameters = kronop::PackParameters;
static_assert(sizeof(Parameters) == 72);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 1, kLanes = 2, kPlanes = 2, kTileLanes = 1,
      kTileN = 128, kTileK = 32, kContracted = 192, kProduced = 768;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_1_768_192_2_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_1 x dense(768, 192) x I_2, batch_last, tiles of 1 lanes x 128 x 128 x 32, 3 stages, 2 teams
// along rows, W in images
#include "kronop/contract_warp_group.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 512, kBlocks = 1, kStages = 3, kLanes = 1, kTileM = 128,
      kTileN = 128, kTileK = 32, kTogether = 1, kChainSlabs = 4, kChainN = 64, kTeamM = 1,
      kTeamsAlongM = 2, kTeamsAlongLanes = 1, kTeamsAlongN = 1, kPartM = 64, kPartN = 16, kKept = 8,
      kContracted = 192, kProduced = 768, kPlane = 147456, kXOrder = 1, kYOrder = 1, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 136, kYPitch = 68, kXSize = 4352,
      kWRoom = 8192, kResultsAt = 150528, kBarriersAt = 221184, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_1_768_192_2_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}
