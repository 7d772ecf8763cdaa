// The units of two fused products (chain_mma.cuh), and the ring of stages for the tiles of X and of
// both factors.
#pragma once

#include "kronop/contract_mma.cuh"

namespace kronop {
namespace chain {

// The constants of one of the two products, under the names that contract_*.cuh use.
template <class Step, int Index>
struct Product : Step {
  static constexpr int kWarpsK = 1;
  static constexpr int kLanes = Step::kPairLanes[Index], kWarpLanes = Step::kPairWarpLanes[Index],
                       kWarpsLanes = Step::kPairWarpsLanes[Index];
  static constexpr int kWarpM = Step::kPairWarpM[Index], kWarpsM = Step::kPairWarpsM[Index];
  static constexpr int kTileN = Step::kPairTileN[Index], kWarpN = Step::kPairWarpN[Index],
                       kWarpsN = Step::kPairWarpsN[Index];
  static constexpr int kTileK = Step::kPairTileK[Index];
  static constexpr int kContracted = Step::kPairContracted[Index],
                       kProduced = Step::kPairProduced[Index];
  static constexpr int kWOrder = Step::kPairWOrder[Index], kWVector = Step::kPairWVector[Index],
                       kWPitch = Step::kPairWPitch[Index];
  static constexpr int kXOrder = Index == 0 ? int(Step::kXOrder) : int(kAlongOwn);
  static constexpr int kXPitch = Index == 0 ? Step::kXPitch : Step::kMiddlePitch;
  // The sections and lanes of a part, and the units and steps that cover it.
  static constexpr int kSections = Step::kPairSections[Index],
                       kAllLanes = Step::kPairAllLanes[Index];
  static constexpr int kOutputTiles = (kProduced + kTileN - 1) / kTileN,
                       kLaneTiles = (kAllLanes + kLanes - 1) / kLanes;
  static constexpr int kUnits = kSections * kLaneTiles * kOutputTiles;
  static constexpr int kSteps = (kContracted + kTileK - 1) / kTileK;
};
template <class Step>
using First = Product<Step, 0>;
template <class Step>
using Second = Product<Step, 1>;

// A unit of a product: one section, a tile of lanes and a tile of outputs, outputs fastest.
template <class Of>
struct Unit {
  int section, lane, output;
  KRONOP_INLINE explicit Unit(int index)
      : section(index / (Of::kOutputTiles * Of::kLaneTiles)),
        lane(index / Of::kOutputTiles % Of::kLaneTiles * Of::kLanes),
        output(index % Of::kOutputTiles * Of::kTileN) {}
  KRONOP_INLINE int lanes() const {
    return Of::kAllLanes - lane < Of::kLanes ? Of::kAllLanes - lane : Of::kLanes;
  }
  KRONOP_INLINE int outputs() const {
    return Of::kProduced - output < Of::kTileN ? Of::kProduced - output : Of::kTileN;
  }
};

// The part of the pair that a block computes, independent of all other parts: one of the sections
// and some of the lanes that both products have in common.
template <class Step>
struct PartOfPair {
  int section, lane;
  KRONOP_INLINE explicit PartOfPair(int index)
      : section(index / (Step::kCommonLanes / Step::kPartLanes)),
        lane(index % (Step::kCommonLanes / Step::kPartLanes) * Step::kPartLanes) {}
  // Maps a section and a lane of the part to those of the whole product.
  template <class Of>
  KRONOP_INLINE int section_of(const Unit<Of>& unit) const {
    return section * Of::kSections + unit.section;
  }
  template <class Of>
  KRONOP_INLINE int lane_of(const Unit<Of>& unit) const {
    return unit.lane / Step::kPartLanes * Step::kCommonLanes + unit.lane % Step::kPartLanes + lane;
  }
};

// Fills the ring tile by tile: for each tile of rows the tiles of the first product, then those of
// the second.
template <class Step, class Parameters>
struct Loader {
  using Element = typename Step::Factor;
  // An extent that no tile divides: the number of rows is known only at run time, so copies check
  // every row.
  static constexpr int kAnyRows = Step::kTileM + 1;
  using TileOfX = typename contract::Sums<First<Step>>::X;
  template <class Of>
  using TileOfW = typename contract::Sums<Of>::W;
  using X = contract::Copies<First<Step>, Element, TileOfX, First<Step>::kXOrder, Step::kTileM,
                             Step::kXVector, kAnyRows, contract::Evenly>;
  template <class Of>
  using W = contract::Copies<Of, Element, TileOfW<Of>, Of::kWOrder, Of::kTileN, Of::kWVector,
                             Of::kProduced, contract::Evenly>;
  static constexpr int kFirstSteps = First<Step>::kUnits * First<Step>::kSteps;
  static constexpr int kAllSteps =
      kFirstSteps + (Step::kResident ? 0 : Second<Step>::kUnits * Second<Step>::kSteps);
  const Parameters& parameters;
  const PartOfPair<Step>& part;
  long long tile, tiles, apart;
  int index = 0;
  X x;
  W<First<Step>> first;
  W<Second<Step>> second;

