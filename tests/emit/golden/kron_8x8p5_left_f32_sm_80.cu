// digits 0 to 2 of 5 (8x8p3), tiles of 1 x 512 x 16 in shared memory
#include "kronop/kron_tile.cuh"

using Parameters = kronop::KronTileParameters<double, 3>;
static_assert(sizeof(Parameters{.x = {}, .y = {}, .z = {}, .x_vector = {}, .y_vector = {},
    .outer_extent = {}, .outer_x = {}, .outer_y = {}, .outer_z = {}, .inner_extent = {}, .inner_x =
    {}, .inner_y = {}, .inner_z = {}, .digit_x = {}, .digit_y = {}, .digit_z = {}, .batch_extent =
    {}, .batch_x = {}, .batch_y = {}, .batch_z = {}, .factor = {}, .factor_row = {}, .factor_column
    = {}, .factor_batch = {}, .scalars = {}}) == 488);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::y) == 8 && sizeof(Parameters::z) == 8
    && sizeof(Parameters::x_vector) == 8 && sizeof(Parameters::y_vector) == 8 &&
    sizeof(Parameters::outer_extent) == 16 && sizeof(Parameters::outer_x) == 16 &&
    sizeof(Parameters::outer_y) == 16 && sizeof(Parameters::outer_z) == 16 &&
    sizeof(Parameters::inner_extent) == 8 && sizeof(Parameters::inner_x) == 8 &&
    sizeof(Parameters::inner_y) == 8 && sizeof(Parameters::inner_z) == 8 &&
    sizeof(Parameters::digit_x) == 8 && sizeof(Parameters::digit_y) == 8 &&
    sizeof(Parameters::digit_z) == 8 && sizeof(Parameters::batch_extent) == 32 &&
    sizeof(Parameters::batch_x) == 32 && sizeof(Parameters::batch_y) == 32 &&
    sizeof(Parameters::batch_z) == 32 && sizeof(Parameters::factor) == 24 &&
    sizeof(Parameters::factor_row) == 24 && sizeof(Parameters::factor_column) == 24 &&
    sizeof(Parameters::factor_batch) == 96 && sizeof(Parameters::scalars) == 32);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  using Epilogue = kronop::Identity<float>;
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 3;
  static constexpr int kXVector = 4;
  static constexpr int kYVector = 4;
  static constexpr int kUnroll = 4;
  static constexpr int kPadShift = 5;
  static constexpr bool kPadAdds = true;
  static constexpr bool kSaturate = false;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 16;
  static constexpr int kDigits = 3;
  static constexpr bool kEqualFactors = true;
  static constexpr int kGroupIn = 512;
  static constexpr int kGroupOut = 512;
  static constexpr int kContracted[] = {8, 8, 8};
  static constexpr int kProduced[] = {8, 8, 8};
  static constexpr int kStride[] = {1024, 128, 16};
  static constexpr int kRowStride = 8192;
  static constexpr bool kDenseIn = true;
  static constexpr bool kDenseOut = true;
  static constexpr int kFactorPitch[] = {8, 8, 8};
  static constexpr int kFactorOffset[] = {0, 64, 128};
  static constexpr int kFactorVector = 4;
  static constexpr int kFactorBytesAt = 32;
  static constexpr int kTileBytesAt = 800;
  static constexpr int kChunk = 8;
  static constexpr int kTogether = 4;
  static constexpr int kPhases = 2;
  static constexpr int kPhaseFirst[] = {0, 2};
  static constexpr int kPhaseEnd[] = {2, 3};
  static constexpr int kPhaseBlock[] = {64, 8};
  static constexpr int kPhaseStride[] = {128, 16};
  static constexpr int kPhaseFibers[] = {128, 1024};
  static constexpr int kPhaseTogether[] = {0, 0};
  static constexpr int kPhaseAxis[] = {0, 1, 3};
  static constexpr int kAxisExtent[] = {128, 64, 16};
  static constexpr int kAxisStride[] = {1, 128, 1};
  static constexpr int kFirstDigit = 0;
  static constexpr int kSizes[] = {8, 8, 8, 8, 8};
  static constexpr int kGroup[] = {8, 8, 8, 8, 8, 8};
  static constexpr bool kXByRows = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p3_tile_l_d0of5_s0of2_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::kron_tile<Step>(parameters);
}

