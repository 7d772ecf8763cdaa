// (2, 48, 192, 1) then (1, 192, 48, 2), batch_first, [1 lanes x 48 x 64 x 64, 2 stages, 1 x 1 x 4 x 1 warps of 48 x 16] then [2 lanes x 48 x 64 x 48, 2 stages, 2 x 1 x 2 x 1 warps of 48 x 32], 2 stages
#include "kronop/chain_mma.cuh"

using Parameters = kronop::ChainParameters<double>;
static_assert(sizeof(Parameters{.x = {}, .first = {}, .second = {}, .y = {}, .z = {}, .bias = {},
    .x_vector = {}, .first_vector = {}, .second_vector = {}, .y_vector = {}, .row_extent = {},
    .row_x = {}, .row_y = {}, .row_z = {}, .contracted_x = {}, .contracted_first = {},
    .contracted_second = {}, .produced_first = {}, .produced_second = {}, .produced_y = {},
    .produced_z = {}, .produced_bias = {}, .lane_x = {}, .lane_first = {}, .lane_second = {},
    .lane_y = {}, .lane_z = {}, .lane_bias = {}, .group_x = {}, .group_first = {}, .group_second =
    {}, .group_y = {}, .group_z = {}, .group_bias = {}, .scalars = {}}) == 368);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::first) == 8 &&
    sizeof(Parameters::second) == 8 && sizeof(Parameters::y) == 8 && sizeof(Parameters::z) == 8 &&
    sizeof(Parameters::bias) == 8 && sizeof(Parameters::x_vector) == 8 &&
    sizeof(Parameters::first_vector) == 8 && sizeof(Parameters::second_vector) == 8 &&
    sizeof(Parameters::y_vector) == 8 && sizeof(Parameters::row_extent) == 24 &&
    sizeof(Parameters::row_x) == 24 && sizeof(Parameters::row_y) == 24 && sizeof(Parameters::row_z)
    == 24 && sizeof(Parameters::contracted_x) == 8 && sizeof(Parameters::contracted_first) == 8 &&
    sizeof(Parameters::contracted_second) == 8 && sizeof(Parameters::produced_first) == 8 &&
    sizeof(Parameters::produced_second) == 8 && sizeof(Parameters::produced_y) == 8 &&
    sizeof(Parameters::produced_z) == 8 && sizeof(Parameters::produced_bias) == 8 &&
    sizeof(Parameters::lane_x) == 8 && sizeof(Parameters::lane_first) == 8 &&
    sizeof(Parameters::lane_second) == 8 && sizeof(Parameters::lane_y) == 8 &&
    sizeof(Parameters::lane_z) == 8 && sizeof(Parameters::lane_bias) == 8 &&
    sizeof(Parameters::group_x) == 8 && sizeof(Parameters::group_first) == 8 &&
    sizeof(Parameters::group_second) == 8 && sizeof(Parameters::group_y) == 8 &&
    sizeof(Parameters::group_z) == 8 && sizeof(Parameters::group_bias) == 8 &&
    sizeof(Parameters::scalars) == 32);

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
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 3;
  static constexpr int kStages = 2;
  static constexpr bool kResident = false;
  static constexpr int kTileM = 48;
  static constexpr bool kSplit = false;
  static constexpr int kParts = 1;
  static constexpr int kCommonLanes = 1;
  static constexpr int kPartLanes = 1;
  static constexpr int kXOrder = 0;
  static constexpr int kYOrder = 2;
  static constexpr int kXVector = 8;
  static constexpr int kYVector = 8;
  static constexpr int kXPitch = 72;
  static constexpr int kMiddlePitch = 56;
  static constexpr int kYPitch = 132;
  static constexpr int kPairGroups[] = {2, 1};
  static constexpr int kPairAllLanes[] = {1, 2};
  static constexpr int kPairContracted[] = {192, 48};
  static constexpr int kPairProduced[] = {48, 192};
  static constexpr int kPairLanes[] = {1, 2};
  static constexpr int kPairTileN[] = {64, 64};
  static constexpr int kPairTileK[] = {64, 48};
  static constexpr int kPairWarpLanes[] = {1, 1};
  static constexpr int kPairWarpM[] = {3, 3};
  static constexpr int kPairWarpN[] = {2, 4};
  static constexpr int kPairWarpsLanes[] = {1, 2};
  static constexpr int kPairWarpsM[] = {1, 1};
  static constexpr int kPairWarpsN[] = {4, 2};
  static constexpr int kPairWOrder[] = {0, 2};
  static constexpr int kPairWVector[] = {8, 8};
  static constexpr int kPairWPitch[] = {72, 112};
  static constexpr int kMiddleAt = 1152;
  static constexpr int kWeightsAt = 11904;
  static constexpr int kRingAt = 11904;
  static constexpr int kSlot = 8064;
  static constexpr int kResultsAt = 44160;
  static constexpr bool kSaturate = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_pair_f16_2_48_192_1_then_1_192_48_2_batch_first_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::chain_mma<Step>(parameters);
}
