// contract_group where many lanes lie side by side: a block takes as many of them as a run of memory wants, and few rows.
//
// Warps share its lanes, those of one access each, and its outputs, 16 each; all have the same rows. The weights stay in
// shared memory, in the order of fragments: of 16 contracted steps, thread t of a quad has t, t + 4, t + 8 and t + 12.
#pragma once

#include "contract_group.cuh"

namespace kronop {
namespace contract {

template <class Step>
struct BroadSums {
  using Operand = typename Step::Factor;
  using Tiles = GroupTiles<Step>;
  using X = typename Tiles::X;
  using W = typename Tiles::W;
  static constexpr int kLanes = Step::kWarpLanes, kM = Step::kTeamM, kN = 2;
  static constexpr int kApart = 16, kPartRows = 16, kAlong = Step::kLanes / kLanes, kSlab = 16;
  static_assert(Step::kTileK == kSlab);
  float of[kLanes][kM][kN][4] = {};

  static KRONOP_INLINE int row() { return 0; }
  static KRONOP_INLINE int part_row() { return threadIdx.x % 32 / 4; }
  static KRONOP_INLINE int lane() { return threadIdx.x / 32 % kAlong * kLanes; }
  // Past the end where there are more warps than such shares.
  static KRONOP_INLINE int output() { return threadIdx.x / 32 / kAlong * 16; }

  KRONOP_INLINE void add(const Operand* x, const Operand* w) {
    if (output() >= Step::kTileN) return;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    x += X::at(lane(), t, g);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (sizeof(Operand) == 2) {
        add_words(x + m * kApart * X::kWide, w, m);
      } else {
        add_elements(x + m * kApart * X::kWide, w, m);
      }
    }
  }

 private:
  static constexpr int kVector = vector_of_lanes<kLanes, sizeof(Operand)>;

  // Element i of the fragment of output 8 n + g and lane l is of contracted step t + 4 i.
  static KRONOP_INLINE Vector<Operand, 4> weights(const Operand* w, int l, int n) {
    return load<Operand, 4>(w + W::at(lane() + l, threadIdx.x % 4 * 4, output() + 8 * n + threadIdx.x % 32 / 4));
  }
  static KRONOP_INLINE unsigned joined(Operand low, Operand high) { return low.bits | unsigned(high.bits) << 16; }

  KRONOP_INLINE void add_words(const Operand* x, const Operand* w, int m) {
#pragma unroll
    for (int first = 0; first < kLanes; first += kVector) {
      unsigned a[kVector][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Operand* from = x + i / 2 * 8 * X::kOwn + i % 2 * 8 * X::kWide + first;
        const auto low = load<Operand, kVector>(from), high = load<Operand, kVector>(from + 4 * X::kOwn);
#pragma unroll
        for (int v = 0; v < kVector; ++v) a[v][i] = joined(low.data[v], high.data[v]);
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const auto b = weights(w, first + v, n);
          warp_multiply_add<Operand>(of[first + v][m][n], a[v], joined(b.data[0], b.data[1]), joined(b.data[2], b.data[3]));
        }
      }
    }
  }

  // NOTE: the tensor cores truncate sums: only two products follow each other, ordinary additions collect them.
  KRONOP_INLINE void add_elements(const Operand* x, const Operand* w, int m) {
    constexpr bool split = Step::kSplit;
#pragma unroll
    for (int first = 0; first < kLanes; first += kVector) {
      Operand a[kVector][2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const auto part = load<Operand, kVector>(x + (i / 4 * 8 + i % 4 / 2 * 4) * X::kOwn + i % 2 * 8 * X::kWide + first);
#pragma unroll
        for (int v = 0; v < kVector; ++v) a[v][i / 4][i % 4] = part.data[v];
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        Split<Operand, 2, split> b[2][kN];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const auto from = weights(w, first + v, n);
#pragma unroll
          for (int step = 0; step < 2; ++step) b[step][n] = Split<Operand, 2, split>({from.data[2 * step], from.data[2 * step + 1]});
        }
        Operand chains[kN][4] = {};
#pragma unroll
        for (int step = 0; step < 2; ++step) add_row(chains, Split<Operand, 4, split>(a[v][step]), b[step]);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) of[first + v][m][n][e] += chains[n][e];
        }
      }
    }
  }
};

}  // namespace contract

template <class Step, class Parameters>
KRONOP_INLINE void contract_broad(const Parameters& parameters) {
  contract_with<Step, contract::BroadSums<Step>>(parameters);
}

}  // namespace kronop
