// Copies of X and W into the stages of contract_warp_group.cuh, by the producer warps.
#pragma once

#include "warp_group_tiles.cuh"
#include "pack_weights.cuh"

namespace kronop {
namespace contract {

// How the producer warps copy tiles of X and W.
template <class Step, class Parameters>
struct WarpGroupCopies {
  struct Fill : Step {
    static constexpr int kThreads = kTeam;
  };
  using Tiles = WarpGroupTiles<Step>;
  using Operand = typename Step::Factor;
  // An extent that no tile divides: the number of rows is known only at run time, so copies check
  // every row.
  static constexpr int kAnyRows = Step::kTileM + 1;
  using CopiesOfX = Copies<Fill, Operand, typename Tiles::X, Step::kXOrder, Step::kTileM,
                           Step::kXVector, kAnyRows, Evenly>;
  using CopiesOfW = Copies<Fill, Operand, typename Tiles::W, kAlongOwn, Step::kTileN,
                           Step::kWVector, Step::kProduced, Evenly>;
  const Parameters& parameters;

  KRONOP_INLINE CopiesOfX x(const Place& place) const {
    return CopiesOfX(static_cast<const Operand*>(parameters.x) + place.x, parameters.contracted_x,
                     parameters.lane_x, parameters.x_vector, place.rows, place.lanes,
                     Evenly{parameters.row_x[0]});
  }
  KRONOP_INLINE CopiesOfW w(const Place& place, int plane) const {
    return CopiesOfW(static_cast<const Operand*>(parameters.w) + (place.w + plane * Step::kPlane),
                     parameters.contracted_w, parameters.lane_w, parameters.w_vector, place.outputs,
                     place.lanes, Evenly{parameters.produced_w});
  }
  // Packs all of W for a tile, from any memory order.
  KRONOP_INLINE void pack(const Place& place, Operand* resident) const {
    using W = typename Tiles::W;
    using Pieces = WeightPieces<Operand, Step::kWLanes>;
    constexpr int pieces = Tiles::kSteps * Step::kTileK / Pieces::kPiece;
#pragma unroll 1
    for (int index = threadIdx.x % kTeam;
         index < pieces * Step::kTileN * (Step::kLanes / Step::kWLanes); index += kTeam) {
      const int k = index % pieces * Pieces::kPiece, n = index / pieces % Step::kTileN,
                lane = index / (pieces * Step::kTileN) * Step::kWLanes;
      const Operand* from = static_cast<const Operand*>(parameters.w) +
                            (place.w + n * parameters.produced_w + lane * parameters.lane_w +
                             k * parameters.contracted_w);
      const int lanes = place.lanes - lane;
      const bool there = n < place.outputs && lanes > 0;
      const Pieces weights(from, parameters.contracted_w, parameters.lane_w,
                           there ? Step::kContracted - k : 0, lanes,
                           parameters.w_vector ? kVectors : kSingly);
      Operand* to = resident + k / Step::kTileK * Tiles::kWSize;
#pragma unroll
      for (int l = 0; l < Step::kWLanes; ++l) {
        Operand* place_of_piece = to + W::at(lane + l, k % Step::kTileK, n);
        store_shared<Operand, Pieces::kPiece>(place_of_piece, weights.template plane<false>(l));
        if constexpr (Step::kSplit)
          store_shared<Operand, Pieces::kPiece>(place_of_piece + W::kSize,
                                                weights.template plane<true>(l));
      }
    }
  }
  // Arrives at a stage's barrier when this thread's copies are complete. Ordinary stores, which
  // copy pieces of X that are too small for asynchronous copies, have to be made visible to the
  // tensor cores by the thread that stored them.
  // NOTE: after asynchronous copies only the reader makes a fence. PTX does not promise that this
  // is enough; results of some 1100 tiles on one H200 agreed with float64.
  KRONOP_INLINE void tell(Barrier& barrier) const {
    constexpr bool copied = Step::kXVector * sizeof(Operand) >= 4;
    if (copied && parameters.x_vector && (Step::kPacks || parameters.w_vector)) {
      barrier.arrive_after_copies();
    } else {
      wait_for_copies();
      publish_to_warp_group_products();
      barrier.arrive();
    }
  }
};

// W of the stages of a tile, in order, copied by all producer threads.
template <class Step, class Parameters>
struct CopiedWeights {
  using Tiles = WarpGroupTiles<Step>;
  using Operand = typename Step::Factor;
  using OfPlane = typename WarpGroupCopies<Step, Parameters>::CopiesOfW;
  OfPlane first, last;

