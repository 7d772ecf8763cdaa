// The accumulators of a team (a consumer warp group) of contract_warp_group.cuh.
#pragma once

#include "warp_group_chains.cuh"

namespace kronop {
namespace contract {

struct Nothing {};

template <class Step>
struct WarpGroupSums {
  using Operand = typename Step::Factor;
  using Tiles = WarpGroupTiles<Step>;
  using X = typename Tiles::X;
  using W = typename Tiles::W;
  static constexpr int kLanes = Step::kLanes / Step::kTeamsAlongLanes, kM = Step::kTeamM,
                       kN = Tiles::kTeamN / 8;
  static constexpr int kApart =
      kTeamRows * Step::kTeamsAlongM;                      // from a team's rows to its next ones
  static constexpr int kSlab = 32 / int(sizeof(Operand));  // contracted steps of an MMA
  float of[kLanes][kM][kN][4] = {};

  // The first lane, output and row of this team, and of this warp.
  static KRONOP_INLINE int lane() { return threadIdx.x / kTeam % Step::kTeamsAlongLanes * kLanes; }
  static KRONOP_INLINE int output() {
    return threadIdx.x / kTeam / Step::kTeamsAlongLanes % Step::kTeamsAlongN * Tiles::kTeamN;
  }
  static KRONOP_INLINE int row() {
    return threadIdx.x / (kTeam * Step::kTeamsAlongLanes * Step::kTeamsAlongN) * kTeamRows;
  }
  static KRONOP_INLINE int warp_row() { return row() + threadIdx.x / 32 % 4 * 16; }

  // Multiplies stage `stage` of the stages that are multiplied together. MMAs stay in flight and
  // read their stage meanwhile; release() is called when those of the previous stage have ended.
  template <class Release>
  KRONOP_INLINE void add(const Operand* x, const Operand* w, int stage, const Release& release) {
    const WarpGroupMatrix right = W::matrix(w + W::start(lane(), 0, output()));
    if constexpr (Step::kSplit) {
      chains.add(of, x + X::at(lane(), 0, warp_row()), right, stage, release);
    } else {
      if constexpr (Step::kDirect) {
        add_direct(X::matrix(x + X::start(0, 0, row())), right);
      } else if constexpr (sizeof(Operand) == 2) {
        add_words(x + X::at(lane(), 0, warp_row()), right);
      } else {
        add_elements(x + X::at(lane(), 0, warp_row()), right);
      }
      wait_for_warp_group_products<1>();
      release();
    }
  }
  // Called after the last of the stages that are multiplied together.
  template <class Release>
  KRONOP_INLINE void settle(const Release& release) {
    if constexpr (Step::kSplit) chains.settle(of, release);
  }
  // Called after the last stage of a tile.
  template <class Release>
  KRONOP_INLINE void finish(const Release& release) {
    if constexpr (!Step::kSplit) {
      wait_for_warp_group_products<0>();
      release();
    }
  }

 private:
  Either<Step::kSplit, WarpGroupChains<Step>, Nothing> chains;

  // NOTE: for an MMA of 256 outputs, ptxas needs more than the 128 registers that a kernel of 512
  // threads starts with, whatever a team acquires later. So it is two MMAs of 128 outputs.
  KRONOP_INLINE void add_direct(const WarpGroupMatrix& left, const WarpGroupMatrix& right) {
    constexpr int products = kN > 24 ? 2 : 1, outputs = kN / products;
    begin_warp_group_products();
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        auto& sums = reinterpret_cast<float (&)[products][outputs][4]>(of[0][m]);
#pragma unroll
        for (int p = 0; p < products; ++p) {
          warp_group_product<Operand, X::kTurned>(sums[p], left.after(X::bytes(0, k, m * kApart)),
                                                  right.after(W::bytes(0, k, p * outputs * 8)),
                                                  true);
        }
      }
    }
    commit_warp_group_products();
  }

  // Fragments of the next MMAs are loaded while the previous ones are multiplied, if registers
  // suffice for both.
  KRONOP_INLINE void add_words(const Operand* x, const WarpGroupMatrix& right) {
    constexpr int jobs = Step::kTileK / kSlab * kM, buffers = kLanes <= 4 && jobs % 2 == 0 ? 2 : 1;
    unsigned a[buffers][kLanes][4];
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const int job = k / kSlab * kM + m;
        wait_for_warp_group_products<buffers - 1>();
        load_words<X, 8, false, false>(a[job % buffers], x + k * X::kOwn + m * kApart * X::kWide);
        begin_warp_group_products();
#pragma unroll
        for (int l = 0; l < kLanes; ++l)
          warp_group_product<Operand>(of[l][m], a[job % buffers][l], right.after(W::bytes(l, k, 0)),
                                      true);
        commit_warp_group_products();
      }
    }
  }

  KRONOP_INLINE void add_elements(const Operand* x, const WarpGroupMatrix& right) {
    constexpr int jobs = Step::kTileK / kSlab * kM;
    unsigned a[2][kLanes][4];
#pragma unroll
    for (int job = 0; job < jobs; ++job) {
      const int m = job % kM, k = job / kM * kSlab;
      Operand values[kLanes][4];
      load_elements<X, 2, 8, true>(values, x + k * X::kOwn + m * kApart * X::kWide);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a[job % 2][l][e] = __builtin_bit_cast(unsigned, rounded_alone(values[l][e]));
      }
      begin_warp_group_products();
#pragma unroll
      for (int l = 0; l < kLanes; ++l)
        warp_group_product<Operand>(of[l][m], a[job % 2][l], right.after(W::bytes(l, k, 0)), true);
      commit_warp_group_products();
      wait_for_warp_group_products<1>();
    }
    wait_for_warp_group_products<0>();
  }
};

}  // namespace contract
}  // namespace kronop
