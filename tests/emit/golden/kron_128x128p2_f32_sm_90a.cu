// digit 0 of 2 (128x128), tiles of 4 x 128 x 64 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 1>;
static_assert(sizeof(Parameters) == 400);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 1;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 2;
  static constexpr int kXDigit = 128;
  static constexpr int kYDigit = 128;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 8;
  static constexpr int kWriteVector = 8;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 1;
  static constexpr int kFactorFirst[] = {0, 1};
  static constexpr int kFactorContracted[] = {128};
  static constexpr int kFactorProduced[] = {128};
  static constexpr bool kStagedIn = false;
  static constexpr bool kStagedOut = false;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 96;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 4;
  static constexpr int kColumns = 64;
  static constexpr int kDigits = 1;
  static constexpr int kGroupIn = 128;
  static constexpr int kGroupOut = 128;
  static constexpr int kContracted[] = {128};
  static constexpr int kProduced[] = {128};
  static constexpr int kGroupStrideIn[] = {1};
  static constexpr int kGroupStrideOut[] = {1};
  static constexpr int kStride[] = {72};
  static constexpr int kRowStride = 9216;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {192};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 73728;
  static constexpr int kTileBytesAt = 131264;
  static constexpr int kPhases = 1;
  static constexpr int kPhaseDigit[] = {0};
  static constexpr int kPhaseOther[] = {-1};
  static constexpr int kPhaseLanes[] = {2};
  static constexpr int kPhaseGrouped[] = {1};
  static constexpr int kPhaseNeighbours[] = {1};
  static constexpr int kPhaseFibers[] = {256};
  static constexpr int kPhaseAxis[] = {0, 2};
  static constexpr int kAxisExtent[] = {4, 64};
  static constexpr int kAxisShared[] = {9216, 1};
  static constexpr int kAxisRow[] = {1, 0};
  static constexpr int kAxisGroup[] = {0, 0};
  static constexpr int kAxisColumn[] = {0, 1};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_128x128_mma_r_d0of2_s0of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digit 1 of 2 (128x128), tiles of 256 x 128 x 1 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 1>;
static_assert(sizeof(Parameters) == 400);

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
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 1;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 2;
  static constexpr int kYVector = 2;
  static constexpr int kXDigit = 1;
  static constexpr int kYDigit = 1;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 8;
  static constexpr int kWriteVector = 8;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 1;
  static constexpr int kFactorFirst[] = {0, 1};
  static constexpr int kFactorContracted[] = {128};
  static constexpr int kFactorProduced[] = {128};
  static constexpr bool kStagedIn = false;
  static constexpr bool kStagedOut = false;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 6144;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 256;
  static constexpr int kColumns = 1;
  static constexpr int kDigits = 1;
  static constexpr int kGroupIn = 128;
  static constexpr int kGroupOut = 128;
  static constexpr int kContracted[] = {128};
  static constexpr int kProduced[] = {128};
  static constexpr int kGroupStrideIn[] = {1};
  static constexpr int kGroupStrideOut[] = {1};
  static constexpr int kStride[] = {1};
  static constexpr int kRowStride = 128;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {12288};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 65536;
  static constexpr int kTileBytesAt = 143360;
  static constexpr int kPhases = 1;
  static constexpr int kPhaseDigit[] = {0};
  static constexpr int kPhaseOther[] = {-1};
  static constexpr int kPhaseLanes[] = {2};
  static constexpr int kPhaseGrouped[] = {1};
  static constexpr int kPhaseNeighbours[] = {0};
  static constexpr int kPhaseFibers[] = {256};
  static constexpr int kPhaseAxis[] = {0, 1};
  static constexpr int kAxisExtent[] = {256};
  static constexpr int kAxisShared[] = {128};
  static constexpr int kAxisRow[] = {1};
  static constexpr int kAxisGroup[] = {0};
  static constexpr int kAxisColumn[] = {0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_128x128_mma_r_d1of2_s1of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
