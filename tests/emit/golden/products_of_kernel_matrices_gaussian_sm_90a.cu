// packs points and columns
#include "product_pack.cuh"

using Parameters = kronop::ProductPackParameters;
static_assert(sizeof(Parameters) == 456);

struct Step {
  using Input = float;
  using Accumulator = float;
  static constexpr int kThreads = 256, kBlocks = 1, kPiece = 32;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_pack_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_pack<Step>(parameters);
}

// the centre of points, and the largest distance from it
#include "product_measure.cuh"

using Parameters = kronop::ProductMeasureParameters;
static_assert(sizeof(Parameters) == 184);

struct Step {
  using Input = float;
  static constexpr int kThreads = 256, kBlocks = 1, kDepth = 16;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_measure_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_measure<Step>(parameters);
}

// packs points for tensor cores
#include "product_halves.cuh"

using Parameters = kronop::ProductHalvesParameters;
static_assert(sizeof(Parameters) == 232);

struct Step {
  using Input = float;
  static constexpr int kThreads = 256, kBlocks = 1, kDepth = 16, kRows = 64, kWarpRows = 32;
  static constexpr bool kStacked = false;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_halves_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_halves<Step>(parameters);
}

// products of a kernel matrix, by products of points
#include "product_mma.cuh"

using Parameters = kronop::ProductParameters<2, 1>;
static_assert(sizeof(Parameters) == 440);

struct Step {
  using Accumulator = float;
  using Numbers = kronop::product::Numbers<float>::type;
  static constexpr int kThreads = 256, kBlocks = 3, kValues = 2, kVectors = 0, kThreadM = 4,
      kWarpRows = 32, kWarpsN = 1, kTileM = 256, kTileN = 128, kDepth = 16, kUnroll = 1,
      kColumns = 1;
  static constexpr bool kStacked = false, kTogether = false, kEither = true;
  struct Kernel {
    KRONOP_INLINE static Numbers value(const Numbers (&s)[1], const Numbers* h) {
      const Numbers v0 = Numbers(1.0) / h[0];
      return kronop::math::exp(s[0] * (v0 * Numbers(-0.5)) * v0);
    }
  };
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_mma_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_mma<Step>(parameters);
}

// the same by differences, if products are not accurate enough
#include "product_tile.cuh"

using Parameters = kronop::ProductParameters<2, 1>;
static_assert(sizeof(Parameters) == 440);

struct Step {
  using Input = float;
  using Accumulator = float;
  using Numbers = kronop::product::Numbers<float>::type;
  static constexpr int kThreads = 256, kBlocks = 2, kTerm[] = {4}, kTermValue[] = {-1},
      kTermVector[] = {-1}, kValues = 2, kVectors = 0, kThreadM = 8, kThreadN = 8, kWarpsN = 4,
      kTileM = 128, kTileN = 128, kSlab = 16, kColumns = 1;
  static constexpr bool kTogether = false, kEither = true;
  struct Kernel {
    KRONOP_INLINE static Numbers value(const Numbers (&s)[1], const Numbers* h) {
      const Numbers v0 = Numbers(1.0) / h[0];
      return kronop::math::exp(s[0] * (v0 * Numbers(-0.5)) * v0);
    }
  };
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_tile_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_tile<Step>(parameters);
}

// adds up shares of the columns
#include "product_sum.cuh"

using Parameters = kronop::ProductSumParameters<double>;
static_assert(sizeof(Parameters) == 328);

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
  static constexpr int kThreads = 256, kBlocks = 1;
  static constexpr bool kRegularized = true;
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_sum_f32_two_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_sum<Step>(parameters);
}
