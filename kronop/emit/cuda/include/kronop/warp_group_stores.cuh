// The warps of contract_warp_group.cuh that store results and load the source and the bias.
#pragma once

#include "warp_group_results.cuh"

namespace kronop {
namespace contract {

// How a storing warp copies its parts.
template <class Step, class Parameters>
struct WarpGroupStores {
  using Output = typename Step::Output;
  using Sums = WarpGroupSums<Step>;
  using Room = WarpGroupRoom<Step>;
  using Tile = typename Room::Tile;
  static constexpr int kVector = Step::kYVector;
  using Mine = Share<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, kVector, 32>;
  using Ends = Places<Output, Mine, Evenly>;
  using Words =
      Vector<unsigned, (kVector * int(sizeof(Output)) < 4 ? 1 : kVector * int(sizeof(Output)) / 4)>;
  const Parameters& parameters;
  Output* results;

  KRONOP_INLINE WarpGroupStores(const Parameters& with, Output* of_all)
      : parameters(with), results(of_all) {}

  // Signals the team that kKept parts of a unit may be overwritten.
  static KRONOP_INLINE void offer(WarpGroupBarriers<Step>& barriers, int unit) {
    wait_for_warp();
    if (threadIdx.x % 32 == 0) barriers.results_free[unit].arrive();
  }
  // Loads the source of the kKept parts of a unit from `first` on.
  KRONOP_INLINE void bring(const Place& place, int unit, int first) const {
    move_unit<true>(static_cast<Output*>(parameters.z) + place.z, parameters.produced_z,
                    parameters.lane_z, parameters.row_z[0], place, unit, first);
  }
  KRONOP_INLINE void store(const Place& place, int unit, int first) const {
    move_unit<false>(static_cast<Output*>(parameters.y) + place.y, parameters.produced_y,
                     parameters.lane_y, parameters.row_y[0], place, unit, first);
  }
  // Loads the bias of the tile's outputs and lanes.
  KRONOP_INLINE void load_shifts(WarpGroupBarriers<Step>& barriers, const Place& place,
                                 int buffer) const {
    constexpr int count = Step::kTileN * Step::kLanes;
    const Output* bias = static_cast<const Output*>(parameters.bias);
    Output* to = results + Room::shifts() + buffer * count;
#pragma unroll 1
    for (int i = threadIdx.x % kTeam; i < count; i += kTeam) {
      const int n = i / Step::kLanes, lane = i % Step::kLanes;
      const bool there = bias && n < place.outputs && lane < place.lanes;
      to[i] = there ? bias[place.bias + n * parameters.produced_bias + lane * parameters.lane_bias]
                    : Output{};
    }
    barriers.shifts_filled.arrive();
  }
  // A warp has whole units or, where units are a team's, a share of the parts of each.
  static constexpr bool kShared = Room::kOfTeam == 1;
  static KRONOP_INLINE int warp() { return threadIdx.x % kTeam / 32; }
  static KRONOP_INLINE int first_unit() { return kShared ? 0 : warp(); }
  static constexpr int kUnitsApart = kShared ? 1 : 4;

