// The sums of a consumer warp group (team): 64 rows, and all columns of a tile.
#pragma once

#include "distance_warp_group_tiles.cuh"

namespace kronop {
namespace distance {

// The shared memory of a block: stages, facts of the points of a tile and of the next one, and
// barriers for both.
template <class Step>
struct WarpGroupRoom {
  static constexpr int kParts = (Step::kTileM + Step::kTileN) / kGranule,
                       kStageBytes = kParts * kImage;
  static constexpr int kBuffers = 2, kFactsBytes = kParts * kGranule * int(sizeof(Facts)),
                       kWarps = Step::kTileM / 16;
  unsigned char stages[Step::kStages][kStageBytes];
  Facts facts[kBuffers][kParts][kGranule];
  Barrier filled[Step::kStages], free[Step::kStages], facts_filled[kBuffers], facts_free[kBuffers];

  KRONOP_INLINE void begin() {
    for (int stage = 0; stage < Step::kStages; ++stage) {
      filled[stage].begin(kParts);
      free[stage].begin(kWarps);
    }
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      facts_filled[buffer].begin(kParts);
      facts_free[buffer].begin(kWarps);
    }
  }
};

// The ring of stages, as a team reads it: each has images of the tile's rows, then of its columns.
template <class Step>
struct WarpGroupStages {
  WarpGroupRoom<Step>& room;
  WarpGroupMatrix left, right;  // of the first stage
  Turn<Step::kStages> turn;

  KRONOP_INLINE explicit WarpGroupStages(WarpGroupRoom<Step>& of_block)
      : room(of_block),
        left(room.stages[0] + threadIdx.x / kTeam * kImage, 8 * kRowBytes, kRowBytes),
        right(room.stages[0] + Step::kTileM * kRowBytes, 8 * kRowBytes, kRowBytes) {}
  // Waits for the next stage, and returns its index.
  KRONOP_INLINE int next() {
    const int stage = turn.stage;
    room.filled[stage].wait(turn.parity);
    turn.advance();
    return stage;
  }
  // Releases the stage for this warp.
  KRONOP_INLINE void release(int stage) const {
    if (threadIdx.x % 32 == 0) room.free[stage].arrive();
  }
};

// Sums of products of 16-bit elements. MMAs stay in flight while the next stage is waited for.
template <class Step, bool kSplit = Step::kSplit>
struct WarpGroupSums {
  using Element = typename Step::Factor;
  float of[Step::kTileN / 8][4] = {};

  KRONOP_INLINE void add_up(long long slabs, WarpGroupStages<Step>& stages) {
    int before = -1;
#pragma unroll 1
    for (long long slab = 0; slab < slabs; ++slab) {
      const int stage = stages.next(), first = stage * WarpGroupRoom<Step>::kStageBytes;
      begin_warp_group_products();
#pragma unroll
      for (int at = 0; at < kRowBytes; at += 32)
        warp_group_product<Element, false>(of, stages.left.after(first + at),
                                           stages.right.after(first + at), true);
      commit_warp_group_products();
      wait_for_warp_group_products<1>();
      if (before >= 0) stages.release(before);
      before = stage;
    }
    wait_for_warp_group_products<0>();
    if (before >= 0) stages.release(before);
  }
};

// Sums of products of split elements: three MMAs for each; the product of both remainders is less
// than 2^-22 of it. NOTE: the tensor cores truncate: all products of 1024 features in one chain
// lose 4e-6 of their sum, which matters if points are near each other. So the products of two
// stages are one chain, remainders (too small to matter) first, and ordinary additions add up the
// chains.
template <class Step>
struct WarpGroupSums<Step, true> {
  using Element = typename Step::Factor;
  static constexpr int kN = Step::kTileN / 8;
  float of[kN][4] = {};

  KRONOP_INLINE void add_up(long long slabs, WarpGroupStages<Step>& stages) {
#pragma unroll 1
    for (; slabs > 1; slabs -= 2) add_chain<2>(stages);
    if (slabs > 0) add_chain<1>(stages);
  }

 private:
  template <int kCount>
  KRONOP_INLINE void add_chain(WarpGroupStages<Step>& stages) {
    constexpr int rest = kRowBytes / 2;
    int numbers[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = stages.next();
    float chain[kN][4];
    const auto multiply = [&](int left, int right, bool more) {
      warp_group_product<Element, false>(chain, stages.left.after(left), stages.right.after(right),
                                         more);
    };
    begin_warp_group_products();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int at = 0; at < rest; at += 32) {
        const int place = numbers[i] * WarpGroupRoom<Step>::kStageBytes + at;
        multiply(place + rest, place, i + at > 0);
        multiply(place, place + rest, true);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int at = 0; at < rest; at += 32) {
        const int place = numbers[i] * WarpGroupRoom<Step>::kStageBytes + at;
        multiply(place, place, true);
      }
    }
    commit_warp_group_products();
    wait_for_warp_group_products<0>();
#pragma unroll
    for (int i = 0; i < kCount; ++i) stages.release(numbers[i]);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[n][e] += chain[n][e];
    }
  }
};

}  // namespace distance
}  // namespace kronop
