// digits 0 to 3 of 4 (8x8p4), tiles of 1 x 4096 x 1 in shared memory
#include "kronop/kron_tile.cuh"

using Parameters = kronop::KronTileParameters<long long, 4>;
static_assert(sizeof(Parameters) == 568);

struct Epilogue {
  using Compute = kronop::int64_t;
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
  using Input = kronop::int64_t;
  using Factor = kronop::int64_t;
  using Output = kronop::int64_t;
  using Accumulator = kronop::int64_t;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 3;
  static constexpr int kXVector = 1;
  static constexpr int kYVector = 1;
  static constexpr int kUnroll = 8;
  static constexpr int kPadShift = 4;
  static constexpr bool kPadAdds = true;
  static constexpr bool kSaturate = false;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 1;
  static constexpr int kDigits = 4;
  static constexpr bool kEqualFactors = true;
  static constexpr int kGroupIn = 4096;
  static constexpr int kGroupOut = 4096;
  static constexpr int kContracted[] = {8, 8, 8, 8};
  static constexpr int kProduced[] = {8, 8, 8, 8};
  static constexpr int kStride[] = {512, 64, 8, 1};
  static constexpr int kRowStride = 4096;
  static constexpr bool kDenseIn = true;
  static constexpr bool kDenseOut = true;
  static constexpr int kFactorPitch[] = {8, 8, 8, 8};
  static constexpr int kFactorOffset[] = {0, 64, 128, 192};
  static constexpr int kFactorVector = 2;
  static constexpr int kFactorBytesAt = 32;
  static constexpr int kTileBytesAt = 2080;
  static constexpr int kChunk = 4;
  static constexpr int kTogether = 2;
  static constexpr int kPhases = 4;
  static constexpr int kPhaseFirst[] = {0, 1, 2, 3};
  static constexpr int kPhaseEnd[] = {1, 2, 3, 4};
  static constexpr int kPhaseBlock[] = {8, 8, 8, 8};
  static constexpr int kPhaseStride[] = {512, 64, 8, 1};
  static constexpr int kPhaseFibers[] = {512, 512, 512, 512};
  static constexpr int kPhaseTogether[] = {0, 0, 0, 0};
  static constexpr int kPhaseAxis[] = {0, 1, 3, 5, 6};
  static constexpr int kAxisExtent[] = {512, 8, 64, 64, 8, 512};
  static constexpr int kAxisStride[] = {1, 512, 1, 64, 1, 8};
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_s64_8x8p4_tile_r_d0of4_s0of1_s64_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::kron_tile<Step>(parameters);
}
