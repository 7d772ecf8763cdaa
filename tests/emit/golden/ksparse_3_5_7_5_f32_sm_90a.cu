// I_3 x dense(5, 7) x I_5, batch_first, tiles of 5 lanes x 64 x 16 x 16, 1 stages, 5 x 1 x 1 x 1 warps of 64 x 16
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

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
  static constexpr int kThreads = 160;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 1;
  static constexpr int kLanes = 5;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 16;
  static constexpr int kTileK = 16;
  static constexpr int kWarpLanes = 1;
  static constexpr int kWarpM = 4;
  static constexpr int kWarpN = 2;
  static constexpr int kWarpsLanes = 5;
  static constexpr int kWarpsM = 1;
  static constexpr int kWarpsN = 1;
  static constexpr int kWarpsK = 1;
  static constexpr bool kSplit = true;
  static constexpr int kContracted = 7;
  static constexpr int kProduced = 5;
  static constexpr int kXOrder = 2;
  static constexpr int kWOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 1;
  static constexpr int kWVector = 1;
  static constexpr bool kXPairs = false;
  static constexpr bool kWPairs = false;
  static constexpr int kYVector = 1;
  static constexpr int kXPitch = 88;
  static constexpr int kWPitch = 88;
  static constexpr int kYPitch = 84;
  static constexpr int kTileBytesAt = 1536;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_3_5_7_5_batch_first_f32_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
