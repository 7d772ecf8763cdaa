// digits 0 to 2 of 5 (8x8p3), tiles of 1 x 512 x 32 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 3>;
static_assert(sizeof(Parameters) == 512);

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
  static constexpr int kXDigit = 0;
  static constexpr int kYDigit = 0;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 2;
  static constexpr int kWriteVector = 2;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 3;
  static constexpr int kFactorFirst[] = {0, 1, 2, 3};
  static constexpr int kFactorContracted[] = {8, 8, 8};
  static constexpr int kFactorProduced[] = {8, 8, 8};
  static constexpr bool kStagedIn = true;
  static constexpr bool kStagedOut = true;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 32;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 32;
  static constexpr int kDigits = 3;
  static constexpr int kGroupIn = 512;
  static constexpr int kGroupOut = 512;
  static constexpr int kContracted[] = {8, 8, 8};
  static constexpr int kProduced[] = {8, 8, 8};
  static constexpr int kGroupStrideIn[] = {64, 8, 1};
  static constexpr int kGroupStrideOut[] = {64, 8, 1};
  static constexpr int kStride[] = {2632, 328, 40};
  static constexpr int kRowStride = 21056;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {64, 576, 1088};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 42112;
  static constexpr int kTileBytesAt = 1600;
  static constexpr int kPhases = 3;
  static constexpr int kPhaseDigit[] = {2, 1, 0};
  static constexpr int kPhaseOther[] = {-1, -1, -1};
  static constexpr int kPhaseLanes[] = {4, 4, 4};
  static constexpr int kPhaseGrouped[] = {0, 0, 0};
  static constexpr int kPhaseNeighbours[] = {1, 1, 1};
  static constexpr int kPhaseFibers[] = {2048, 2048, 2048};
  static constexpr int kPhaseAxis[] = {0, 3, 6, 9};
  static constexpr int kAxisExtent[] = {8, 8, 32, 8, 8, 32, 8, 8, 32};
  static constexpr int kAxisShared[] = {2632, 328, 1, 2632, 40, 1, 328, 40, 1};
  static constexpr int kAxisRow[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static constexpr int kAxisGroup[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static constexpr int kAxisColumn[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p3_mma_l_d0of5_s0of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}

// digits 3 to 4 of 5 (8x8p2), tiles of 1 x 64 x 64 in shared memory
#include "kronop/kron_mma.cuh"

using Parameters = kronop::KronTileParameters<double, 2>;
static_assert(sizeof(Parameters) == 456);

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
  static constexpr int kBlocks = 6;
  static constexpr bool kAhead = false;
  static constexpr int kExchange = 0;
  static constexpr int kXVector = 4;
  static constexpr int kYVector = 4;
  static constexpr int kXDigit = 0;
  static constexpr int kYDigit = 0;
  static constexpr bool kSplit = true;
  static constexpr bool kHalf = false;
  static constexpr int kReadVector = 2;
  static constexpr int kWriteVector = 2;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 2;
  static constexpr int kFactorFirst[] = {0, 1, 2};
  static constexpr int kFactorContracted[] = {8, 8};
  static constexpr int kFactorProduced[] = {8, 8};
  static constexpr bool kStagedIn = true;
  static constexpr bool kStagedOut = true;
  static constexpr bool kRegular = true;
  static constexpr int kCluster = 1;
  static constexpr int kOffsetBytes = 32;
  static constexpr bool kSquare = true;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 64;
  static constexpr int kDigits = 2;
  static constexpr int kGroupIn = 64;
  static constexpr int kGroupOut = 64;
  static constexpr int kContracted[] = {8, 8};
  static constexpr int kProduced[] = {8, 8};
  static constexpr int kGroupStrideIn[] = {8, 1};
  static constexpr int kGroupStrideOut[] = {8, 1};
  static constexpr int kStride[] = {584, 72};
  static constexpr int kRowStride = 4672;
  static constexpr bool kDenseIn = false;
  static constexpr bool kDenseOut = false;
  static constexpr int kFactorBytesAt[] = {64, 576};
  static constexpr int kBuffers = 1;
  static constexpr int kTileBytes = 9344;
  static constexpr int kTileBytesAt = 1088;
  static constexpr int kPhases = 2;
  static constexpr int kPhaseDigit[] = {1, 0};
  static constexpr int kPhaseOther[] = {-1, -1};
  static constexpr int kPhaseLanes[] = {4, 4};
  static constexpr int kPhaseGrouped[] = {0, 0};
  static constexpr int kPhaseNeighbours[] = {1, 1};
  static constexpr int kPhaseFibers[] = {512, 512};
  static constexpr int kPhaseAxis[] = {0, 2, 4};
  static constexpr int kAxisExtent[] = {8, 64, 8, 64};
  static constexpr int kAxisShared[] = {584, 1, 72, 1};
  static constexpr int kAxisRow[] = {0, 0, 0, 0};
  static constexpr int kAxisGroup[] = {0, 0, 0, 0};
  static constexpr int kAxisColumn[] = {0, 0, 0, 0};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p2_mma_l_d3of5_s1of2_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_mma<Step>(parameters);
}
