// digits 0 to 3 of 4 (8x8p4), tiles of 4 x 4096 x 1 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 4>;
static_assert(sizeof(Parameters) == 568);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 3, kExchange = 0, kXVector = 1, kYVector = 1,
      kXDigit = 1, kYDigit = 1, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2, 3, 4},
      kFactorContracted[] = {8, 8, 8, 8}, kFactorProduced[] = {8, 8, 8, 8}, kCluster = 1,
      kOffsetBytes = 96, kRows = 4, kColumns = 1, kContracted[] = {8, 8, 8, 8},
      kProduced[] = {8, 8, 8, 8}, kStride[] = {580, 72, 8, 1}, kRowStride = 4640,
      kFactorBytesAt[] = {192, 448, 960, 1216}, kBuffers = 1, kTileBytesAt = 1728,
      kPhaseDigit[] = {3, 1}, kPhaseOther[] = {2, 0}, kPhaseLanes[] = {8, 4},
      kPhaseWgmma[] = {0, 0}, kPhaseNeighbours[] = {0, 1}, kPhaseAxis[] = {0, 3, 5},
      kAxisExtent[] = {4, 8, 8, 4, 64}, kAxisShared[] = {4640, 580, 72, 4640, 1},
      kAxisRow[] = {1, 0, 0, 1, 0}, kAxisDigit[] = {0, 512, 64, 0, 1},
      kAxisColumn[] = {0, 0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = false, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f16_8x8p4_mma_r_d0of4_s0of1_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
