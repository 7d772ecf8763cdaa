// How the teams of contract_warp_group.cuh write their results to shared memory.
#pragma once

#include "warp_group_sums.cuh"

namespace kronop {
namespace contract {

// The shared memory for results on their way to Y. Teams leave their results there and continue
// with the next tile, while another warp group stores them, unit by unit. A unit is the rows of a
// warp, or of a team where memory is contiguous along rows, and the outputs of a team. Each unit
// has its own barriers, so that one is filled while another is stored. Memory for kKept parts of
// each unit is there at a time, which may be all of a tile. A part is kPartN outputs of kPartM
// rows, of all lanes.
//
// The source Z, if any, is loaded into the same memory before the results that it is added to. Two
// biases follow that memory: that of this tile, and that of the next tile with another one. The
// multiplying threads combine both with their sums in the epilogue.
template <class Step>
struct WarpGroupRoom {
  using Output = typename Step::Output;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows;
  static constexpr int kAcross = WarpGroupTiles<Step>::kTeamN / Step::kPartN,
                       kParts = Step::kTeamM * kAcross, kKept = Step::kKept;
  // Units that a team has.
  static constexpr int kOfTeam = kTeamRows / Step::kPartM;
  using Tile = Layout<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, Step::kYPitch>;
  static_assert(kKept == kParts || 2 * kKept == kParts, "all results at once, or halves");
  static KRONOP_INLINE constexpr int at(int unit, int part) {
    return (unit * kKept + part % kKept) * Tile::kSize;
  }
  static KRONOP_INLINE constexpr int shifts() {
    return WarpGroupTiles<Step>::kUnits * kKept * Tile::kSize;
  }
};

// How a multiplying thread hands over its sums.
template <class Step, class Parameters>
struct WarpGroupResults {
  using Output = typename Step::Output;
  using Sums = WarpGroupSums<Step>;
  using Room = WarpGroupRoom<Step>;
  using Tile = typename Room::Tile;
  static constexpr bool kByRows = Room::kByRows,
                        kMatrices = sizeof(Output) == 2 && Step::kLanes == 1;
  static_assert(!kMatrices || Sums::kN % 2 == 0, "matrices of results come in pairs");
  static constexpr int kAcross = Room::kAcross;
  const Parameters& parameters;
  WarpGroupBarriers<Step>& barriers;
  Finish<Step> finish;
  const int unit;
  Output* results;
  const Output* shifts;
  Turn<1> turn, shift;

  KRONOP_INLINE WarpGroupResults(const Parameters& with, WarpGroupBarriers<Step>& of_block,
                                 Output* of_all)
      : parameters(with), barriers(of_block), finish(with), unit(own_unit()),
        results(of_all + Room::at(unit, 0)),
        shifts(of_all + Room::shifts() + Sums::output() * Step::kLanes + Sums::lane()) {}

  // `fresh`: whether the tile has other outputs, lanes or sections than the previous one.
  KRONOP_INLINE void take(const Sums& sums, bool fresh) {
    if (fresh && (parameters.z || parameters.bias)) {
      barriers.shifts_filled.wait(shift.parity);
      shift.advance();
    }
    take_parts<0>(sums);
    if constexpr (Room::kKept < Room::kParts) take_parts<Room::kKept>(sums);
  }

