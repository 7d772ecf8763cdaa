// kernels of pairs of points: tiles of 6 by 64
#include "distance.hpp"

using Parameters = kronop::DistanceParameters<1, 1, 2, double>;
static_assert(sizeof(Parameters) == 408);

namespace {
struct Step {
  using Input = float;
  using Output = float;
  using Accumulator = float;
  using Numbers = kronop::Numbers<kronop::Vector<float, 16>>;
  struct Epilogue : kronop::Scaling<float> {
    using Scaling::Scaling;
    KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias) const {
      return alpha * accumulator + beta * source + bias;
    }
  };
  static constexpr int kTerm[] = {10}, kTermValue[] = {-1}, kTermVector[] = {-1}, kValues = 0,
      kVectors = 0, kWidth = 16, kTileVectors = 4, kRows = 6, kDepth = 256, kBlockRows = 192,
      kBlockColumns = 256;
  static constexpr bool kRegularized = false, kSymmetric = false, kExpanded = false;
  struct Kernel {
    KRONOP_INLINE static Numbers value(const Numbers (&s)[1], const Numbers* h) {
      return s[0];
    }
  };
};
}  // namespace

extern "C" int distance_f32_dot_linear_avx512(const void* parameters, int alone) {
  return kronop::distance<Step>(*static_cast<const Parameters*>(parameters), alone != 0);
}
