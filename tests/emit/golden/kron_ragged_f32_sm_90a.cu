// digits 0 to 2 of 3 (2x3_5x2_6x4), tiles of 364 x 60 x 1 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 3>;
static_assert(sizeof(Parameters) == 512);

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
  static constexpr int kThreads = 128, kBlocks = 3, kExchange = 0, kXVector = 1, kYVector = 1,
      kXDigit = 1, kYDigit = 1, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 2, 3},
      kFactorContracted[] = {2, 5, 6}, kFactorProduced[] = {3, 2, 4}, kCluster = 1,
      kOffsetBytes = 8736, kRows = 364, kColumns = 1, kContracted[] = {10, 6}, kProduced[] = {6, 4},
      kStride[] = {6, 1}, kRowStride = 60, kFactorBytesAt[] = {17472, 18496}, kBuffers = 1,
      kTileBytesAt = 19008, kPhaseDigit[] = {1}, kPhaseOther[] = {0}, kPhaseLanes[] = {4},
      kPhaseWgmma[] = {0}, kPhaseNeighbours[] = {0}, kPhaseAxis[] = {0, 1}, kAxisExtent[] = {364},
      kAxisShared[] = {60}, kAxisRow[] = {1}, kAxisDigit[] = {0}, kAxisColumn[] = {0};
  static constexpr bool kAhead = true, kSplit = true, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_2x3_5x2_6x4_mma_r_d0of3_s0of1_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
