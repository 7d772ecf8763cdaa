// I_6 x dense(64, 64) x I_1, batch_first, tiles of 1 lanes x 64 x 64 x 64, 1 stages, 1 x 1 x 2 x 2 warps of 64 x 32
#include "kronop/contract_mma.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters{.x = {}, .w = {}, .y = {}, .z = {}, .bias = {}, .x_vector = {},
    .w_vector = {}, .y_vector = {}, .row_extent = {}, .row_x = {}, .row_y = {}, .row_z = {},
    .contracted_x = {}, .contracted_w = {}, .produced_w = {}, .produced_y = {}, .produced_z = {},
    .produced_bias = {}, .lane_extent = {}, .lane_x = {}, .lane_w = {}, .lane_y = {}, .lane_z = {},
    .lane_bias = {}, .group_extent = {}, .group_x = {}, .group_w = {}, .group_y = {}, .group_z = {},
    .group_bias = {}, .scalars = {}}) == 480);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::w) == 8 && sizeof(Parameters::y) == 8
    && sizeof(Parameters::z) == 8 && sizeof(Parameters::bias) == 8 && sizeof(Parameters::x_vector)
    == 8 && sizeof(Parameters::w_vector) == 8 && sizeof(Parameters::y_vector) == 8 &&
    sizeof(Parameters::row_extent) == 24 && sizeof(Parameters::row_x) == 24 &&
    sizeof(Parameters::row_y) == 24 && sizeof(Parameters::row_z) == 24 &&
    sizeof(Parameters::contracted_x) == 8 && sizeof(Parameters::contracted_w) == 8 &&
    sizeof(Parameters::produced_w) == 8 && sizeof(Parameters::produced_y) == 8 &&
    sizeof(Parameters::produced_z) == 8 && sizeof(Parameters::produced_bias) == 8 &&
    sizeof(Parameters::lane_extent) == 8 && sizeof(Parameters::lane_x) == 8 &&
    sizeof(Parameters::lane_w) == 8 && sizeof(Parameters::lane_y) == 8 && sizeof(Parameters::lane_z)
    == 8 && sizeof(Parameters::lane_bias) == 8 && sizeof(Parameters::group_extent) == 32 &&
    sizeof(Parameters::group_x) == 32 && sizeof(Parameters::group_w) == 32 &&
    sizeof(Parameters::group_y) == 32 && sizeof(Parameters::group_z) == 32 &&
    sizeof(Parameters::group_bias) == 32 && sizeof(Parameters::scalars) == 32);

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
  static constexpr int kBlocks = 2;
  static constexpr int kStages = 1;
  static constexpr int kLanes = 1;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 64;
  static constexpr int kTileK = 64;
  static constexpr int kWarpLanes = 1;
  static constexpr int kWarpM = 4;
  static constexpr int kWarpN = 4;
  static constexpr int kWarpsLanes = 1;
  static constexpr int kWarpsM = 1;
  static constexpr int kWarpsN = 2;
  static constexpr int kWarpsK = 2;
  static constexpr bool kSplit = true;
  static constexpr int kContracted = 64;
  static constexpr int kProduced = 64;
  static constexpr int kXOrder = 0;
  static constexpr int kWOrder = 0;
  static constexpr int kYOrder = 0;
  static constexpr int kXVector = 4;
  static constexpr int kWVector = 4;
  static constexpr bool kXPairs = false;
  static constexpr bool kWPairs = false;
  static constexpr int kYVector = 4;
  static constexpr int kXPitch = 72;
  static constexpr int kWPitch = 72;
  static constexpr int kYPitch = 72;
  static constexpr int kTileBytesAt = 1536;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f32_6_64_64_1_batch_first_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_mma<Step>(parameters);
}
