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
  // Slabs of a chain, outputs / 8 of it, chains of a fragment of one lane, and fragments and chains of a stage.
  static constexpr int kSlabs = kLanes == 1 ? 2 : 1, kOutputs = Step::kChainN / 8, kAcross = kN / kOutputs;
  static constexpr int kDepth = Step::kTileK / (kSlab * kSlabs), kFragments = kM * kDepth, kJobs = kFragments * kLanes * kAcross;
  // Two fragments take turns; an odd number of them in a stage would meet the next one's first.
  static constexpr bool kFollows = kFragments % 2 == 0;
  using Sums = float[kLanes][kM][kN][4];
  float chain[2][kOutputs][4];
  unsigned a[2][kSlabs][kLanes][4], rest[2][kSlabs][kLanes][4];

  // `follows` says that the last chain of a stage before is in flight; `release` is called when that is done.
  template <class Release>
  KRONOP_INLINE void add(Sums& of, const Operand* x, const GroupMatrix& right, bool follows, const Release& release) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const int k = f % kDepth * kSlab * kSlabs;
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) load_split(a[f % 2][s], rest[f % 2][s], x + (k + s * kSlab) * X::kOwn + f / kDepth * kApart * X::kWide);
#pragma unroll
      for (int i = 0; i < kLanes * kAcross; ++i) {
        const int job = f * kLanes * kAcross + i;
        begin_group_products();
        multiply(chain[job % 2], a[f % 2], rest[f % 2], i / kAcross, k, i % kAcross * kOutputs * 8, right);
        commit_group_products();
        wait_for_group_products<1>();
        if (job > 0 || follows) collect(of, (job + kJobs - 1) % kJobs);
        if (job == 0) release();
      }
    }
    if constexpr (!kFollows) settle(of);
  }
  KRONOP_INLINE void settle(Sums& of) {
    wait_for_group_products<0>();
    collect(of, kJobs - 1);
  }

  KRONOP_INLINE void end(Sums& of) {
    if constexpr (kFollows) settle(of);
  }

 private:
  KRONOP_INLINE void collect(Sums& of, int job) {
    const int across = job % kAcross, l = job / kAcross % kLanes, m = job / (kAcross * kLanes * kDepth);
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[l][m][across * kOutputs + n][e] += chain[job % 2][n][e];
    }
  }
  // Small products first.
  static KRONOP_INLINE void multiply(float (&chain)[kOutputs][4], const unsigned (&a)[kSlabs][kLanes][4], const unsigned (&rest)[kSlabs][kLanes][4], int l, int k, int n, const GroupMatrix& right) {
    constexpr int plane = W::kSize * int(sizeof(Operand));
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      const int place = W::bytes(l, k + s * kSlab, n);
      group_product<Operand>(chain, rest[s][l], right.after(place), s > 0);
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
