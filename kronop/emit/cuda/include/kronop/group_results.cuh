// Results of contract_group.cuh: from the sums of a team to Y.
#pragma once

#include "group_sums.cuh"

namespace kronop {
namespace contract {

// Results on their way to Y: all of a tile wait in shared memory while the products of the next one go on. They leave part by
// part: kPartN outputs of kPartM rows, of all lanes. Parts of 16 rows are a warp's own, and warps wait for nobody; those of 64
// are of a team, or of teams that share rows. What is added to results takes the same way first; then registers meet it,
// through the epilogue.
template <class Step, class Parameters>
struct GroupResults {
  using Output = typename Step::Output;
  using Sums = GroupSums<Step>;
  static constexpr int kThreads = Step::kPartM / 16 * 32 * Step::kGroupsLanes, kVector = Step::kYVector;
  static constexpr bool kByWarps = kThreads == 32;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows, kMatrices = sizeof(Output) == 2 && Step::kLanes == 1;
  static constexpr int kAcross = Step::kTileN / Step::kPartN, kParts = Step::kTeamM * kAcross;
  using Tile = Layout<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, Step::kYPitch>;
  using Mine = Share<Step::kYOrder, Step::kLanes, Step::kPartN, Step::kPartM, kVector, kThreads>;
  using Ends = Places<Output, Mine, Evenly>;
  static constexpr int kShifts = Step::kTileN * Step::kLanes;
  using Words = Vector<unsigned, (kVector * int(sizeof(Output)) < 4 ? 1 : kVector * int(sizeof(Output)) / 4)>;
  const Parameters& parameters;
  Finish<Step> finish;
  Output* results;
  Output* shifts;  // the bias of a tile

  KRONOP_INLINE GroupResults(const Parameters& with, Output* of_all) : parameters(with), finish(with) {
    results = of_all + threadIdx.x / kThreads * (kParts * Tile::kSize + kShifts);
    shifts = results + kParts * Tile::kSize;
  }

  // Takes the results of a tile; those before have left.
  KRONOP_INLINE void take(const Sums& sums, const Place& place) const {
    wait();
    if (parameters.z || parameters.bias) {
      load_shifts(place);
#pragma unroll 1
      for (int part = 0; parameters.z && part < kParts; ++part) {
        move<true>(static_cast<Output*>(parameters.z) + place.z, parameters.produced_z, parameters.lane_z, parameters.row_z[0], place, part);
      }
      wait();
      deposit<true>(sums);
    } else {
      deposit<false>(sums);
    }
    wait();
  }
  // Parts from `first` on leave, as many as are to leave at each step of the products.
  KRONOP_INLINE void store(const Place& place, int first, int count) const {
#pragma unroll 1
    for (int part = first; part < first + count && part < kParts; ++part) {
      move<false>(static_cast<Output*>(parameters.y) + place.y, parameters.produced_y, parameters.lane_y, parameters.row_y[0], place, part);
    }
  }

 private:
  // For those that have a part together.
  static KRONOP_INLINE void wait() {
    if constexpr (kByWarps) {
      wait_for_warp();
    } else {
      wait_for_team<kThreads>(threadIdx.x / kThreads);
    }
  }
  // The first of this warp's rows in its part.
  static KRONOP_INLINE int first_row() { return kByWarps ? 0 : threadIdx.x / 32 % 4 * 16; }
  // Between memory and `results`, in whole accesses where rows and outputs exist.
  template <bool kToShared>
  KRONOP_INLINE void move(Output* base, long long own, long long lane, long long stride, const Place& place, int part) const {
    const int row = (kByWarps ? Sums::warp_row() : Sums::row()) + part / kAcross * Sums::kApart, output = part % kAcross * Step::kPartN;
    const Mine mine;
    const Evenly wide{stride};
    const Ends ends(base + (output * own + row * stride), own, lane, wide, mine);
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto chunk = mine[i];
      const int rows = place.rows - row - chunk.wide;
      if (rows <= 0 || chunk.own + output >= place.outputs || chunk.lane >= place.lanes) continue;
      Output* memory = const_cast<Output*>(ends.template at<false>(mine, i));
      Output* here = results + part * Tile::kSize + Tile::at(chunk.lane, chunk.own, chunk.wide);
      if (kVector > 1 && parameters.y_vector && (!kByRows || rows >= kVector)) {
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
  // Of a Y that allows no vectors, and of the last rows.
  template <bool kToShared, class Chunk>
  KRONOP_INLINE void move_each(Output* base, Output* here, const Chunk& chunk, long long own, long long lane, long long stride, const Place& place, int row, int output) const {
#pragma unroll 1
    for (int v = 0; v < kVector; ++v) {
      const int lanes = chunk.lane + (Step::kYOrder == kAlongLanes ? v : 0), over = lanes / Step::kLanes, l = lanes - over * Step::kLanes;
      const int n = chunk.own + output + (Step::kYOrder == kAlongOwn ? v : over), m = chunk.wide + row + (kByRows ? v : 0);
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

  // Sum `e` of outputs `n` and of a lane, through the epilogue.
  template <bool kMore>
  KRONOP_INLINE Output finished(const Sums& sums, int l, int m, int n, int e, Output source, Output bias) const {
    if constexpr (kMore) {
      return finish(sums.of[l][m][n][e], source, bias);
    } else {
      return finish(sums.of[l][m][n][e]);
    }
  }
  KRONOP_INLINE void load_shifts(const Place& place) const {
    const Output* bias = static_cast<const Output*>(parameters.bias);
#pragma unroll 1
    for (int i = threadIdx.x % kThreads; i < kShifts; i += kThreads) {
      const int n = i / Step::kLanes, lane = i % Step::kLanes;
      const bool there = bias && n < place.outputs && lane < place.lanes;
      shifts[i] = there ? bias[place.bias + n * parameters.produced_bias + lane * parameters.lane_bias] : Output{};
    }
  }

  // The sums to their places.
  template <bool kMore>
  KRONOP_INLINE void deposit(const Sums& sums) const {
#pragma unroll
    for (int m = 0; m < Step::kTeamM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; n += kMatrices ? 2 : 1) {
        Output* part = results + (m * kAcross + n * 8 / Step::kPartN) * Tile::kSize;
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

}  // namespace contract
}  // namespace kronop
