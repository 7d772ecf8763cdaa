// digits 0 to 1 of 2 (8x8p2), tiles of 512 x 64 x 1 in shared memory
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
  static constexpr int kThreads = 128, kBlocks = 5, kExchange = 0, kXVector = 1, kYVector = 2,
      kXDigit = 1, kYDigit = 1, kReadVector = 2, kWriteVector = 2, kFactorFirst[] = {0, 1, 2},
      kFactorContracted[] = {8, 8}, kFactorProduced[] = {8, 8}, kCluster = 1, kOffsetBytes = 12288,
      kRows = 512, kColumns = 1, kContracted[] = {8, 8}, kProduced[] = {8, 8}, kStride[] = {8, 1},
      kRowStride = 64, kFactorBytesAt[] = {24576, 25088}, kBuffers = 1, kTileBytesAt = 25600,
      kPhaseDigit[] = {1}, kPhaseOther[] = {0}, kPhaseLanes[] = {8}, kPhaseWgmma[] = {0},
      kPhaseNeighbours[] = {0}, kPhaseAxis[] = {0, 1}, kAxisExtent[] = {512}, kAxisShared[] = {64},
      kAxisRow[] = {1}, kAxisDigit[] = {0}, kAxisColumn[] = {0};
  static constexpr bool kAhead = false, kSplit = true, kHalf = false, kStagedIn = false,
      kStagedOut = false, kRegular = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p2_mma_r_d0of2_s0of1_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// a scale for each row of the product, and its integers
#include "quantized_rows.cuh"

using Parameters = kronop::QuantizedRowsParameters;
static_assert(sizeof(Parameters) == 40);

struct Step {
  using Input = float;
  static constexpr int kThreads = 256, kBlocks = 4, kWarps = 1, kColumns = 64, kBits = 8;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
quantized_rows_f32_64_s8_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::quantized_rows<Step>(parameters);
}
