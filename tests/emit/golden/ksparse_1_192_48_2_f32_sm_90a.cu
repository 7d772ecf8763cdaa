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
