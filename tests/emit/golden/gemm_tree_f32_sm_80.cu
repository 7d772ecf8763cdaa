// a matrix product by tiles of 128 x 64 x 16, threads of 8 x 4
#include "gemm_tile.cuh"

using Parameters = kronop::GemmVisitorParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 632);

struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Visitor<float, kronop::Types<float, float, float>, kronop::Types<float,
          float, kronop::Reduced<kronop::Maximum, kronop::Axis::kRow>, kronop::Reduced<kronop::Sum,
          kronop::Axis::kColumn>>> {
    Compute scalar0;
    template <class Scalar>
    KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : scalar0(Compute(scalars[0])) {}
    template <class At>
    KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {
      const Compute operand0 = at.operand(0);
      const Compute operand1 = at.operand(1);
      const Compute operand2 = at.operand(2);
      const Compute v0 = scalar0 * accumulator;
      const Compute v1 = kronop::math::max(v0 + operand0, Compute(0.0)) * operand2 + operand1;
      const Compute v2 = accumulator - operand0;
      at.keep(0, v1);
      at.keep(1, v0);
      at.keep(2, accumulator);
      at.keep(3, v2);
    }
  };
  static constexpr int kThreads = 256, kTileM = 128, kTileN = 64, kTileK = 16, kVectorA = 4,
      kVectorB = 4, kBand = 1, kBlocks = 2, kThreadM = 8, kThreadN = 4;
  static constexpr bool kAcrossA = false, kAcrossB = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gemm_tile_f32_visitor_128x64x16_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::gemm_tile<Step>(parameters);
}
