// X times 4 factors: on tiles, digits 64x64, 64x64, 2 rows at once
#include "kronop_x86/kron_amx.hpp"

using Parameters = kronop::KronParameters<4, 2, double>;
static_assert(sizeof(Parameters{.x = {}, .z = {}, .y = {}, .workspace = {}, .rows = {}, .row_tile =
    {}, .threads = {}, .together = {}, .plain = {}, .stream = {}, .ahead = {}, .batch = {},
    .x_strides = {}, .x_batch = {}, .z_strides = {}, .z_batch = {}, .y_strides = {}, .y_batch = {},
    .slice = {}, .factors = {}, .factor_row = {}, .factor_column = {}, .factor_batch = {}, .scalars
    = {}}) == 512);
static_assert(sizeof(Parameters::x) == 8 && sizeof(Parameters::z) == 8 && sizeof(Parameters::y) == 8
    && sizeof(Parameters::workspace) == 8 && sizeof(Parameters::rows) == 8 &&
    sizeof(Parameters::row_tile) == 8 && sizeof(Parameters::threads) == 8 &&
    sizeof(Parameters::together) == 8 && sizeof(Parameters::plain) == 8 &&
    sizeof(Parameters::stream) == 8 && sizeof(Parameters::ahead) == 8 && sizeof(Parameters::batch)
    == 32 && sizeof(Parameters::x_strides) == 16 && sizeof(Parameters::x_batch) == 32 &&
    sizeof(Parameters::z_strides) == 16 && sizeof(Parameters::z_batch) == 32 &&
    sizeof(Parameters::y_strides) == 16 && sizeof(Parameters::y_batch) == 32 &&
    sizeof(Parameters::slice) == 8 && sizeof(Parameters::factors) == 32 &&
    sizeof(Parameters::factor_row) == 32 && sizeof(Parameters::factor_column) == 32 &&
    sizeof(Parameters::factor_batch) == 128 && sizeof(Parameters::scalars) == 16);

namespace {
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
  using Element = kronop::bfloat16_t;
  using Output = kronop::bfloat16_t;
  using Compute = float;
  using Epilogue = ::Epilogue;
  static constexpr int kGroup = 2;
  static constexpr int kSlice = 45056;
  static constexpr bool kSaturate = false;
  static constexpr int kFactors = 4;
  static constexpr int kFactorRows[] = {8, 8, 8, 8};
  static constexpr int kFactorColumns[] = {8, 8, 8, 8};
  static constexpr int kDigits = 2;
  static constexpr int kDigitFactor[] = {0, 2, 4};
  static constexpr int kContracted[] = {64, 64};
  static constexpr int kProduced[] = {64, 64};
};
}  // namespace

extern "C" int kron_bf16_8x8p4_amx(const void* parameters, int alone) {
  return kronop::kron_amx_matmul<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