  KRONOP_INLINE CopiedWeights(const WarpGroupCopies<Step, Parameters>& copies, const Place& place)
      : first(copies.w(place, 0)), last(copies.w(place, Tiles::kPlanes - 1)) {}
  KRONOP_INLINE void fill(Operand* to, Barrier&) {
    first.fill(to);
    if constexpr (Step::kSplit) last.fill(to + Tiles::W::kSize);
  }
};
// The same as images, each loaded by one thread with one bulk copy.
template <class Step, class Parameters>
struct BroughtWeights {
  using Operand = typename Step::Factor;
  static constexpr int kImage = WarpGroupTiles<Step>::kWSize;
  const Operand* image;

  KRONOP_INLINE BroughtWeights(const WarpGroupCopies<Step, Parameters>& copies, const Place& place)
      : image(static_cast<const Operand*>(copies.parameters.w) + place.w) {}
  KRONOP_INLINE void fill(Operand* to, Barrier& filled) {
    if (threadIdx.x % kTeam == 0) filled.arrive_with(to, image, kImage * int(sizeof(Operand)));
    image += kImage;
  }
};

// Copies all of W to shared memory, where it stays resident.
template <class Step, class Parameters>
KRONOP_INLINE void fill_resident(const WarpGroupCopies<Step, Parameters>& copies,
                                 const Place& place, Barrier& filled,
                                 typename Step::Factor* resident) {
  using Tiles = WarpGroupTiles<Step>;
  if constexpr (Step::kPacks) {
    copies.pack(place, resident);
    publish_to_warp_group_products();
    filled.arrive();
  } else {
#pragma unroll 1
    for (int plane = 0; plane < Tiles::kPlanes; ++plane) {
      auto w = copies.w(place, plane);
#pragma unroll 1
      for (int step = 0; step < Tiles::kSteps; ++step)
        w.fill(resident + step * Tiles::kWSize + plane * Tiles::W::kSize);
    }
    copies.tell(filled);
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void fill_stages(const Parameters& parameters, WarpGroupBarriers<Step>& barriers,
                               typename Step::Factor* of_x, typename Step::Factor* of_w) {
  using Tiles = WarpGroupTiles<Step>;
  using Weights =
      Either<Step::kImages, BroughtWeights<Step, Parameters>, CopiedWeights<Step, Parameters>>;
  const WarpGroupCopies<Step, Parameters> copies{parameters};
  Turn<Step::kStages> turn;
  Turn<1> w_turn;
  int had = -1;
  // The previous launch packs the weights and may still be running.
  wait_for_launch_before();
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const Place& place = walk.place;
    if (Step::kResident && walk.part != had) {
      if (had >= 0) {
        barriers.w_free.wait(w_turn.parity);
        w_turn.advance();
      }
      had = walk.part;
      fill_resident(copies, place, barriers.w_filled, of_w);
    }
    auto x = copies.x(place);
    Weights weights(copies, place);
#pragma unroll 1
    for (int step = 0; step < Tiles::kSteps; ++step) {
      // In the first round all stages are free.
      barriers.free[turn.stage].wait(turn.parity ^ 1);
      auto& filled = barriers.filled[turn.stage];
      if constexpr (!Step::kResident) weights.fill(of_w + turn.stage * Step::kWRoom, filled);
      x.fill(of_x + turn.stage * Step::kXSize);
      copies.tell(filled);
      turn.advance();
    }
  }
}

}  // namespace contract
}  // namespace kronop
