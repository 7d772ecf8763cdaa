// weights in the order of products, 147456 bytes for each section
#include "kronop/pack_images.cuh"

using Parameters = kronop::PackParameters;
static_assert(sizeof(Parameters) == 72);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128, kBlocks = 1, kLanes = 4, kPlanes = 2, kTileLanes = 1,
      kTileN = 48, kTileK = 64, kContracted = 192, kProduced = 48;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
pack_ksparse_f32_2_48_192_4_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::pack_images<Step>(parameters);
}

// I_2 x dense(48, 192) x I_4, batch_last, tiles of 1 lanes x 128 x 48 x 64, 3 stages, 2 teams
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
      kTeamsAlongM = 2, kTeamsAlongLanes = 1, kTeamsAlongN = 1, kPartM = 64, kPartN = 16, kKept = 3,
      kContracted = 192, kProduced = 48, kPlane = 9216, kXOrder = 1, kYOrder = 1, kXVector = 4,
      kWVector = 4, kWLanes = 1, kYVector = 4, kXPitch = 136, kYPitch = 68, kXSize = 8704,
      kWRoom = 6144, kResultsAt = 178176, kBarriersAt = 204672, kCopyRegisters = 72,
      kProductRegisters = 184, kStoreRegisters = 72;
  static constexpr bool kResident = false, kImages = true, kPacks = false, kDirect = false,
      kSplit = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_2_48_192_4_batch_last_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_warp_group<Step>(parameters);
}
