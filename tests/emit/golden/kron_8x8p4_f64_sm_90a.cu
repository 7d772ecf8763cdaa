// digits 0 to 3 of 4 (8x8p4), tiles of 1 x 4096 x 1 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 4>;
static_assert(sizeof(Parameters) == 568);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  struct Epilogue : kronop::Scaling<double> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 128, kBlocks = 4, kExchange = 0, kXVector = 1, kYVector = 1,
      kXDigit = 1, kYDigit = 1, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2, 3, 4},
      kFactorContracted[] = {8, 8, 8, 8}, kFactorProduced[] = {8, 8, 8, 8}, kCluster = 1,
      kOffsetBytes = 32, kRows = 1, kColumns = 1, kContracted[] = {8, 8, 8, 8},
      kProduced[] = {8, 8, 8, 8}, kStride[] = {548, 68, 8, 1}, kRowStride = 4384,
      kFactorBytesAt[] = {96, 608, 1120, 1632}, kBuffers = 1, kTileBytesAt = 2656,
      kPhaseDigit[] = {3, 1, 0}, kPhaseOther[] = {2, -1, -1}, kPhaseLanes[] = {4, 2, 2},
      kPhaseWgmma[] = {0, 0, 0}, kPhaseNeighbours[] = {0, 1, 1}, kPhaseAxis[] = {0, 2, 4, 6},
      kAxisExtent[] = {8, 8, 8, 64, 8, 64}, kAxisShared[] = {548, 68, 548, 1, 68, 1},
      kAxisRow[] = {0, 0, 0, 0, 0, 0}, kAxisDigit[] = {512, 64, 0, 0, 64, 1},
      kAxisColumn[] = {0, 0, 0, 0, 0, 0};
  static constexpr bool kAhead = true, kSplit = false, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f64_8x8p4_mma_r_d0of4_s0of1_f64_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
