// weights in the order of products, 36864 bytes for each section
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
      kTileN = 48, kTileK = 64, kContracted = 192, kProduced = 48;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_2_48_192_1_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_2 x dense(48, 192) x I_1, batch_first, tiles of 1 lanes x 128 x 48 x 64, 3 stages, 2 teams
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
      kTileN = 48, kTileK = 64, kTogether = 1, kChainSlabs = 4, kChainN = 48, kTeamM = 1,
      kTeamsAlongM = 2, kTeamsAlongLanes = 1, kTeamsAlongN = 1, kPartM = 16, kPartN = 48, kKept = 1,
      kContracted = 192, kProduced = 48, kPlane = 9216, kXOrder = 0, kYOrder = 0, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 72, kYPitch = 56, kXSize = 9216,
      kWRoom = 6144, kResultsAt = 184320, kBarriersAt = 213376, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_48_192_1_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}

// weights in the order of products, 73728 bytes for each section
#include "kronop/pack_images.cuh"

using Parameters = kronop::PackParameters;
static_assert(sizeof(Parameters) == 72);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 1, kLanes = 2, kPlanes = 2, kTileLanes = 2,
      kTileN = 96, kTileK = 16, kContracted = 48, kProduced = 192;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_1_192_48_2_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_1 x dense(192, 48) x I_2, batch_first, tiles of 2 lanes x 64 x 96 x 16, 5 stages, 2 teams
// along outputs, W in images
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
  static constexpr int kThreads = 512, kBlocks = 1, kStages = 5, kLanes = 2, kTileM = 64,
      kTileN = 96, kTileK = 16, kTogether = 1, kChainSlabs = 1, kChainN = 48, kTeamM = 1,
      kTeamsAlongM = 1, kTeamsAlongLanes = 1, kTeamsAlongN = 2, kPartM = 16, kPartN = 24, kKept = 2,
      kContracted = 48, kProduced = 192, kPlane = 9216, kXOrder = 2, kYOrder = 2, kXVector = 4,
      kWVector = 4, kWLanes = 2, kYVector = 4, kXPitch = 40, kYPitch = 48, kXSize = 2560,
      kWRoom = 6144, kResultsAt = 174080, kBarriersAt = 224768, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_1_192_48_2_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}
