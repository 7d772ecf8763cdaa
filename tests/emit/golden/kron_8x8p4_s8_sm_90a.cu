// digits 0 to 3 of 4 (8x8p4), tiles of 1 x 4096 x 1 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<long long, 4>;
static_assert(sizeof(Parameters) == 568);

struct Step {
  using Input = kronop::int8_t;
  using Factor = kronop::int8_t;
  using Output = kronop::int32_t;
  using Accumulator = kronop::int32_t;
  struct Epilogue : kronop::Scaling<kronop::int32_t> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 7, kExchange = 0, kXVector = 1, kYVector = 1,
      kXDigit = 1, kYDigit = 1, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2, 3, 4},
      kFactorContracted[] = {8, 8, 8, 8}, kFactorProduced[] = {8, 8, 8, 8}, kCluster = 1,
      kOffsetBytes = 32, kRows = 1, kColumns = 1, kContracted[] = {8, 8, 8, 8},
      kProduced[] = {8, 8, 8, 8}, kStride[] = {584, 72, 8, 1}, kRowStride = 4672,
      kFactorBytesAt[] = {64, 192, 320, 448}, kBuffers = 1, kTileBytesAt = 576,
      kPhaseDigit[] = {3, 2, 1, 0}, kPhaseOther[] = {-1, -1, -1, -1}, kPhaseLanes[] = {4, 4, 4, 4},
      kPhaseWgmma[] = {0, 0, 0, 0}, kPhaseNeighbours[] = {0, 1, 1, 1},
      kPhaseAxis[] = {0, 3, 6, 8, 10}, kAxisExtent[] = {8, 8, 8, 8, 8, 8, 8, 64, 8, 64},
      kAxisShared[] = {584, 72, 8, 584, 72, 1, 584, 1, 72, 1},
      kAxisRow[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, kAxisDigit[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
      kAxisColumn[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = false, kHalf = false, kStagedIn = true,
      kStagedOut = true, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_s8_8x8p4_mma_r_d0of4_s0of1_s32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
