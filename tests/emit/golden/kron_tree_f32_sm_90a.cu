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

// takes the sums through the visitor tree; a row stands for one sum
#include "kronop/visit_sums.cuh"

using Parameters = kronop::VisitSumsParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 552);

struct Step {
  using Accumulator = float;
  struct Epilogue : kronop::Visitor<float, kronop::Types<float, float, float>, kronop::Types<float,
          float, kronop::Reduced<kronop::Maximum, kronop::Axis::kRow>, kronop::Reduced<kronop::Sum,
          kronop::Axis::kColumn>>> {
    Compute scalar0;
    template <class Scalar>
    KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : scalar0(Compute(scalars[0])) {}
    template <class At>
    KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {
      const Compute operand0 = at.operand(0);
      const Compute operand1 = at.operand(1);
      const Compute operand2 = at.operand(2);
      const Compute v0 = scalar0 * accumulator;
      const Compute v1 = kronop::math::max(v0 + operand0, Compute(0.0)) * operand2 + operand1;
      const Compute v2 = accumulator - operand0;
      at.keep(0, v1);
      at.keep(1, v0);
      at.keep(2, accumulator);
      at.keep(3, v2);
    }
  };
  static constexpr int kThreads = 256, kBlocks = 1, kTileM = 32, kTileN = 128, kRepeating = 4;
  static constexpr bool kAlongRows = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
visit_f32_f32_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::visit_sums<Step>(parameters);
}
