// Constants and packing of weights that both variants of a Kronecker-sparse product on AMX tiles
// share (ksparse_amx.hpp).
#pragma once

#include "kronop_x86/amx_results.hpp"
#include "ksparse.hpp"
#include "kronop_x86/units.hpp"

namespace kronop {
namespace ksparse {

template <class Step>
struct Tiles {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static_assert(detail::is_same<Compute, packed::SumOf<Element>> &&
                sizeof(Compute) == packed::kUnitBytes);
  static constexpr packed::DepthOf<Element> kDepth{Step::kC};
  static constexpr int kPack = packed::kPackOf<Element>;
  // Units of the packed weights of one i and l.
  static constexpr index_t kPanel =
      packed::factor_numbers<Element>(Step::kC, Step::kOutputs) / kPack;
  // Whether results without an epilogue are sums rounded to bf16; otherwise they are the sums
  // themselves.
  static constexpr bool kRounds = Step::kDirect && detail::is_same<Compute, float> &&
                                  detail::is_same<typename Step::Output, bfloat16_t>;

  // Calls action(outputs of the patch as a type). Patches have only two sizes.
  template <class Action>
  static KRONOP_INLINE void sized(const Patch& patch, const Action& action) {
    constexpr int kRest = Step::kB % Step::kOutputs;
    if constexpr (kRest > 0) {
      if (patch.outputs == kRest) return action(Constant<kRest>{});
    }
    action(Constant<Step::kOutputs>{});
  }

  // Packs weights of any strides, element by element.
  template <bool kLeft, int kOutputs>
  static void pack_any(Element* to, const Weights<Element>& weights) {
    for (index_t l = 0; l < Step::kSlices; ++l) {
      packed::pack_factor<kLeft, Step::kC, kOutputs>(
          to + l * kPanel * kPack, [&](index_t k, index_t j) {
            return weights.data[j * weights.j + k * weights.k + l * weights.l];
          });
    }
  }

  // Zeroes a packed factor, and calls action(tile, its first output, its first k) for each step of
  // each of its tiles.
  template <int kOutputs, class Action>
  static KRONOP_INLINE void each_tile(Element* to, const Action& action) {
    constexpr packed::Cut kCut = packed::cut(kOutputs);
    __builtin_memset(to, 0, kPanel * Step::kSlices * packed::kUnitBytes);
    for (index_t block = 0; block < kCut.blocks(kOutputs); ++block) {
      for (int tile = 0; tile < kCut.tiles(); ++tile) {
        const index_t j = kCut.start(block, kOutputs) + tile * kCut.second;
        for (index_t k = 0; k < kDepth.steps() * kDepth.numbers();
             k += kDepth.numbers(), to += packed::kTile * kLine) {
          action(to, j, k);
        }
      }
    }
  }
  static constexpr int kLine = packed::kLineBytes / sizeof(Element);
  // Numbers of the step that starts at k.
  static KRONOP_INLINE index_t count(index_t k) {
    return Step::kC - k < kDepth.numbers() ? Step::kC - k : kDepth.numbers();
  }

  // The sink for results without an epilogue.
  using PlainRows = typename packed::RowsOf<Compute, kRounds>::Type;
};

}  // namespace ksparse
}  // namespace kronop
