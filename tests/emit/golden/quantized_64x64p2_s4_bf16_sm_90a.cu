// product of digits (64, 64) by (64, 64), a scale for each row and its integers
#include "quantized_pair.cuh"

using Parameters = kronop::QuantizedPairParameters<2>;
static_assert(sizeof(Parameters) == 312);

struct Step {
  using Input = kronop::bfloat16_t;
  static constexpr int kThreads = 128, kBlocks = 3, kFactors = 2, kSplit = 1,
      kFactorRows[] = {64, 64}, kFactorColumns[] = {64, 64}, kContracted[] = {64, 64},
      kProduced[] = {64, 64}, kBits = 4, kRows = 1, kTiles = 1, kStages = 2, kSharedBytes = 42048;
  static constexpr bool kKeepsA = true, kKeepsB = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
quantized_pair_bf16_64x64p2_s4_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::quantized_pair<Step>(parameters);
}