// digits 3 to 4 of 5 (8x8p2), tiles of 8 x 64 x 16 in shared memory
#include "kronop/kron_tile.cuh"

using Parameters = kronop::KronTileParameters<double, 2>;
static_assert(sizeof(Parameters{.x = {}, .y = {}, .z = {}, .x_vector = {}, .y_vector = {},
    .outer_extent = {}, .outer_x = {}, .outer_y = {}, .outer_z = {}, .inner_extent = {}, .inner_x =
    {}, .inner_y = {}, .inner_z = {}, .digit_x = {}, .digit_y = {}, .digit_z = {}, .batch_extent =
    {}, .batch_x = {}, .batch_y = {}, .batch_z = {}, .factor = {}, .factor_row = {}, .factor_column
    = {}, .factor_batch = {}, .scalars = {}}) == 432);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::y) == 8 && sizeof(Parameters::z) == 8
    && sizeof(Parameters::x_vector) == 8 && sizeof(Parameters::y_vector) == 8 &&
    sizeof(Parameters::outer_extent) == 16 && sizeof(Parameters::outer_x) == 16 &&
    sizeof(Parameters::outer_y) == 16 && sizeof(Parameters::outer_z) == 16 &&
    sizeof(Parameters::inner_extent) == 8 && sizeof(Parameters::inner_x) == 8 &&
    sizeof(Parameters::inner_y) == 8 && sizeof(Parameters::inner_z) == 8 &&
    sizeof(Parameters::digit_x) == 8 && sizeof(Parameters::digit_y) == 8 &&
    sizeof(Parameters::digit_z) == 8 && sizeof(Parameters::batch_extent) == 32 &&
    sizeof(Parameters::batch_x) == 32 && sizeof(Parameters::batch_y) == 32 &&
    sizeof(Parameters::batch_z) == 32 && sizeof(Parameters::factor) == 16 &&
    sizeof(Parameters::factor_row) == 16 && sizeof(Parameters::factor_column) == 16 &&
    sizeof(Parameters::factor_batch) == 64 && sizeof(Parameters::scalars) == 32);

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
  static constexpr int kXVector = 4;
  static constexpr int kYVector = 4;
  static constexpr int kUnroll = 4;
  static constexpr int kPadShift = 6;
  static constexpr bool kPadAdds = true;
  static constexpr bool kSaturate = false;
  static constexpr int kRows = 8;
  static constexpr int kColumns = 16;
  static constexpr int kDigits = 2;
  static constexpr bool kEqualFactors = true;
  static constexpr int kGroupIn = 64;
  static constexpr int kGroupOut = 64;
  static constexpr int kContracted[] = {8, 8};
  static constexpr int kProduced[] = {8, 8};
  static constexpr int kStride[] = {128, 16};
  static constexpr int kRowStride = 1024;
  static constexpr bool kDenseIn = true;
  static constexpr bool kDenseOut = true;
  static constexpr int kFactorPitch[] = {8, 8};
  static constexpr int kFactorOffset[] = {0, 64};
  static constexpr int kFactorVector = 4;
  static constexpr int kFactorBytesAt = 192;
  static constexpr int kTileBytesAt = 704;
  static constexpr int kChunk = 8;
  static constexpr int kTogether = 4;
  static constexpr int kPhases = 1;
  static constexpr int kPhaseFirst[] = {0};
  static constexpr int kPhaseEnd[] = {2};
  static constexpr int kPhaseBlock[] = {64};
  static constexpr int kPhaseStride[] = {16};
  static constexpr int kPhaseFibers[] = {128};
  static constexpr int kPhaseTogether[] = {0};
  static constexpr int kPhaseAxis[] = {0, 2};
  static constexpr int kAxisExtent[] = {8, 16};
  static constexpr int kAxisStride[] = {1024, 1};
  static constexpr int kFirstDigit = 3;
  static constexpr int kSizes[] = {8, 8, 8, 8, 8};
  static constexpr int kGroup[] = {8, 8, 8, 8};
  static constexpr bool kXByRows = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_8x8p2_tile_l_d3of5_s1of2_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::kron_tile<Step>(parameters);
}
