// digits 0 to 3 of 4 (8x8p4), tiles of 2 x 4096 x 1 in shared memory
#include "kron_tile.cuh"

using Parameters = kronop::KronTileParameters<long long, 4>;
static_assert(sizeof(Parameters) == 568);

struct Step {
  using Input = kronop::int32_t;
  using Factor = kronop::int32_t;
  using Output = kronop::int32_t;
  using Accumulator = kronop::int32_t;
  struct Epilogue : kronop::Scaling<kronop::int32_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 3, kXVector = 1, kYVector = 1, kPadShift = 6,
      kRows = 2, kColumns = 1, kContracted[] = {8, 8, 8, 8}, kProduced[] = {8, 8, 8, 8},
      kStride[] = {512, 64, 8, 1}, kRowStride = 4096, kFactorPitch[] = {8, 8, 8, 8},
      kFactorBytesAt = 48, kTileBytesAt = 1072, kChunk = 8, kPhaseFirst[] = {0, 2},
      kPhaseEnd[] = {2, 4}, kPhaseBlock[] = {64, 64}, kPhaseTogether[] = {0, 0},
      kPhaseAxis[] = {0, 2, 3}, kAxisExtent[] = {2, 64, 128}, kAxisStride[] = {4096, 1, 64};
  static constexpr bool kPadAdds = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_s32_8x8p4_tile_r_d0of4_s0of1_s32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_tile<Step>(parameters);
}
