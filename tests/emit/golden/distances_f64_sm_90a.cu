// kernels of pairs of points: tiles of 128 by 64 by 16, threads of 8 by 4
#include "distance_tile.cuh"

using Parameters = kronop::DistanceParameters<1, 1, 4, double>;
static_assert(sizeof(Parameters) == 424);

struct Step {
  using Input = double;
  using Factor = double;
  using Output = double;
  using Accumulator = double;
  struct Epilogue : kronop::Scaling<double> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 256, kBlocks = 2, kTileM = 128, kTileN = 64, kTileK = 16,
      kThreadM = 8, kThreadN = 4, kTerm[] = {10}, kTermValue[] = {-1}, kTermVector[] = {-1},
      kValues = 0, kVectors = 0;
  static constexpr bool kRegularized = false, kSymmetric = false;
  struct Kernel {
    KRONOP_INLINE static Accumulator value(const Accumulator (&s)[1], const Accumulator* h) {
      return s[0];
    }
  };
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
distance_f64_dot_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::distance_tile<Step>(parameters);
}
