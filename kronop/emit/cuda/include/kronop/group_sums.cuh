// Products of the stages of contract_group.cuh: the sums of a team of four warps.
#pragma once

#include "group_tiles.cuh"

namespace kronop {
namespace contract {

// The sums of a team, and the products of a stage.
template <class Step>
struct GroupSums {
  using Operand = typename Step::Factor;
  using Tiles = GroupTiles<Step>;
  using X = typename Tiles::X;
  using W = typename Tiles::W;
  static constexpr int kLanes = Step::kLanes / Step::kGroupsLanes, kM = Step::kTeamM, kN = Tiles::kTeamN / 8;
  static constexpr int kApart = kTeamRows * Step::kGroupsM;  // from a team's rows to its next ones
  static constexpr int kSlab = 32 / int(sizeof(Operand));    // contracted steps of a product
  float of[kLanes][kM][kN][4] = {};

  // The first lane, output and row of this team, and of this warp.
  static KRONOP_INLINE int lane() { return threadIdx.x / kTeam % Step::kGroupsLanes * kLanes; }
  static KRONOP_INLINE int output() { return threadIdx.x / kTeam / Step::kGroupsLanes % Step::kGroupsN * Tiles::kTeamN; }
  static KRONOP_INLINE int row() { return threadIdx.x / (kTeam * Step::kGroupsLanes * Step::kGroupsN) * kTeamRows; }
  static KRONOP_INLINE int warp_row() { return row() + threadIdx.x / 32 % 4 * 16; }

  // Products that are left in flight read the stage that they were started for.
  KRONOP_INLINE void add(const Operand* x, const Operand* w) {
    const GroupMatrix right = W::matrix(w + W::start(lane(), 0, output()));
    if constexpr (Step::kDirect) {
      add_direct(X::matrix(x + X::start(0, 0, row())), right);
    } else if constexpr (sizeof(Operand) == 2) {
      add_words(x + X::at(lane(), 0, warp_row()), right);
    } else {
      add_elements(x + X::at(lane(), 0, warp_row()), right);
    }
  }

 private:
  // NOTE: ptxas wants more than the 128 registers that a kernel of 512 threads starts with for a product of 256 outputs, whatever
  // a team takes later.
  KRONOP_INLINE void add_direct(const GroupMatrix& left, const GroupMatrix& right) {
    constexpr int products = kN > 24 ? 2 : 1, outputs = kN / products;
    begin_group_products();
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        auto& sums = reinterpret_cast<float(&)[products][outputs][4]>(of[0][m]);
#pragma unroll
        for (int p = 0; p < products; ++p) {
          group_product<Operand, X::kTurned>(sums[p], left.after(X::bytes(0, k, m * kApart)), right.after(W::bytes(0, k, p * outputs * 8)), true);
        }
      }
    }
    commit_group_products();
  }

  // Fragments of the next products are loaded while those before are multiplied, where there is room for both.
  KRONOP_INLINE void add_words(const Operand* x, const GroupMatrix& right) {
    constexpr int jobs = Step::kTileK / kSlab * kM, buffers = kLanes <= 4 && jobs % 2 == 0 ? 2 : 1;
    unsigned a[buffers][kLanes][4];
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const int job = k / kSlab * kM + m;
        wait_for_group_products<buffers - 1>();
        load_words<X, 8, false, false>(a[job % buffers], x + k * X::kOwn + m * kApart * X::kWide);
        begin_group_products();
#pragma unroll
        for (int l = 0; l < kLanes; ++l) group_product<Operand>(of[l][m], a[job % buffers][l], right.after(W::bytes(l, k, 0)), true);
        commit_group_products();
      }
    }
  }

  // NOTE: the tensor cores truncate sums: a few products follow each other, ordinary additions collect them.
  KRONOP_INLINE void add_elements(const Operand* x, const GroupMatrix& right) {
    constexpr int steps = Step::kSplit && kLanes == 1 ? 2 : 1;
    float chain[2][kN][4];
    unsigned a[2][steps][kLanes][4], rest[2][steps][kLanes][4];
    int job = 0;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < Step::kTileK; k += kSlab * steps) {
        const int buffer = (m * (Step::kTileK / (kSlab * steps)) + k / (kSlab * steps)) % 2;
#pragma unroll
        for (int s = 0; s < steps; ++s) load_split(a[buffer][s], rest[buffer][s], x + (k + s * kSlab) * X::kOwn + m * kApart * X::kWide);
#pragma unroll
        for (int l = 0; l < kLanes; ++l) {
          begin_group_products();
          if constexpr (Step::kSplit) {
            multiply_chain<steps>(chain[job % 2], a[buffer], rest[buffer], l, k, right);
          } else {
            group_product<Operand>(of[l][m], a[buffer][0][l], right.after(W::bytes(l, k, 0)), true);
          }
          commit_group_products();
          wait_for_group_products<1>();
          if constexpr (Step::kSplit) {
            if (job > 0) collect_chain(chain[(job - 1) % 2], job - 1);
          }
          ++job;
        }
      }
    }
    wait_for_group_products<0>();
    if constexpr (Step::kSplit) collect_chain(chain[(job - 1) % 2], job - 1);
  }
  // Jobs are in the order of rows, steps and lanes.
  KRONOP_INLINE void collect_chain(const float (&chain)[kN][4], int job) {
    constexpr int steps = kLanes == 1 ? 2 : 1, jobs = Step::kTileK / (kSlab * steps) * kLanes;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[job % kLanes][job / jobs][n][e] += chain[n][e];
    }
  }
  // Small products first.
  template <int kSteps>
  KRONOP_INLINE void multiply_chain(float (&chain)[kN][4], const unsigned (&a)[kSteps][kLanes][4], const unsigned (&rest)[kSteps][kLanes][4], int l, int k, const GroupMatrix& right) {
    constexpr int plane = W::kSize * int(sizeof(Operand));
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int place = W::bytes(l, k + s * kSlab, 0);
      group_product<Operand>(chain, rest[s][l], right.after(place), s > 0);
      group_product<Operand>(chain, a[s][l], right.after(place + plane), true);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) group_product<Operand>(chain, a[s][l], right.after(W::bytes(l, k + s * kSlab, 0)), true);
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
        if constexpr (Step::kSplit) rest[l][e] = __builtin_bit_cast(unsigned, values[l][e] - value);
      }
    }
  }
};

}  // namespace contract
}  // namespace kronop
