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
pack_ksparse_f32_6_64_64_1_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_6 x dense(64, 64) x I_1, batch_first, tiles of 1 lanes x 128 x 64 x 32, 5 stages, 2 teams
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
      kTeamsAlongM = 2, kTeamsAlongLanes = 1, kTeamsAlongN = 1, kPartM = 16, kPartN = 64, kKept = 1,
      kContracted = 64, kProduced = 64, kPlane = 4096, kXOrder = 0, kYOrder = 0, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 40, kYPitch = 72, kXSize = 5120,
      kWRoom = 4096, kResultsAt = 184320, kBarriersAt = 221696, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_6_64_64_1_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}
