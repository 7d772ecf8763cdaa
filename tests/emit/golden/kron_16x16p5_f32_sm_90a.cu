// digits 0 to 1 of 5 (16x16p2), tiles of 1 x 256 x 64 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 2>;
static_assert(sizeof(Parameters) == 456);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256, kBlocks = 2, kExchange = 0, kXVector = 4, kYVector = 4,
      kXDigit = 4096, kYDigit = 4096, kReadVector = 4, kWriteVector = 4, kFactorFirst[] = {0, 1, 2},
      kFactorContracted[] = {16, 16}, kFactorProduced[] = {16, 16}, kCluster = 1, kOffsetBytes = 32,
      kRows = 1, kColumns = 64, kContracted[] = {16, 16}, kProduced[] = {16, 16},
      kStride[] = {1160, 72}, kRowStride = 18560, kFactorBytesAt[] = {64, 2112}, kBuffers = 1,
      kTileBytesAt = 4160, kPhaseDigit[] = {1, 0}, kPhaseOther[] = {-1, -1}, kPhaseLanes[] = {4, 4},
      kPhaseWgmma[] = {0, 0}, kPhaseNeighbours[] = {1, 1}, kPhaseAxis[] = {0, 2, 4},
      kAxisExtent[] = {16, 64, 16, 64}, kAxisShared[] = {1160, 1, 72, 1}, kAxisRow[] = {0, 0, 0, 0},
      kAxisDigit[] = {0, 0, 0, 0}, kAxisColumn[] = {0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = true,
      kStagedOut = true, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_16x16p2_mma_r_d0of5_s0of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digits 2 to 4 of 5 (16x16p3), tiles of 2 x 4096 x 1 in shared memory
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
  static constexpr int kThreads = 128, kBlocks = 4, kExchange = 0, kXVector = 2, kYVector = 4,
      kXDigit = 1, kYDigit = 1, kReadVector = 4, kWriteVector = 4, kFactorFirst[] = {0, 1, 2, 3},
      kFactorContracted[] = {16, 16, 16}, kFactorProduced[] = {16, 16, 16}, kCluster = 1,
      kOffsetBytes = 48, kRows = 2, kColumns = 1, kContracted[] = {16, 16, 16},
      kProduced[] = {16, 16, 16}, kStride[] = {264, 16, 1}, kRowStride = 4224,
      kFactorBytesAt[] = {96, 2144, 4192}, kBuffers = 1, kTileBytesAt = 6240,
      kPhaseDigit[] = {2, 0}, kPhaseOther[] = {1, -1}, kPhaseLanes[] = {4, 4},
      kPhaseWgmma[] = {0, 0}, kPhaseNeighbours[] = {0, 1}, kPhaseAxis[] = {0, 2, 4},
      kAxisExtent[] = {2, 16, 2, 256}, kAxisShared[] = {4224, 264, 4224, 1},
      kAxisRow[] = {1, 0, 1, 0}, kAxisDigit[] = {0, 256, 0, 1}, kAxisColumn[] = {0, 0, 0, 0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_16x16p3_mma_r_d2of5_s1of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
