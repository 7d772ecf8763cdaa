// digits 0 to 2 of 5 (8x8p3), tiles of 1 x 512 x 32 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 3>;
static_assert(sizeof(Parameters) == 512);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256, kBlocks = 2, kExchange = 0, kXVector = 4, kYVector = 4,
      kXDigit = 0, kYDigit = 0, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2, 3},
      kFactorContracted[] = {8, 8, 8}, kFactorProduced[] = {8, 8, 8}, kCluster = 1,
      kOffsetBytes = 32, kRows = 1, kColumns = 32, kContracted[] = {8, 8, 8},
      kProduced[] = {8, 8, 8}, kStride[] = {2632, 328, 40}, kRowStride = 21056,
      kFactorBytesAt[] = {64, 576, 1088}, kBuffers = 1, kTileBytesAt = 1600,
      kPhaseDigit[] = {2, 1, 0}, kPhaseOther[] = {-1, -1, -1}, kPhaseLanes[] = {4, 4, 4},
      kPhaseWgmma[] = {0, 0, 0}, kPhaseNeighbours[] = {1, 1, 1}, kPhaseAxis[] = {0, 3, 6, 9},
      kAxisExtent[] = {8, 8, 32, 8, 8, 32, 8, 8, 32},
      kAxisShared[] = {2632, 328, 1, 2632, 40, 1, 328, 40, 1},
      kAxisRow[] = {0, 0, 0, 0, 0, 0, 0, 0, 0}, kAxisDigit[] = {0, 0, 0, 0, 0, 0, 0, 0, 0},
      kAxisColumn[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = true,
      kStagedOut = true, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p3_mma_l_d0of5_s0of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digits 3 to 4 of 5 (8x8p2), tiles of 1 x 64 x 64 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 2>;
static_assert(sizeof(Parameters) == 456);

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
  static constexpr int kThreads = 128, kBlocks = 6, kExchange = 0, kXVector = 4, kYVector = 4,
      kXDigit = 0, kYDigit = 0, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2},
      kFactorContracted[] = {8, 8}, kFactorProduced[] = {8, 8}, kCluster = 1, kOffsetBytes = 32,
      kRows = 1, kColumns = 64, kContracted[] = {8, 8}, kProduced[] = {8, 8}, kStride[] = {584, 72},
      kRowStride = 4672, kFactorBytesAt[] = {64, 576}, kBuffers = 1, kTileBytesAt = 1088,
      kPhaseDigit[] = {1, 0}, kPhaseOther[] = {-1, -1}, kPhaseLanes[] = {4, 4},
      kPhaseWgmma[] = {0, 0}, kPhaseNeighbours[] = {1, 1}, kPhaseAxis[] = {0, 2, 4},
      kAxisExtent[] = {8, 64, 8, 64}, kAxisShared[] = {584, 1, 72, 1}, kAxisRow[] = {0, 0, 0, 0},
      kAxisDigit[] = {0, 0, 0, 0}, kAxisColumn[] = {0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = true,
      kStagedOut = true, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p2_mma_l_d3of5_s1of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
