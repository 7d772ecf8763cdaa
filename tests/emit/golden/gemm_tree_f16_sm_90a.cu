// a matrix product by tensor cores of 2 x 2 warps, tiles of 128 x 128 x 64, 4 stages
#include "gemm_mma.cuh"

using Parameters = kronop::GemmVisitorParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 632);

struct Step {
  using Input = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  using Rounded = kronop::half_t;
  struct Epilogue : kronop::Visitor<float, kronop::Types<kronop::half_t, kronop::half_t,
          kronop::half_t>, kronop::Types<kronop::half_t, kronop::half_t,
          kronop::Reduced<kronop::Maximum, kronop::Axis::kRow>, kronop::Reduced<kronop::Sum,
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
  static constexpr int kThreads = 128, kTileM = 128, kTileN = 128, kTileK = 64, kVectorA = 8,
      kVectorB = 8, kBand = 1, kBlocks = 1, kStages = 4, kWarpsM = 2, kWarpM = 64, kWarpN = 64,
      kWay = 0;
  static constexpr bool kAcrossA = false, kAcrossB = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
gemm_mma_f16_visitor_128x128x64_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_mma<Step>(parameters);
}
