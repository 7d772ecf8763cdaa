// digits 0 to 2 of 3 (2x3_5x2_6x4), tiles of 364 x 60 x 1 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 3>;
static_assert(sizeof(Parameters) == 512);

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
  static constexpr int kBlocks = 3;
  static constexpr bool kAhead = true;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 1;
  static constexpr int kYVector = 1;
  static constexpr int kXDigit = 1;
  static constexpr int kYDigit = 1;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 2;
  static constexpr int kWriteVector = 2;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 3;
  static constexpr int kFactorFirst[] = {0, 2, 3};
  static constexpr int kFactorContracted[] = {2, 5, 6};
  static constexpr int kFactorProduced[] = {3, 2, 4};
  static constexpr bool kStagedIn = false;
  static constexpr bool kStagedOut = false;
  static constexpr bool kRegular = false;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 8736;
  static constexpr bool kSquare = false;
  static constexpr int kRows = 364;
  static constexpr int kColumns = 1;
  static constexpr int kDigits = 2;
  static constexpr int kGroupIn = 60;
  static constexpr int kGroupOut = 24;
  static constexpr int kContracted[] = {10, 6};
  static constexpr int kProduced[] = {6, 4};
  static constexpr int kGroupStrideIn[] = {6, 1};
  static constexpr int kGroupStrideOut[] = {4, 1};
  static constexpr int kStride[] = {6, 1};
  static constexpr int kRowStride = 60;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {17472, 18496};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 43680;
  static constexpr int kTileBytesAt = 19008;
  static constexpr int kPhases = 1;
  static constexpr int kPhaseDigit[] = {1};
  static constexpr int kPhaseOther[] = {0};
  static constexpr int kPhaseLanes[] = {4};
  static constexpr int kPhaseGrouped[] = {0};
  static constexpr int kPhaseNeighbours[] = {0};
  static constexpr int kPhaseFibers[] = {364};
  static constexpr int kPhaseAxis[] = {0, 1};
  static constexpr int kAxisExtent[] = {364};
  static constexpr int kAxisShared[] = {60};
  static constexpr int kAxisRow[] = {1};
  static constexpr int kAxisGroup[] = {0};
  static constexpr int kAxisColumn[] = {0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_2x3_5x2_6x4_mma_r_d0of3_s0of1_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
