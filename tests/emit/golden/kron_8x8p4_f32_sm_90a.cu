// digits 0 to 3 of 4 (8x8p4), tiles of 1 x 4096 x 1 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 4>;
static_assert(sizeof(Parameters) == 568);

struct Epilogue {
  using Compute = float;
  Compute alpha, beta;
  template <class Scalar>
  KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : alpha(Compute(scalars[0])), beta(Compute(scalars[1])) {}
  KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
    namespace math = kronop::math;
    const Compute v0 = alpha * accumulator;
    const Compute v1 = beta * source;
    const Compute v2 = v0 + v1;
    const Compute v3 = v2 + bias;
    return v3;
  }
};

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 5;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 4;
  static constexpr int kXDigit = 1;
  static constexpr int kYDigit = 1;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 2;
  static constexpr int kWriteVector = 2;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 4;
  static constexpr int kFactorFirst[] = {0, 1, 2, 3, 4};
  static constexpr int kFactorContracted[] = {8, 8, 8, 8};
  static constexpr int kFactorProduced[] = {8, 8, 8, 8};
  static constexpr bool kStagedIn = false;
  static constexpr bool kStagedOut = false;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 32;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 1;
  static constexpr int kDigits = 4;
  static constexpr int kGroupIn = 4096;
  static constexpr int kGroupOut = 4096;
  static constexpr int kContracted[] = {8, 8, 8, 8};
  static constexpr int kProduced[] = {8, 8, 8, 8};
  static constexpr int kGroupStrideIn[] = {512, 64, 8, 1};
  static constexpr int kGroupStrideOut[] = {512, 64, 8, 1};
  static constexpr int kStride[] = {584, 72, 8, 1};
  static constexpr int kRowStride = 4672;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {96, 608, 1120, 1632};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 9344;
  static constexpr int kTileBytesAt = 2144;
  static constexpr int kPhases = 3;
  static constexpr int kPhaseDigit[] = {3, 1, 0};
  static constexpr int kPhaseOther[] = {2, -1, -1};
  static constexpr int kPhaseLanes[] = {8, 4, 4};
  static constexpr int kPhaseGrouped[] = {0, 0, 0};
  static constexpr int kPhaseNeighbours[] = {0, 1, 1};
  static constexpr int kPhaseFibers[] = {64, 512, 512};
  static constexpr int kPhaseAxis[] = {0, 2, 4, 6};
  static constexpr int kAxisExtent[] = {8, 8, 8, 64, 8, 64};
  static constexpr int kAxisShared[] = {584, 72, 584, 1, 72, 1};
  static constexpr int kAxisRow[] = {0, 0, 0, 0, 0, 0};
  static constexpr int kAxisGroup[] = {512, 64, 0, 0, 64, 1};
  static constexpr int kAxisColumn[] = {0, 0, 0, 0, 0, 0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p4_mma_r_d0of4_s0of1_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
