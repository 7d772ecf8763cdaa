// points in the order of products, with their norms
#include "distance_pack.cuh"

using Parameters = kronop::DistanceWarpGroupParameters<1, 1, 4, double>;
static_assert(sizeof(Parameters) == 520);

struct Step {
  using Input = float;
  using Factor = kronop::half_t;
  using Output = float;
  using Accumulator = float;
  static constexpr int kThreads = 256, kBlocks = 3;
  static constexpr bool kSplit = true, kCentred = false, kLengths = false, kSymmetric = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
distance_pack_f32_dot_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::distance_pack<Step>(parameters);
}

// kernels of pairs of points: split products of tensor cores in tiles of 128 by 192 by 32
#include "distance_warp_group.cuh"

using Parameters = kronop::DistanceWarpGroupParameters<1, 1, 4, double>;
static_assert(sizeof(Parameters) == 520);

struct Step {
  using Input = float;
  using Factor = kronop::half_t;
  using Output = float;
  using Accumulator = float;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kThreads = 384, kBlocks = 1, kTileM = 128, kTileN = 192, kStages = 5,
      kSharedBytes = 210032, kProductRegisters = 232, kCopyRegisters = 40, kTerm[] = {10},
      kValues = 0;
  static constexpr bool kSplit = true, kSymmetric = false, kRegularized = false;
  struct Kernel {
    KRONOP_INLINE static Accumulator value(const Accumulator (&s)[1], const Accumulator* h) {
      return s[0];
    }
  };
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
distance_warp_group_f32_dot_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::distance_warp_group<Step>(parameters);
}
