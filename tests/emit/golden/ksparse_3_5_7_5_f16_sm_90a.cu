// I_3 x dense(5, 7) x I_5, batch_first, tiles of 5 lanes x 64 x 8 x 8, 4 x 4 a thread
#include "kronop/contract.cuh"

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
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Epilogue = ::Epilogue;
  static constexpr int kThreads = 160;
  static constexpr int kBlocks = 1;
  static constexpr int kStages = 2;
  static constexpr int kLanes = 5;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 8;
  static constexpr int kTileK = 8;
  static constexpr int kThreadM = 4;
  static constexpr int kThreadN = 4;
  static constexpr int kVectorM = 4;
  static constexpr int kVectorN = 4;
  static constexpr int kUnroll = 8;
  static constexpr int kContracted = 7;
  static constexpr int kProduced = 5;
  static constexpr int kXOrder = 2;
  static constexpr int kWOrder = 2;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 1;
  static constexpr int kWVector = 1;
  static constexpr int kYVector = 1;
  static constexpr int kPad = 4;
  static constexpr int kTileBytesAt = 1536;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f16_3_5_7_5_batch_first_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_tiles<Step>(parameters);
}
