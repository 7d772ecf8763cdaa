// Results of contract_group.cuh: from the sums of the teams to Y.
#pragma once

#include "group_sums.cuh"

namespace kronop {
namespace contract {

// Results on their way to Y. Teams leave them in shared memory and go on with the products of the next tile, while a warp of its
// others store them: kKept parts of each unit of rows at a time, which may be all of a tile. A part has kPartN outputs of kPartM
// rows, of all lanes; a unit is a warp's rows, or a team's where memory has rows side by side.
// What is added to results takes the same way before them, and the bias of a tile lies behind; then registers meet both,
// through the epilogue.
template <class Step>
struct GroupRoom {
  using Output = typename Step::Output;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows;
  static constexpr int kAcross = Step::kTileN / Step::kPartN, kParts = Step::kTeamM * kAcross, kKept = Step::kKept;
  static constexpr int kUnits = Step::kGroupsM * kTeamRows / Step::kPartM;
  using Tile = Layout<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, Step::kYPitch>;
  static constexpr int kShifts = Step::kTileN * Step::kLanes;
  static KRONOP_INLINE constexpr int at(int unit, int part) { return (unit * kKept + part % kKept) * Tile::kSize; }
  static KRONOP_INLINE constexpr int shifts() { return kUnits * kKept * Tile::kSize; }
};

// What a thread that multiplies does with its sums.
template <class Step, class Parameters>
struct GroupResults {
  using Output = typename Step::Output;
  using Sums = GroupSums<Step>;
  using Room = GroupRoom<Step>;
  using Tile = typename Room::Tile;
  static constexpr bool kByRows = Room::kByRows, kMatrices = sizeof(Output) == 2 && Step::kLanes == 1;
  static constexpr int kAcross = Room::kAcross;
  const Parameters& parameters;
  GroupBarriers<Step>& barriers;
  Finish<Step> finish;
  Output* results;
  const Output* shifts;
  Turn<1> turn;

  KRONOP_INLINE GroupResults(const Parameters& with, GroupBarriers<Step>& of_block, Output* of_all)
      : parameters(with), barriers(of_block), finish(with), results(of_all + Room::at(Sums::warp_row() / Step::kPartM, 0)), shifts(of_all + Room::shifts()) {}

  KRONOP_INLINE void take(const Sums& sums) {
    take_parts<0>(sums);
    if constexpr (Room::kKept < Room::kParts) take_parts<Room::kKept>(sums);
  }

 private:
  template <int kFirst>
  KRONOP_INLINE void take_parts(const Sums& sums) {
    barriers.results_free.wait(turn.parity);
    if (parameters.z || parameters.bias) {
      deposit<true, kFirst>(sums);
    } else {
      deposit<false, kFirst>(sums);
    }
    wait_for_warp();
    if (threadIdx.x % 32 == 0) barriers.results_filled.arrive();
    turn.advance();
  }
  KRONOP_INLINE Output* room(int part) const { return results + part % Room::kKept * Tile::kSize; }
  // The first of this warp's rows in its unit.
  static KRONOP_INLINE int first_row() { return Sums::warp_row() % Step::kPartM; }
  // Sum `e` of outputs `n` and of a lane, through the epilogue.
  template <bool kMore>
  KRONOP_INLINE Output finished(const Sums& sums, int l, int m, int n, int e, Output source, Output bias) const {
    if constexpr (kMore) {
      return finish(sums.of[l][m][n][e], source, bias);
    } else {
      return finish(sums.of[l][m][n][e]);
    }
  }
  // The sums of kKept parts to their places.
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
  // Four matrices of 8 rows x 8 outputs.
  template <bool kMore>
  KRONOP_INLINE void deposit_matrices(const Sums& sums, Output* part, int m, int n) const {
    const int warp = first_row(), line = threadIdx.x % 8, h = threadIdx.x / 8 % 2 * 8, j = threadIdx.x / 16 % 2 * 8;
    const int column = n * 8 % Step::kPartN;
    Output* to = part + Tile::at(0, column + j + (kByRows ? line : 0), warp + h + (kByRows ? 0 : line));
    unsigned words[4] = {}, before[4] = {};
    if (kMore && parameters.z) load_matrices<kByRows>(before, to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Output pair[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        Output source{}, bias{};
        if constexpr (kMore) {
          source.bits = static_cast<unsigned short>(before[i] >> 16 * r);
          bias = shifts[n * 8 + i / 2 * 8 + threadIdx.x % 4 * 2 + r];
        }
        pair[r] = finished<kMore>(sums, 0, m, n + i / 2, i % 2 * 2 + r, source, bias);
      }
      words[i] = pair[0].bits | unsigned(pair[1].bits) << 16;
    }
    store_matrices<kByRows>(to, words);
  }
  template <bool kMore>
  KRONOP_INLINE void deposit_lanes(const Sums& sums, Output* part, int m, int n) const {
    constexpr int vector = Step::kYOrder == kAlongLanes ? vector_of_lanes<Sums::kLanes, sizeof(Output)> : 1;
    const int row = first_row() + threadIdx.x % 32 / 4, column = n * 8 % Step::kPartN + threadIdx.x % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int l = 0; l < Sums::kLanes; l += vector) {
        Output* to = part + Tile::at(Sums::lane() + l, column + e % 2, row + e / 2 * 8);
        Vector<Output, vector> before{}, few;
        if (kMore && parameters.z) before = load<Output, vector>(to);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
          const Output bias = kMore ? shifts[(n * 8 + threadIdx.x % 4 * 2 + e % 2) * Step::kLanes + Sums::lane() + l + v] : Output{};
          few.data[v] = finished<kMore>(sums, l + v, m, n, e, before.data[v], bias);
        }
        store_shared<Output, vector>(to, few);
      }
    }
  }
};