 private:
  template <bool kToShared>
  KRONOP_INLINE void move_unit(Output* base, long long own, long long lane, long long stride,
                               const Place& place, int unit, int first) const {
#pragma unroll 1
    for (int part = kShared ? warp() : 0; part < Room::kKept; part += kShared ? 4 : 1) {
      move<kToShared>(base, own, lane, stride, place, unit, first + part);
    }
  }
  // Copies a part between memory and `results`, vectorised where its rows and outputs exist.
  template <bool kToShared>
  KRONOP_INLINE void move(Output* base, long long own, long long lane, long long stride,
                          const Place& place, int unit, int part) const {
    const int team = unit / Room::kOfTeam, row = team / Step::kTeamsAlongN * kTeamRows +
                                                 unit % Room::kOfTeam * Step::kPartM +
                                                 part / Room::kAcross * Sums::kApart;
    const int output = team % Step::kTeamsAlongN * WarpGroupTiles<Step>::kTeamN +
                       part % Room::kAcross * Step::kPartN;
    const Mine mine;
    const Evenly wide{stride};
    const Ends ends(base + (output * own + row * stride), own, lane, wide, mine);
    Output* const tile = results + Room::at(unit, part);
    const bool vectors = kVector > 1 && parameters.y_vector;
    if (vectors && Mine::kRegular && row + Step::kPartM <= place.rows &&
        output + Step::kPartN <= place.outputs && Step::kLanes <= place.lanes) {
      move_whole<kToShared>(ends, mine, tile);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto chunk = mine[i];
      const int rows = place.rows - row - chunk.wide;
      if (rows <= 0 || chunk.own + output >= place.outputs || chunk.lane >= place.lanes) continue;
      Output* memory = const_cast<Output*>(ends.template at<false>(mine, i));
      Output* here = tile + Tile::at(chunk.lane, chunk.own, chunk.wide);
      if (vectors && (!Room::kByRows || rows >= kVector)) {
        if constexpr (kToShared) {
          *reinterpret_cast<Words*>(here) = *reinterpret_cast<const Words*>(memory);
        } else {
          store_words(memory, reinterpret_cast<const Words*>(here)->data);
        }
      } else {
        move_each<kToShared>(base, here, chunk, own, lane, stride, place, row, output);
      }
    }
  }
  // Copies a complete part, as most are.
  template <bool kToShared>
  KRONOP_INLINE void move_whole(const Ends& ends, const Mine& mine, Output* tile) const {
    Output* const first = tile + Tile::at(mine.first.lane, mine.first.own, mine.first.wide);
    Words words[Mine::kEach];
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto more = Mine::apart(i);
      words[i] = *reinterpret_cast<const Words*>(
          kToShared ? ends.template at<false>(mine, i)
                    : first + Tile::at(more.lane, more.own, more.wide));
    }
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto more = Mine::apart(i);
      if constexpr (kToShared) {
        *reinterpret_cast<Words*>(first + Tile::at(more.lane, more.own, more.wide)) = words[i];
      } else {
        store_words(const_cast<Output*>(ends.template at<false>(mine, i)), words[i].data);
      }
    }
  }
  // Copies a chunk element by element: where Y allows no vectors, and for the last rows.
  template <bool kToShared, class Chunk>
  KRONOP_INLINE void move_each(Output* base, Output* here, const Chunk& chunk, long long own,
                               long long lane, long long stride, const Place& place, int row,
                               int output) const {
#pragma unroll 1
    for (int v = 0; v < kVector; ++v) {
      const int lanes = chunk.lane + (Step::kYOrder == kAlongLanes ? v : 0),
                over = lanes / Step::kLanes, l = lanes - over * Step::kLanes;
      const int n = chunk.own + output + (Step::kYOrder == kAlongOwn ? v : over),
                m = chunk.wide + row + (Room::kByRows ? v : 0);
      if (m >= place.rows || n >= place.outputs || l >= place.lanes) continue;
      // `base` is the start of the tile, so rows and outputs are relative to the tile.
      Output* memory = base + (m * stride + n * own + l * lane);
      if constexpr (kToShared) {
        here[v] = *memory;
      } else {
        *memory = here[v];
      }
    }
  }
};

// Stores the results of all tiles. A unit's memory is released for the next results as soon as the
// previous ones are stored or, with a source, as soon as the source is loaded.
template <class Step, class Parameters>
KRONOP_INLINE void store_results(const Parameters& parameters, WarpGroupBarriers<Step>& barriers,
                                 typename Step::Output* staged) {
  using Stores = WarpGroupStores<Step, Parameters>;
  constexpr int units = WarpGroupTiles<Step>::kUnits;
  const Stores stores(parameters, staged);
  Turn<1> turn, shift;
  int had = -1;
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    if (walk.part != had && (parameters.z || parameters.bias)) {
      // The buffer is free once all storing threads have loaded the previous bias: they have then
      // stored all results that the bias in this buffer was added to.
      if (had >= 0) {
        barriers.shifts_filled.wait(shift.parity);
        shift.advance();
      }
      stores.load_shifts(barriers, walk.place, shift.parity);
    }
    bool offers = had < 0 || parameters.z;
    had = walk.part;
#pragma unroll 1
    for (int first = 0; first < WarpGroupRoom<Step>::kParts; first += Step::kKept) {
#pragma unroll 1
      for (int unit = Stores::first_unit(); offers && unit < units; unit += Stores::kUnitsApart) {
        if (parameters.z) stores.bring(walk.place, unit, first);
        Stores::offer(barriers, unit);
      }
#pragma unroll 1
      for (int unit = Stores::first_unit(); unit < units; unit += Stores::kUnitsApart) {
        barriers.results_filled[unit].wait(turn.parity);
        stores.store(walk.place, unit, first);
        if (!parameters.z) Stores::offer(barriers, unit);
      }
      offers = parameters.z;
      turn.advance();
    }
  }
}

}  // namespace contract
}  // namespace kronop
