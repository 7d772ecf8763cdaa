// Products of split float32 in contract_warp_group.cuh: three MMAs for each product, in short
// chains whose sums are added up by ordinary additions. NOTE: the tensor cores truncate when they
// accumulate, so only a few MMAs are chained. While one chain is multiplied, the previous one is
// collected and the operands of the next one are split, within kTogether stages.
#pragma once

#include "warp_group_tiles.cuh"

namespace kronop {
namespace contract {

template <class Step>
struct WarpGroupChains {
  using Operand = typename Step::Factor;
  using X = typename WarpGroupTiles<Step>::X;
  using W = typename WarpGroupTiles<Step>::W;
  static constexpr int kLanes = Step::kLanes / Step::kTeamsAlongLanes, kM = Step::kTeamM,
                       kN = WarpGroupTiles<Step>::kTeamN / 8;
  static constexpr int kApart = kTeamRows * Step::kTeamsAlongM, kSlab = 8;
  // Slabs of a fragment; fragments along the contracted steps of a stage, in a whole stage, and in
  // a chain.
  static constexpr int kSlabs = kLanes == 1 ? 2 : 1, kDepth = Step::kTileK / (kSlab * kSlabs),
                       kFragments = kM * kDepth;
  static constexpr int kLong = Step::kChainSlabs / kSlabs;
  // Outputs / 8 of a chain; chains side by side, and how many of them are in registers.
  static constexpr int kOutputs = Step::kChainN / 8, kAcross = kN / kOutputs * kLanes;
  static constexpr int kHeld = kLong > 1 && kAcross > 2 ? kAcross : 2;
  static_assert(kDepth % kLong == 0);
  // Whether all stages of a tile are multiplied together.
  static constexpr bool kAtOnce = WarpGroupTiles<Step>::kSteps == Step::kTogether;
  using Sums = float[kLanes][kM][kN][4];
  using Chain = float[kOutputs][4];
  using Fragments = unsigned[kSlabs][kLanes][4];

  // Multiplies stage `stage` of the stages that are multiplied together. release() is called when
  // the MMAs of the previous stage have ended.
  template <class Release>
  KRONOP_INLINE void add(Sums& of, const Operand* x, const WarpGroupMatrix& right, int stage,
                         const Release& release) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const int k = f % kDepth * kSlab * kSlabs, fragment = stage * kFragments + f,
                buffer = fragment % 2;
      load_split(values[buffer], rest[buffer], x + k * X::kOwn + f / kDepth * kApart * X::kWide);
#pragma unroll
      for (int i = 0; i < kAcross; ++i) {
        const int set = fragment * kAcross + i, output = i / kLanes * kOutputs * 8;
        begin_warp_group_products();
        multiply(chains[chain_of(set)], buffer, i % kLanes, k, output, f % kLong > 0, right);
        commit_warp_group_products();
        wait_for_warp_group_products<1>();
        if (set > 0) collect_after(of, set - 1);
        if (stage > 0 && f + i == 0) release();
      }
    }
  }
  template <class Release>
  KRONOP_INLINE void settle(Sums& of, const Release& release) {
    wait_for_warp_group_products<0>();
    release();
    collect_after(of, Step::kTogether * kFragments * kAcross - 1);
  }

 private:
  Chain chains[kHeld];
  Fragments values[2], rest[2];

  // The chain of a commit group (a set of MMAs). Sets are waited for in order, so the sets of
  // chains side by side alternate.
  static KRONOP_INLINE constexpr int chain_of(int set) {
    return (set / (kAcross * kLong) * kAcross + set % kAcross) % kHeld;
  }
  // Adds up a chain after its last set. NOTE: the first chain of a sum becomes the sum, instead of
  // being added to zero. Where several sums that the compiler knows to be zero get the values of
  // one chain in turn, ptxas (13.0 and 13.5) treats `chain + 0` as the same number each time,
  // although MMAs rewrite the chain in between. It gives the last value to all of the sums and
  // drops the MMAs of the earlier ones.
  KRONOP_INLINE void collect_after(Sums& of, int set) {
    const int f = set / kAcross % kFragments, i = set % kAcross;
    if (f % kLong < kLong - 1) return;
    const bool first = kAtOnce && set < kFragments * kAcross && f % kDepth < kLong;
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& sum = of[i % kLanes][f / kDepth][i / kLanes * kOutputs + n][e];
        const float more = chains[chain_of(set)][n][e];
        sum = first ? more : sum + more;
      }
    }
  }
  // Small terms first, as everywhere (mma.cuh).
  KRONOP_INLINE void multiply(Chain& chain, int buffer, int l, int k, int n, bool goes_on,
                              const WarpGroupMatrix& right) {
    constexpr int plane = W::kSize * int(sizeof(Operand));
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      const int place = W::bytes(l, k + s * kSlab, n);
      warp_group_product<Operand>(chain, rest[buffer][s][l], right.after(place), goes_on || s > 0);
      warp_group_product<Operand>(chain, values[buffer][s][l], right.after(place + plane), true);
    }
#pragma unroll
    for (int s = 0; s < kSlabs; ++s)
      warp_group_product<Operand>(chain, values[buffer][s][l],
                                  right.after(W::bytes(l, k + s * kSlab, n)), true);
  }
  static KRONOP_INLINE void load_split(Fragments& to, Fragments& rest, const Operand* x) {
    Operand all[kLanes][4];
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      load_elements<X, 2, 8, true>(all, x + s * kSlab * X::kOwn);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Operand value = round_to_tf32(all[l][e]);
          to[s][l][e] = __builtin_bit_cast(unsigned, value);
          rest[s][l][e] = __builtin_bit_cast(unsigned, all[l][e] - value);
        }
      }
    }
  }
};

}  // namespace contract
}  // namespace kronop
