// a matrix product by warp groups, tiles of 128 x 128 in turn, 3 stages, clusters of 2
#include "gemm_warp_group.cuh"

using Parameters = kronop::GemmWarpGroupVisitorParameters<1, double, 7, 4>;
static_assert(sizeof(Parameters) == 832);

struct Step {
  using Input = kronop::bfloat16_t;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Visitor<float, kronop::Types<kronop::bfloat16_t, kronop::bfloat16_t,
          kronop::bfloat16_t>, kronop::Types<kronop::bfloat16_t, kronop::bfloat16_t,
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
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 128, kStages = 3,
      kLines = 4, kBuffers = 1, kCluster = 2, kBand = 8, kSharedBytes = 202752, kCopyRegisters = 24,
      kProductRegisters = 240, kFoldBytes = 18944, kRepeating = 4;
  static constexpr bool kAlternate = true, kTurnedA = false, kTurnedB = true, kSplit = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks) __cluster_dims__(Step::kCluster)
gemm_warp_group_bf16_visitor_128x128_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::gemm_warp_group<Step>(parameters);
}
