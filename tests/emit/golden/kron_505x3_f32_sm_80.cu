// digit 0 of 1 (505x3), tiles of 1 lanes x 64 x 4 x 8, 2 x 4 a thread
#include "kronop/contract.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = float;
  using Factor = float;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 32, kBlocks = 8, kStages = 2, kLanes = 1, kTileM = 64, kTileN = 4,
      kTileK = 8, kThreadM = 2, kThreadN = 4, kContracted = 505, kProduced = 3, kXOrder = 0,
      kWOrder = 1, kYOrder = 0, kXVector = 1, kWVector = 1, kYVector = 1, kPad = 4,
      kTileBytesAt = 1536;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
kron_f32_505x3_contract_r_d0of1_s0of1_f32_linear_sm_80(const __grid_constant__ Parameters parameters) {
  kronop::contract_tiles<Step>(parameters);
}
