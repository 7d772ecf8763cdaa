// Constants that follow from the decisions of a pass of a Kronecker matmul, for both kinds of
// tiles.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {
namespace kron {

template <class Decided>
struct TileStep : Decided {
  static constexpr int kDigits = count_of(Decided::kContracted);
  static constexpr int kSizeIn = product_of(Decided::kContracted),
                       kSizeOut = product_of(Decided::kProduced);
  // Whether no digit grows, and none shrinks.
  static constexpr bool kNoneGrows = all_at_least(Decided::kContracted, Decided::kProduced);
  static constexpr bool kNoneShrinks = all_at_least(Decided::kProduced, Decided::kContracted);
};

// On the tensor cores (kron_mma.cuh).
template <class Decided>
struct MmaStep : TileStep<Decided> {
  static constexpr int kFactors = count_of(Decided::kFactorContracted),
                       kPhases = count_of(Decided::kPhaseDigit);
  static constexpr int kTileBytes =
      Decided::kRows * Decided::kRowStride * 2;  // with two buffers of 16-bit elements
  static constexpr bool kSquare = MmaStep::kNoneGrows && MmaStep::kNoneShrinks;
  // Strides are padded: the digits are never contiguous in the tile.
  static constexpr bool kDenseIn = false, kDenseOut = false;
};

// On the ordinary cores (kron_tile.cuh). Each digit has slots for the larger of its sizes: the data
// is contiguous in the tile before the pass if none grows, and after it if none shrinks.
template <class Decided>
struct SimtStep : TileStep<Decided> {
  static constexpr int kPhases = count_of(Decided::kPhaseFirst);
  static constexpr int kVector =
      16 / sizeof(typename Decided::Accumulator);  // of one access to shared memory
  // Accesses of a thread to X in flight.
  static constexpr int kUnroll = Decided::kXVector > 2 ? 16 / Decided::kXVector : 8;
  static constexpr bool kDenseIn = SimtStep::kNoneGrows, kDenseOut = SimtStep::kNoneShrinks;
  static constexpr bool kEqualFactors =
      all_equal(Decided::kContracted) && all_equal(Decided::kProduced);

  // The offset of a digit's factor.
  KRONOP_INLINE static constexpr int factor_at(int digit) {
    int at = 0;
    for (int i = 0; i < digit; ++i) at += Decided::kContracted[i] * Decided::kFactorPitch[i];
    return at;
  }
};

// The number of fibers of a phase.
template <class Step>
KRONOP_INLINE constexpr int fibers_of(int phase) {
  return product_of(Step::kAxisExtent, Step::kPhaseAxis[phase], Step::kPhaseAxis[phase + 1]);
}

// The stride of a digit of the pass, before the pass and after it.
template <class Step>
KRONOP_INLINE constexpr int step_in(int digit) {
  return product_of(Step::kContracted, digit + 1);
}
template <class Step>
KRONOP_INLINE constexpr int step_out(int digit) {
  return product_of(Step::kProduced, digit + 1);
}

}  // namespace kron
}  // namespace kronop