  KRONOP_INLINE Loader(const Parameters& with, const PartOfPair<Step>& here, long long tile_at,
                       long long count, long long stride)
      : parameters(with), part(here), tile(tile_at), tiles(count), apart(stride),
        x(rows_of(with, here, tile_at, Unit<First<Step>>(0))),
        first(first_of(with, here, Unit<First<Step>>(0))),
        second(second_of(with, here, Unit<Second<Step>>(0))) {}

  KRONOP_INLINE void fill(Element* to) {
    if (tile >= tiles) return;
    if (Step::kResident || index < kFirstSteps) {
      if (index % First<Step>::kSteps == 0) {
        const Unit<First<Step>> unit(index / First<Step>::kSteps);
        x = rows_of(parameters, part, tile, unit);
        if (!Step::kResident) first = first_of(parameters, part, unit);
      }
      x.fill(to);
      if (!Step::kResident) first.fill(to + TileOfX::kSize);
    } else {
      const int at = index - kFirstSteps;
      if (at % Second<Step>::kSteps == 0)
        second = second_of(parameters, part, Unit<Second<Step>>(at / Second<Step>::kSteps));
      second.fill(to);
    }
    if (++index == kAllSteps) index = 0, tile += apart;
  }
  // Copies all tiles of both factors, in the order of their use.
  KRONOP_INLINE void fill_weights(Element* to) const {
#pragma unroll 1
    for (int unit = 0; unit < First<Step>::kUnits; ++unit) {
      auto copies = first_of(parameters, part, Unit<First<Step>>(unit));
#pragma unroll 1
      for (int k = 0; k < First<Step>::kSteps; ++k, to += TileOfW<First<Step>>::kSize)
        copies.fill(to);
    }
#pragma unroll 1
    for (int unit = 0; unit < Second<Step>::kUnits; ++unit) {
      auto copies = second_of(parameters, part, Unit<Second<Step>>(unit));
#pragma unroll 1
      for (int k = 0; k < Second<Step>::kSteps; ++k, to += TileOfW<Second<Step>>::kSize)
        copies.fill(to);
    }
  }

 private:
  static KRONOP_INLINE X rows_of(const Parameters& parameters, const PartOfPair<Step>& part,
                                 long long tile, const Unit<First<Step>>& unit) {
    const long long row = tile * Step::kTileM, left = parameters.row_extent[0] - row;
    const Element* from = static_cast<const Element*>(parameters.x) + row * parameters.row_x[0];
    from += part.section_of(unit) * parameters.section_x + part.lane_of(unit) * parameters.lane_x;
    return X(from, parameters.contracted_x, parameters.lane_x, parameters.x_vector,
             int(left < Step::kTileM ? left : Step::kTileM), unit.lanes(),
             contract::Evenly{parameters.row_x[0]});
  }
  static KRONOP_INLINE W<First<Step>> first_of(const Parameters& parameters,
                                               const PartOfPair<Step>& part,
                                               const Unit<First<Step>>& unit) {
    const Element* from = static_cast<const Element*>(parameters.first) +
                          part.section_of(unit) * parameters.section_first +
                          part.lane_of(unit) * parameters.lane_first;
    return {from + unit.output * parameters.produced_first,
            parameters.contracted_first,
            parameters.lane_first,
            bool(parameters.first_vector),
            unit.outputs(),
            unit.lanes(),
            contract::Evenly{parameters.produced_first}};
  }
  static KRONOP_INLINE W<Second<Step>> second_of(const Parameters& parameters,
                                                 const PartOfPair<Step>& part,
                                                 const Unit<Second<Step>>& unit) {
    const Element* from = static_cast<const Element*>(parameters.second) +
                          part.section_of(unit) * parameters.section_second +
                          part.lane_of(unit) * parameters.lane_second;
    return {from + unit.output * parameters.produced_second,
            parameters.contracted_second,
            parameters.lane_second,
            bool(parameters.second_vector),
            unit.outputs(),
            unit.lanes(),
            contract::Evenly{parameters.produced_second}};
  }
};

// The ring: tiles that are being copied or in use.
template <class Step, class Parameters>
struct Ring {
  using Element = typename Step::Factor;
  Loader<Step, Parameters> loader;
  Element* slots;
  int slot = 0;

  // Starts the copies of the loader's first tiles.
  KRONOP_INLINE Ring(const Loader<Step, Parameters>& of, unsigned char* memory)
      : loader(of), slots(reinterpret_cast<Element*>(memory)) {
#pragma unroll 1
    for (int stage = 0; stage + 1 < Step::kStages; ++stage) {
      loader.fill(slots + stage * Step::kSlot);
      commit_copies();
    }
  }
  // Waits for the next tile and returns it. The stage of the previous tile is filled again.
  KRONOP_INLINE const Element* next() {
    wait_for_older_copies<Step::kStages - 2>();
    __syncthreads();
    loader.fill(slots + (slot == 0 ? Step::kStages - 1 : slot - 1) * Step::kSlot);
    commit_copies();
    const Element* ready = slots + slot * Step::kSlot;
    slot = slot + 1 == Step::kStages ? 0 : slot + 1;
    return ready;
  }
};

}  // namespace chain
}  // namespace kronop