// What the warps that store do, each with parts of its own.
template <class Step, class Parameters>
struct GroupStores {
  using Output = typename Step::Output;
  using Sums = GroupSums<Step>;
  using Room = GroupRoom<Step>;
  using Tile = typename Room::Tile;
  static constexpr int kVector = Step::kYVector;
  using Mine = Share<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, kVector, 32>;
  using Ends = Places<Output, Mine, Evenly>;
  using Words = Vector<unsigned, (kVector * int(sizeof(Output)) < 4 ? 1 : kVector * int(sizeof(Output)) / 4)>;
  const Parameters& parameters;
  Output* results;
  Output* shifts;

  KRONOP_INLINE GroupStores(const Parameters& with, Output* of_all) : parameters(with), results(of_all), shifts(of_all + Room::shifts()) {}

  // Brings what is added to kKept parts from `first` on.
  KRONOP_INLINE void prepare(const Place& place, int first) const {
    if (parameters.z) move_all<true>(static_cast<Output*>(parameters.z) + place.z, parameters.produced_z, parameters.lane_z, parameters.row_z[0], place, first);
    if (first == 0 && (parameters.z || parameters.bias)) load_shifts(place);
  }
  KRONOP_INLINE void store(const Place& place, int first) const {
    move_all<false>(static_cast<Output*>(parameters.y) + place.y, parameters.produced_y, parameters.lane_y, parameters.row_y[0], place, first);
  }

 private:
  template <bool kToShared>
  KRONOP_INLINE void move_all(Output* base, long long own, long long lane, long long stride, const Place& place, int first) const {
#pragma unroll 1
    for (int index = threadIdx.x % kTeam / 32; index < Room::kUnits * Room::kKept; index += kTeam / 32) {
      move<kToShared>(base, own, lane, stride, place, index / Room::kKept, first + index % Room::kKept);
    }
  }
  // Between memory and `results`, in whole accesses where rows and outputs exist.
  template <bool kToShared>
  KRONOP_INLINE void move(Output* base, long long own, long long lane, long long stride, const Place& place, int unit, int part) const {
    const int row = unit * Step::kPartM + part / Room::kAcross * Sums::kApart, output = part % Room::kAcross * Step::kPartN;
    const Mine mine;
    const Evenly wide{stride};
    const Ends ends(base + (output * own + row * stride), own, lane, wide, mine);
    Output* const tile = results + Room::at(unit, part);
    const bool vectors = kVector > 1 && parameters.y_vector;
    if (vectors && Mine::kRegular && row + Step::kPartM <= place.rows && output + Step::kPartN <= place.outputs && Step::kLanes <= place.lanes) {
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
  // Of parts that exist as a whole: most of them.
  template <bool kToShared>
  KRONOP_INLINE void move_whole(const Ends& ends, const Mine& mine, Output* tile) const {
    Output* const first = tile + Tile::at(mine.first.lane, mine.first.own, mine.first.wide);
    Words words[Mine::kEach];
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto more = Mine::apart(i);
      words[i] = *reinterpret_cast<const Words*>(kToShared ? ends.template at<false>(mine, i) : first + Tile::at(more.lane, more.own, more.wide));
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
  // Of a Y that allows no vectors, and of the last rows.
  template <bool kToShared, class Chunk>
  KRONOP_INLINE void move_each(Output* base, Output* here, const Chunk& chunk, long long own, long long lane, long long stride, const Place& place, int row, int output) const {
#pragma unroll 1
    for (int v = 0; v < kVector; ++v) {
      const int lanes = chunk.lane + (Step::kYOrder == kAlongLanes ? v : 0), over = lanes / Step::kLanes, l = lanes - over * Step::kLanes;
      const int n = chunk.own + output + (Step::kYOrder == kAlongOwn ? v : over), m = chunk.wide + row + (Room::kByRows ? v : 0);
      if (m >= place.rows || n >= place.outputs || l >= place.lanes) continue;
      // Only what is of this part counts as its output: `base` begins with the tile.
      Output* memory = base + (m * stride + n * own + l * lane);
      if constexpr (kToShared) {
        here[v] = *memory;
      } else {
        *memory = here[v];
      }
    }
  }

  KRONOP_INLINE void load_shifts(const Place& place) const {
    const Output* bias = static_cast<const Output*>(parameters.bias);
#pragma unroll 1
    for (int i = threadIdx.x % kTeam; i < Room::kShifts; i += kTeam) {
      const int n = i / Step::kLanes, lane = i % Step::kLanes;
      const bool there = bias && n < place.outputs && lane < place.lanes;
      shifts[i] = there ? bias[place.bias + n * parameters.produced_bias + lane * parameters.lane_bias] : Output{};
    }
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void store_results(const Parameters& parameters, GroupBarriers<Step>& barriers, typename Step::Output* staged) {
  const GroupStores<Step, Parameters> stores(parameters, staged);
  Turn<1> turn;
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
#pragma unroll 1
    for (int first = 0; first < GroupRoom<Step>::kParts; first += Step::kKept) {
      stores.prepare(walk.place, first);
      wait_for_warp();
      if (threadIdx.x % 32 == 0) barriers.results_free.arrive();
      barriers.results_filled.wait(turn.parity);
      stores.store(walk.place, first);
      wait_for_warp();
      turn.advance();
    }
  }
}

}  // namespace contract
}  // namespace kronop
