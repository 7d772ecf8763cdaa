// Products of split float32 in contract_group.cuh: three for one, in chains that ordinary additions collect.
//
// NOTE: the tensor cores truncate sums, so a few products follow each other and their sum leaves. While one chain is
// multiplied, that before it is collected and the operands of the next are split: so from stage to stage, and from tile to
// tile, that the tensor cores do not wait for a team alone.
#pragma once

#include "group_tiles.cuh"

namespace kronop {
namespace contract {

template <class Step>
struct GroupChains {
  using Operand = typename Step::Factor;
  using X = typename GroupTiles<Step>::X;
  using W = typename GroupTiles<Step>::W;
  static constexpr int kLanes = Step::kLanes / Step::kGroupsLanes, kM = Step::kTeamM, kN = Step::kTileN / 8;
  static constexpr int kApart = kTeamRows * Step::kGroupsM, kSlab = 8;
  // Slabs of a fragment, fragments of a stage's contracted steps and of a chain.
  static constexpr int kSlabs = kLanes == 1 ? 2 : 1, kDepth = Step::kTileK / (kSlab * kSlabs), kLong = Step::kChainSlabs / kSlabs;
  // Outputs / 8 of a chain, chains side by side, chains of a stage, and how many have registers.
  static constexpr int kOutputs = Step::kChainN / 8, kAcross = kN / kOutputs * kLanes, kHeld = kLong > 1 && kAcross > 2 ? kAcross : 2;
  static constexpr int kFragments = kM * kDepth, kGroups = kFragments * kAcross;  // of products that are waited for together
  using Sums = float[kLanes][kM][kN][4];
  float chain[kHeld][kOutputs][4];
  unsigned a[2][kSlabs][kLanes][4], rest[2][kSlabs][kLanes][4];

  // Of number `stage` of those that follow each other; `release` is called when the products of the stage before are done.
  template <class Release>
  KRONOP_INLINE void add(Sums& of, const Operand* x, const GroupMatrix& right, int stage, const Release& release) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const int k = f % kDepth * kSlab * kSlabs;
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) load_split(a[(stage * kFragments + f) % 2][s], rest[(stage * kFragments + f) % 2][s], x + (k + s * kSlab) * X::kOwn + f / kDepth * kApart * X::kWide);
#pragma unroll
      for (int i = 0; i < kAcross; ++i) {
        const int group = (stage * kFragments + f) * kAcross + i;
        begin_group_products();
        multiply(chain[chain_of(group) % kHeld], a[(stage * kFragments + f) % 2], rest[(stage * kFragments + f) % 2], i % kLanes, k, i / kLanes * kOutputs * 8, f % kLong > 0, right);
        commit_group_products();
        wait_for_group_products<1>();
        if (group > 0) collect_after(of, group - 1);
        if (f + i == 0) release();
      }
    }
  }
  // After so many stages.
  KRONOP_INLINE void settle(Sums& of, int stages) {
    wait_for_group_products<0>();
    collect_after(of, stages * kGroups - 1);
  }

 private:
  static KRONOP_INLINE constexpr int chain_of(int group) { return group / (kAcross * kLong) * kAcross + group % kAcross; }
  // If this is the last group of its chain.
  KRONOP_INLINE void collect_after(Sums& of, int group) {
    const int f = group / kAcross % kFragments, i = group % kAcross, l = i % kLanes, m = f / kDepth;
    if (f % kLong < kLong - 1) return;
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[l][m][i / kLanes * kOutputs + n][e] += chain[chain_of(group) % kHeld][n][e];
    }
  }
  // Small products first.
  static KRONOP_INLINE void multiply(float (&chain)[kOutputs][4], const unsigned (&a)[kSlabs][kLanes][4], const unsigned (&rest)[kSlabs][kLanes][4], int l, int k, int n, bool more, const GroupMatrix& right) {
    constexpr int plane = W::kSize * int(sizeof(Operand));
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      const int place = W::bytes(l, k + s * kSlab, n);
      group_product<Operand>(chain, rest[s][l], right.after(place), more || s > 0);
      group_product<Operand>(chain, a[s][l], right.after(place + plane), true);
    }
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) group_product<Operand>(chain, a[s][l], right.after(W::bytes(l, k + s * kSlab, n)), true);
  }
  static KRONOP_INLINE void load_split(unsigned (&a)[kLanes][4], unsigned (&rest)[kLanes][4], const Operand* x) {
    Operand values[kLanes][4];
    load_elements<X, 2, 8, true>(values, x);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Operand value = round_to_tf32(values[l][e]);
        a[l][e] = __builtin_bit_cast(unsigned, value);
        rest[l][e] = __builtin_bit_cast(unsigned, values[l][e] - value);
      }
    }
  }
};

}  // namespace contract
}  // namespace kronop
