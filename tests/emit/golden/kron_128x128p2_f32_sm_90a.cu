// digit 0 of 2 (128x128), tiles of 4 x 128 x 64 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 1>;
static_assert(sizeof(Parameters) == 400);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256, kBlocks = 1, kExchange = 0, kXVector = 2, kYVector = 2,
      kXDigit = 128, kYDigit = 128, kReadVector = 8, kWriteVector = 8, kFactorFirst[] = {0, 1},
      kFactorContracted[] = {128}, kFactorProduced[] = {128}, kCluster = 1, kOffsetBytes = 96,
      kRows = 4, kColumns = 64, kContracted[] = {128}, kProduced[] = {128}, kStride[] = {72},
      kRowStride = 9216, kFactorBytesAt[] = {192}, kBuffers = 1, kTileBytesAt = 131264,
      kPhaseDigit[] = {0}, kPhaseOther[] = {-1}, kPhaseLanes[] = {2}, kPhaseWgmma[] = {1},
      kPhaseNeighbours[] = {1}, kPhaseAxis[] = {0, 2}, kAxisExtent[] = {4, 64},
      kAxisShared[] = {9216, 1}, kAxisRow[] = {1, 0}, kAxisDigit[] = {0, 0}, kAxisColumn[] = {0, 1};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_128x128_mma_r_d0of2_s0of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digit 1 of 2 (128x128), tiles of 256 x 128 x 1 in shared memory
#include "kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 1>;
static_assert(sizeof(Parameters) == 400);

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
  static constexpr int kThreads = 256, kBlocks = 1, kExchange = 0, kXVector = 2, kYVector = 2,
      kXDigit = 1, kYDigit = 1, kReadVector = 8, kWriteVector = 8, kFactorFirst[] = {0, 1},
      kFactorContracted[] = {128}, kFactorProduced[] = {128}, kCluster = 1, kOffsetBytes = 6144,
      kRows = 256, kColumns = 1, kContracted[] = {128}, kProduced[] = {128}, kStride[] = {1},
      kRowStride = 128, kFactorBytesAt[] = {12288}, kBuffers = 1, kTileBytesAt = 143360,
      kPhaseDigit[] = {0}, kPhaseOther[] = {-1}, kPhaseLanes[] = {2}, kPhaseWgmma[] = {1},
      kPhaseNeighbours[] = {0}, kPhaseAxis[] = {0, 1}, kAxisExtent[] = {256}, kAxisShared[] = {128},
      kAxisRow[] = {1}, kAxisDigit[] = {0}, kAxisColumn[] = {0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_128x128_mma_r_d1of2_s1of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