 private:
  static KRONOP_INLINE int own_unit() {
    return threadIdx.x / (kTeam * Step::kTeamsAlongLanes) * Room::kOfTeam +
           threadIdx.x / 32 % 4 * Room::kOfTeam / 4;
  }
  template <int kFirst>
  KRONOP_INLINE void take_parts(const Sums& sums) {
    barriers.results_free[unit].wait(turn.parity);
    if (parameters.z || parameters.bias) {
      deposit<true, kFirst>(sums);
    } else {
      deposit<false, kFirst>(sums);
    }
    wait_for_warp();
    if (threadIdx.x % 32 == 0) barriers.results_filled[unit].arrive();
    turn.advance();
  }
  // The bias of output `column` of the team, in its first lane. take() has advanced the pipeline
  // since the bias was loaded, hence the other parity.
  KRONOP_INLINE const Output* shift_of(int column) const {
    return shifts + ((shift.parity ^ 1) * Step::kTileN + column) * Step::kLanes;
  }
  KRONOP_INLINE Output* room(int part) const { return results + part % Room::kKept * Tile::kSize; }
  // The first of this warp's rows in its unit.
  static KRONOP_INLINE int first_row() { return Sums::warp_row() % Step::kPartM; }
  // Applies the epilogue to sum `e` of outputs `n` in lane `l`.
  template <bool kMore>
  KRONOP_INLINE Output finished(const Sums& sums, int l, int m, int n, int e, Output source,
                                Output bias) const {
    if constexpr (kMore) {
      return finish(sums.of[l][m][n][e], source, bias);
    } else {
      return finish(sums.of[l][m][n][e]);
    }
  }
  // Stores the sums of the kKept parts from kFirst on to shared memory.
  template <bool kMore, int kFirst>
  KRONOP_INLINE void deposit(const Sums& sums) const {
#pragma unroll
    for (int m = 0; m < Step::kTeamM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; n += kMatrices ? 2 : 1) {
        const int index = m * kAcross + n * 8 / Step::kPartN;
        if (index < kFirst || index >= kFirst + Room::kKept) continue;
        Output* part = room(index);
        if constexpr (kMatrices) {
          deposit_matrices<kMore>(sums, part, m, n);
        } else {
          deposit_lanes<kMore>(sums, part, m, n);
        }
      }
    }
  }
  // Stores four matrices of 8 rows x 8 outputs.
  template <bool kMore>
  KRONOP_INLINE void deposit_matrices(const Sums& sums, Output* part, int m, int n) const {
    const int warp = first_row(), line = threadIdx.x % 8, h = threadIdx.x / 8 % 2 * 8,
              j = threadIdx.x / 16 % 2 * 8;
    const int column = n * 8 % Step::kPartN;
    Output* to =
        part + Tile::at(0, column + j + (kByRows ? line : 0), warp + h + (kByRows ? 0 : line));
    unsigned words[4] = {}, before[4] = {};
    if (kMore && parameters.z) load_matrices<kByRows>(before, to);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Vector<Output, 2> bias{};
      if constexpr (kMore) bias = load<Output, 2>(shift_of((n + j) * 8 + threadIdx.x % 4 * 2));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Output pair[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          Output source{};
          if constexpr (kMore)
            source.bits = static_cast<unsigned short>(before[2 * j + h] >> 16 * r);
          pair[r] = finished<kMore>(sums, 0, m, n + j, 2 * h + r, source, bias.data[r]);
        }
        words[2 * j + h] = pair[0].bits | unsigned(pair[1].bits) << 16;
      }
    }
    store_matrices<kByRows>(to, words);
  }
  // Stores two outputs of all lanes: vectorised where both together, or the outputs or the lanes
  // alone, are contiguous.
  template <bool kMore>
  KRONOP_INLINE void deposit_lanes(const Sums& sums, Output* part, int m, int n) const {
    constexpr bool by_lanes = Step::kYOrder == kAlongLanes,
                   joined = by_lanes && Sums::kLanes == Step::kLanes;
    constexpr int count = 2 * Sums::kLanes;
    constexpr int together = joined ? count : by_lanes ? Sums::kLanes : kByRows ? 1 : 2;
    constexpr int vector = vector_of_lanes<together, sizeof(Output)>;
    const int row = first_row() + threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2,
              column = n * 8 % Step::kPartN + t;
    const auto output_of = [](int i) { return by_lanes ? i / Sums::kLanes : i % 2; };
    const auto lane_of = [](int i) { return by_lanes ? i % Sums::kLanes : i / 2; };
    Output bias[count] = {};
    if constexpr (kMore)
      load_shifts<joined ? vector : 1>(bias, shift_of(n * 8 + t), output_of, lane_of);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < count; i += vector) {
        Output* to = part + Tile::at(Sums::lane() + lane_of(i), column + output_of(i), row + 8 * h);
        Vector<Output, vector> before{}, few;
        if (kMore && parameters.z) before = load<Output, vector>(to);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
          few.data[v] = finished<kMore>(sums, lane_of(i + v), m, n, 2 * h + output_of(i + v),
                                        before.data[v], bias[i + v]);
        }
        store_shared<Output, vector>(to, few);
      }
    }
  }
  template <int kVector, int kCount, class OutputOf, class LaneOf>
  static KRONOP_INLINE void load_shifts(Output (&to)[kCount], const Output* from,
                                        OutputOf output_of, LaneOf lane_of) {
#pragma unroll
    for (int i = 0; i < kCount; i += kVector) {
      const auto few = load<Output, kVector>(from + output_of(i) * Step::kLanes + lane_of(i));
#pragma unroll
      for (int v = 0; v < kVector; ++v) to[i + v] = few.data[v];
    }
  }
};

}  // namespace contract
}  // namespace kronop
