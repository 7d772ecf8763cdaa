// digits 0 to 3 of 4 (8x8p4), tiles of 1 x 4096 x 1 in shared memory
#include "kron_tile.cuh"

using Parameters = kronop::KronTileParameters<long long, 4>;
static_assert(sizeof(Parameters) == 568);

struct Step {
  using Input = kronop::int64_t;
  using Factor = kronop::int64_t;
  using Output = kronop::int64_t;
  using Accumulator = kronop::int64_t;
  struct Epilogue : kronop::Scaling<kronop::int64_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 3, kXVector = 1, kYVector = 1, kPadShift = 4,
      kRows = 1, kColumns = 1, kContracted[] = {8, 8, 8, 8}, kProduced[] = {8, 8, 8, 8},
      kStride[] = {512, 64, 8, 1}, kRowStride = 4096, kFactorPitch[] = {8, 8, 8, 8},
      kFactorBytesAt = 32, kTileBytesAt = 2080, kChunk = 4, kPhaseFirst[] = {0, 1, 2, 3},
      kPhaseEnd[] = {1, 2, 3, 4}, kPhaseBlock[] = {8, 8, 8, 8}, kPhaseTogether[] = {0, 0, 0, 0},
      kPhaseAxis[] = {0, 1, 3, 5, 6}, kAxisExtent[] = {512, 8, 64, 64, 8, 512},
      kAxisStride[] = {1, 512, 1, 64, 1, 8};
  static constexpr bool kPadAdds = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_s64_8x8p4_tile_r_d0of4_s0of1_s64_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_tile<Step>(parameters);
}
