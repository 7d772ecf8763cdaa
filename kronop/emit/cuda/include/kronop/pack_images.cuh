// Packs weights as images of the stages of contract_warp_group.cuh, byte for byte as in shared
// memory: [section][lane tile][output tile][step][plane][tile], where a tile is lanes x outputs x
// contracted steps, swizzled.
//
// Tiles are padded with zeros beyond the factor, so that copies of images need no bounds checks.
// Planes are those of pack_weights.cuh.
#pragma once

#include "warp_group_tiles.cuh"
#include "pack_weights.cuh"

namespace kronop {

template <class Step, class Parameters>
KRONOP_INLINE void pack_images(const Parameters& parameters) {
  using Element = typename Step::Factor;
  using Tile = contract::Swizzled<kAlongOwn, Step::kTileLanes, Step::kTileK, Step::kTileN, Element>;
  constexpr int steps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK,
                output_tiles = (Step::kProduced + Step::kTileN - 1) / Step::kTileN;
  const long long lane_tiles = ceil_div(parameters.lanes, Step::kTileLanes);
  const auto place_of = [&](long long section, long long lane, int n, int k) {
    const unsigned lane_tile = unsigned(lane) / Step::kTileLanes;
    const long long image =
        ((section * lane_tiles + lane_tile) * output_tiles + n / Step::kTileN) * steps +
        k / Step::kTileK;
    const int within = int(unsigned(lane) - lane_tile * Step::kTileLanes);
    return static_cast<Element*>(parameters.packed) +
           (image * (Step::kPlanes * Tile::kSize) +
            Tile::at(within, k % Step::kTileK, n % Step::kTileN));
  };
  pack<Tile::kSize, Step>(parameters, steps * Step::kTileK, output_tiles * Step::kTileN,
                          lane_tiles * Step::kTileLanes, place_of);
}

}  // namespace kronop
