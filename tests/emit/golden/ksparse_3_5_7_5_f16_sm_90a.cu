// I_3 x dense(5, 7) x I_5, batch_first, tiles of 5 lanes x 64 x 8 x 8, 4 x 4 a thread
#include "kronop/contract.cuh"

using Parameters = kronop::ContractParameters<double>;
static_assert(sizeof(Parameters) == 480);

struct Step {
  using Input = kronop::half_t;
  using Factor = kronop::half_t;
  using Output = kronop::half_t;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 160, kBlocks = 1, kStages = 2, kLanes = 5, kTileM = 64,
      kTileN = 8, kTileK = 8, kThreadM = 4, kThreadN = 4, kContracted = 7, kProduced = 5,
      kXOrder = 2, kWOrder = 2, kYOrder = 2, kXVector = 1, kWVector = 1, kYVector = 1, kPad = 4,
      kTileBytesAt = 1536;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
ksparse_f16_3_5_7_5_batch_first_f16_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::contract_tiles<Step>(parameters);
}
