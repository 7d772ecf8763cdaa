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
product_pack_f32_one_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_pack<Step>(parameters);
}

// products of a kernel matrix
#include "product_tile.cuh"

using Parameters = kronop::ProductParameters<2, 1>;
static_assert(sizeof(Parameters) == 440);

struct Step {
  using Input = float;
  using Accumulator = float;
  using Numbers = kronop::product::Numbers<float>::type;
  static constexpr int kThreads = 256, kBlocks = 2, kTerm[] = {2}, kTermValue[] = {-1},
      kTermVector[] = {-1}, kValues = 2, kVectors = 0, kThreadM = 8, kThreadN = 8, kWarpsN = 4,
      kTileM = 128, kTileN = 128, kSlab = 16, kColumns = 1;
  static constexpr bool kTogether = false, kEither = false;
  struct Kernel {
    KRONOP_INLINE static Numbers value(const Numbers (&s)[1], const Numbers* h) {
      return kronop::math::exp(s[0] / h[0] * Numbers(-1.0));
    }
  };
};

extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
product_tile_f32_one_linear_sm_90a(const __grid_constant__ Parameters parameters) {
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
product_sum_f32_one_linear_sm_90a(const __grid_constant__ Parameters parameters) {
  kronop::product_sum<Step>(parameters);
}
