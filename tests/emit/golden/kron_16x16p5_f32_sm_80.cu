// digits 0 to 1 of 5 (16x16p2), tiles of 1 x 256 x 64 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 2>;
static_assert(sizeof(Parameters) == 456);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 4;
  static constexpr int kYVector = 4;
  static constexpr int kXDigit = 4096;
  static constexpr int kYDigit = 4096;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 4;
  static constexpr int kWriteVector = 4;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 2;
  static constexpr int kFactorFirst[] = {0, 1, 2};
  static constexpr int kFactorContracted[] = {16, 16};
  static constexpr int kFactorProduced[] = {16, 16};
  static constexpr bool kStagedIn = true;
  static constexpr bool kStagedOut = true;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 32;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 64;
  static constexpr int kDigits = 2;
  static constexpr int kGroupIn = 256;
  static constexpr int kGroupOut = 256;
  static constexpr int kContracted[] = {16, 16};
  static constexpr int kProduced[] = {16, 16};
  static constexpr int kGroupStrideIn[] = {16, 1};
  static constexpr int kGroupStrideOut[] = {16, 1};
  static constexpr int kStride[] = {1160, 72};
  static constexpr int kRowStride = 18560;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {64, 2112};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 37120;
  static constexpr int kTileBytesAt = 4160;
  static constexpr int kPhases = 2;
  static constexpr int kPhaseDigit[] = {1, 0};
  static constexpr int kPhaseOther[] = {-1, -1};
  static constexpr int kPhaseLanes[] = {4, 4};
  static constexpr int kPhaseGrouped[] = {0, 0};
  static constexpr int kPhaseNeighbours[] = {1, 1};
  static constexpr int kPhaseFibers[] = {1024, 1024};
  static constexpr int kPhaseAxis[] = {0, 2, 4};
  static constexpr int kAxisExtent[] = {16, 64, 16, 64};
  static constexpr int kAxisShared[] = {1160, 1, 72, 1};
  static constexpr int kAxisRow[] = {0, 0, 0, 0};
  static constexpr int kAxisGroup[] = {0, 0, 0, 0};
  static constexpr int kAxisColumn[] = {0, 0, 0, 0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_16x16p2_mma_r_d0of5_s0of2_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digits 2 to 4 of 5 (16x16p3), tiles of 2 x 4096 x 1 in shared memory
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
  static constexpr int kBlocks = 4;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 4;
  static constexpr int kXDigit = 1;
  static constexpr int kYDigit = 1;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 4;
  static constexpr int kWriteVector = 4;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 3;
  static constexpr int kFactorFirst[] = {0, 1, 2, 3};
  static constexpr int kFactorContracted[] = {16, 16, 16};
  static constexpr int kFactorProduced[] = {16, 16, 16};
  static constexpr bool kStagedIn = false;
  static constexpr bool kStagedOut = false;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 48;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 2;
  static constexpr int kColumns = 1;
  static constexpr int kDigits = 3;
  static constexpr int kGroupIn = 4096;
  static constexpr int kGroupOut = 4096;
  static constexpr int kContracted[] = {16, 16, 16};
  static constexpr int kProduced[] = {16, 16, 16};
  static constexpr int kGroupStrideIn[] = {256, 16, 1};
  static constexpr int kGroupStrideOut[] = {256, 16, 1};
  static constexpr int kStride[] = {264, 16, 1};
  static constexpr int kRowStride = 4224;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {96, 2144, 4192};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 16896;
  static constexpr int kTileBytesAt = 6240;
  static constexpr int kPhases = 2;
  static constexpr int kPhaseDigit[] = {2, 0};
  static constexpr int kPhaseOther[] = {1, -1};
  static constexpr int kPhaseLanes[] = {4, 4};
  static constexpr int kPhaseGrouped[] = {0, 0};
  static constexpr int kPhaseNeighbours[] = {0, 1};
  static constexpr int kPhaseFibers[] = {32, 512};
  static constexpr int kPhaseAxis[] = {0, 2, 4};
  static constexpr int kAxisExtent[] = {2, 16, 2, 256};
  static constexpr int kAxisShared[] = {4224, 264, 4224, 1};
  static constexpr int kAxisRow[] = {1, 0, 1, 0};
  static constexpr int kAxisGroup[] = {0, 256, 0, 1};
  static constexpr int kAxisColumn[] = {0, 0, 0, 0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_16x16p3_mma_r_d2of5_s1of2_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
