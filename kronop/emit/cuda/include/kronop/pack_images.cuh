// Weights as images of the stages of contract_group.cuh, byte for byte as they lie there:
// [group][lane tile][output tile][step][plane][tile of lanes x outputs x contracted steps, swizzled].
//
// What a tile has and the factor has not is zero, so copies of images know no bounds. Planes are those of pack_weights.cuh.
#pragma once

#include "group_tiles.cuh"
#include "pack_weights.cuh"

namespace kronop {

template <class Step, class Parameters>
KRONOP_INLINE void pack_images(const Parameters& parameters) {
  using Element = typename Step::Factor;
  using Pieces = WeightPieces<Element, Step::kLanes>;
  using Tile = contract::Swizzled<kAlongOwn, Step::kTileLanes, Step::kTileK, Step::kTileN, Element>;
  constexpr int piece = Pieces::kPiece, steps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK;
  constexpr int output_tiles = (Step::kProduced + Step::kTileN - 1) / Step::kTileN;
  const long long lane_tiles = ceil_div(parameters.lanes, Step::kTileLanes);
  // Threads that are neighbours read what are neighbours in most factors.
  long long index = (long long)blockIdx.x * Step::kThreads + threadIdx.x;
  const int k = int(split(index, steps * Step::kTileK / piece)) * piece, n = int(split(index, output_tiles * Step::kTileN));
  const int within = int(split(index, Step::kTileLanes / Step::kLanes)) * Step::kLanes;
  const long long lane_tile = split(index, lane_tiles), group = index, lane = lane_tile * Step::kTileLanes + within;
  if (group >= parameters.groups) return;
  const Element* from = static_cast<const Element*>(parameters.w) + (group * parameters.group_w + lane * parameters.lane_w + n * parameters.produced_w + k * parameters.contracted_w);
  const long long left = parameters.lanes - lane;
  const int lanes = left < Step::kLanes ? int(left) : Step::kLanes;
  const bool there = n < Step::kProduced && lanes > 0;
  const Pieces weights(from, parameters.contracted_w, parameters.lane_w, there ? Step::kContracted - k : 0, lanes, parameters.w_vector);
  const long long image = ((group * lane_tiles + lane_tile) * output_tiles + n / Step::kTileN) * steps + k / Step::kTileK;
  Element* to = static_cast<Element*>(parameters.packed) + image * (Step::kPlanes * Tile::kSize);
#pragma unroll
  for (int l = 0; l < Step::kLanes; ++l) {
    Element* place = to + Tile::at(within + l, k % Step::kTileK, n % Step::kTileN);
    store_whole<Element, piece>(place, weights.template plane<false>(l));
    if constexpr (Step::kPlanes > 1) store_whole<Element, piece>(place + Tile::kSize, weights.template plane<true>(l));
  }
}

}  // namespace kronop
