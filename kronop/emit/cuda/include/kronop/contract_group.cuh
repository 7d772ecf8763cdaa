// One contraction for many rows on the tensor cores of sm_90a: Y[row, j] = sum over k of X[row, k] W[k, j], in
// lanes and groups, as in contract.cuh. Rows are one stride apart.
//
// A block stays on its multiprocessor and takes tiles of rows x outputs (x lanes) in turn. Its last warps do
// nothing but copy what is next into a ring of stages; the others, in groups of four warps, multiply what is there and
// store results while copies go on. W lies in the tiles as the tensor cores read it (contracted index contiguous: see
// pack_weights.cuh): all of it for as long as a block has the same outputs where kResident, else stage by stage. Few
// weights that stay are packed on their way here (kPacks).
// X of 16 bits and one lane is read from shared memory too; lanes are sorted, and float32 is split, in registers.
#pragma once

#include "barrier.cuh"
#include "contract_mma.cuh"
#include "group_products.cuh"
#include "pack_weights.cuh"

namespace kronop {
namespace contract {

inline constexpr int kTeam = 128, kTeamRows = 64;

// A tile in rows whose pieces are swizzled, as the tensor cores read it (group_products.cuh).
template <int Order, int Lanes, int Own, int Wide, class Element>
struct Swizzled {
  static constexpr bool kTurned = Order == kAlongRows;
  static constexpr int kPiece = 16 / int(sizeof(Element)), kLongest = 128 / int(sizeof(Element));
  static constexpr int kRow = kTurned || Own > kLongest ? kLongest : Own, kRowBytes = kRow * int(sizeof(Element));
  static constexpr int kRows = kTurned ? Own : Wide, kPart = kRows * kRow;  // rows, and elements of them that lie together
  static constexpr int kLane = Own * Wide, kSize = Lanes * kLane;
  static constexpr int kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 4;  // rows with the same places of pieces

  // Without the swizzle, as the tensor cores are told.
  static KRONOP_INLINE constexpr int start(int lane, int own, int wide) {
    const int along = kTurned ? wide : own, row = kTurned ? own : wide;
    return lane * kLane + along / kRow * kPart + row * kRow + along % kRow;
  }
  static KRONOP_INLINE constexpr int bytes(int lane, int own, int wide) { return start(lane, own, wide) * int(sizeof(Element)); }
  static KRONOP_INLINE constexpr int at(int lane, int own, int wide) {
    const int row = kTurned ? own : wide;
    return start(lane, own, wide) ^ row / kSwizzle % (kRow / kPiece) * kPiece;
  }
  // Whether places that many rows apart differ by a constant.
  static constexpr bool even(int rows) { return rows % 8 == 0; }
  static KRONOP_INLINE GroupMatrix matrix(const Element* from) { return GroupMatrix(from, 8 * kRowBytes, kRowBytes); }
};

// What a block has in shared memory, in elements of its operands.
template <class Step>
struct GroupTiles {
  using Operand = typename Step::Factor;
  using X = Either<Step::kDirect, Swizzled<Step::kXOrder, Step::kLanes, Step::kTileK, Step::kTileM, Operand>,
      Layout<Step::kXOrder, Step::kLanes, Step::kTileK, Step::kTileM, Step::kXPitch>>;
  using W = Swizzled<kAlongOwn, Step::kLanes, Step::kTileK, Step::kTileN, Operand>;
  static constexpr int kPlanes = Step::kSplit ? 2 : 1, kWSize = kPlanes * W::kSize;
  static constexpr int kSteps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK;
  static constexpr int kStage = Step::kXSize + (Step::kResident ? 0 : Step::kWRoom);
  static constexpr int kWarps = Step::kGroupsM * Step::kGroupsLanes * 4;
};

// Barriers of a block: stages that are filled and that are free, and the same of W where it stays.
template <class Step>
struct GroupBarriers {
  Barrier filled[Step::kStages], free[Step::kStages], w_filled, w_free;

  KRONOP_INLINE void begin() {
    constexpr int users = GroupTiles<Step>::kWarps;
    for (int stage = 0; stage < Step::kStages; ++stage) {
      filled[stage].begin(Step::kCopyThreads);
      free[stage].begin(users);
    }
    w_filled.begin(Step::kCopyThreads);
    w_free.begin(users);
  }
};

// The tiles of a block in turn. Where W stays, rows are fastest and a block has neighbours; else outputs are, so that
// blocks that run side by side share rows of X.
template <class Step, class Parameters>
struct TileWalk {
  static constexpr int kOutputTiles = (Step::kProduced + Step::kTileN - 1) / Step::kTileN;
  const Parameters& parameters;
  long long row_tiles, item, end, row = 0;
  Place place;
  long long part = -1;  // tells tiles of different parts of W apart

  KRONOP_INLINE explicit TileWalk(const Parameters& with) : parameters(with) {
    row_tiles = ceil_div(parameters.row_extent[0], Step::kTileM);
    const long long groups = parameters.group_extent[0] * parameters.group_extent[1] * parameters.group_extent[2] * parameters.group_extent[3];
    const long long all = row_tiles * kOutputTiles * ceil_div(parameters.lane_extent, Step::kLanes) * groups;
    item = Step::kResident ? all * blockIdx.x / gridDim.x : blockIdx.x;
    end = Step::kResident ? all * (blockIdx.x + 1) / gridDim.x : all;
    if (more()) locate();
  }
  KRONOP_INLINE bool more() const { return item < end; }
  KRONOP_INLINE void advance() {
    item += Step::kResident ? 1 : gridDim.x;
    if (Step::kResident && ++row < row_tiles) {
      place.x += Step::kTileM * parameters.row_x[0];
      place.y += Step::kTileM * parameters.row_y[0];
      place.z += Step::kTileM * parameters.row_z[0];
      place.rows = least(parameters.row_extent[0] - row * Step::kTileM, Step::kTileM);
    } else if (more()) {
      locate();
    }
  }

 private:
  static KRONOP_INLINE int least(long long left, int most) { return left < most ? int(left) : most; }
  KRONOP_INLINE void locate() {
    long long rest = item;
    if (Step::kResident) row = split(rest, row_tiles);
    part = rest;
    const int output = int(split(rest, kOutputTiles)) * Step::kTileN;
    if (!Step::kResident) row = split(rest, row_tiles);
    const long long first = row * Step::kTileM, lane = split(rest, ceil_div(parameters.lane_extent, Step::kLanes)) * Step::kLanes;
    place = Place{};
    place.rows = least(parameters.row_extent[0] - first, Step::kTileM);
    place.outputs = least(Step::kProduced - output, Step::kTileN);
    place.lanes = least(parameters.lane_extent - lane, Step::kLanes);
    place.x = lane * parameters.lane_x + first * parameters.row_x[0];
    place.w = lane * parameters.lane_w + output * parameters.produced_w;
    place.y = lane * parameters.lane_y + output * parameters.produced_y + first * parameters.row_y[0];
    place.z = lane * parameters.lane_z + output * parameters.produced_z + first * parameters.row_z[0];
    place.bias = lane * parameters.lane_bias + output * parameters.produced_bias;
    for_each_digit<4>(rest, parameters.group_extent, [&](int axis, long long digit) {
      place.x += digit * parameters.group_x[axis];
      place.w += digit * parameters.group_w[axis];
      place.y += digit * parameters.group_y[axis];
      place.z += digit * parameters.group_z[axis];
      place.bias += digit * parameters.group_bias[axis];
    });
  }
};

// Copies of X and W by those that do nothing else.
template <class Step, class Parameters>
struct GroupCopies {
  struct Fill : Step {
    static constexpr int kThreads = Step::kCopyThreads;
  };
  using Tiles = GroupTiles<Step>;
  using Operand = typename Step::Factor;
  // How many rows exist is not known beforehand.
  static constexpr int kAnyRows = Step::kTileM + 1;
  using CopiesOfX = Copies<Fill, Operand, typename Tiles::X, Step::kXOrder, Step::kTileM, Step::kXVector, kAnyRows, Evenly>;
  using CopiesOfW = Copies<Fill, Operand, typename Tiles::W, kAlongOwn, Step::kTileN, Step::kWVector, Step::kProduced, Evenly>;
  const Parameters& parameters;

  KRONOP_INLINE CopiesOfX x(const Place& place) const {
    return CopiesOfX(static_cast<const Operand*>(parameters.x) + place.x, parameters.contracted_x, parameters.lane_x,
        parameters.x_vector, place.rows, place.lanes, Evenly{parameters.row_x[0]});
  }
  KRONOP_INLINE CopiesOfW w(const Place& place, int plane) const {
    return CopiesOfW(static_cast<const Operand*>(parameters.w) + (place.w + plane * Step::kPlane), parameters.contracted_w, parameters.lane_w,
        parameters.w_vector, place.outputs, place.lanes, Evenly{parameters.produced_w});
  }
  // All of W for a tile, from whatever order memory has it in.
  KRONOP_INLINE void pack(const Place& place, Operand* resident) const {
    using W = typename Tiles::W;
    using Pieces = WeightPieces<Operand, Step::kWLanes>;
    constexpr int pieces = Tiles::kSteps * Step::kTileK / Pieces::kPiece;
#pragma unroll 1
    for (int index = threadIdx.x % Step::kCopyThreads; index < pieces * Step::kTileN * (Step::kLanes / Step::kWLanes); index += Step::kCopyThreads) {
      const int k = index % pieces * Pieces::kPiece, n = index / pieces % Step::kTileN, lane = index / (pieces * Step::kTileN) * Step::kWLanes;
      const Operand* from = static_cast<const Operand*>(parameters.w) + (place.w + n * parameters.produced_w + lane * parameters.lane_w + k * parameters.contracted_w);
      const int lanes = place.lanes - lane;
      const bool there = n < place.outputs && lanes > 0;
      const Pieces weights(from, parameters.contracted_w, parameters.lane_w, there ? Step::kContracted - k : 0, lanes, parameters.w_vector);
      Operand* to = resident + k / Step::kTileK * Tiles::kWSize;
#pragma unroll
      for (int l = 0; l < Step::kWLanes; ++l) {
        Operand* place_of_piece = to + W::at(lane + l, k % Step::kTileK, n);
        store_shared<Operand, Pieces::kPiece>(place_of_piece, weights.template plane<false>(l));
        if constexpr (Step::kSplit) store_shared<Operand, Pieces::kPiece>(place_of_piece + W::kSize, weights.template plane<true>(l));
      }
    }
  }
  // What was filled with ordinary stores has to be made known to the tensor cores by who stored it: so where pieces of X are
  // too small for asynchronous copies.
  // NOTE: of asynchronous copies only the reader makes a fence. PTX does not promise that this is enough; results of some
  // 1100 tiles on one H200 agreed with float64.
  KRONOP_INLINE void tell(Barrier& barrier) const {
    constexpr bool copied = Step::kXVector * sizeof(Operand) >= 4;
    if (copied && parameters.x_vector && (Step::kPacks || parameters.w_vector)) {
      barrier.arrive_after_copies();
    } else {
      wait_for_copies();
      publish_to_group_products();
      barrier.arrive();
    }
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void fill_stages(const Parameters& parameters, GroupBarriers<Step>& barriers, typename Step::Factor* stages, typename Step::Factor* resident) {
  using Tiles = GroupTiles<Step>;
  const GroupCopies<Step, Parameters> copies{parameters};
  Turn<Step::kStages> turn;
  Turn<1> w_turn;
  long long had = -1;
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const Place& place = walk.place;
    if (Step::kResident && walk.part != had) {
      if (had >= 0) {
        barriers.w_free.wait(w_turn.parity);
        w_turn.advance();
      }
      had = walk.part;
      if constexpr (Step::kPacks) {
        copies.pack(place, resident);
        publish_to_group_products();
        barriers.w_filled.arrive();
      }
#pragma unroll 1
      for (int plane = 0; !Step::kPacks && plane < Tiles::kPlanes; ++plane) {
        auto w = copies.w(place, plane);
#pragma unroll 1
        for (int step = 0; step < Tiles::kSteps; ++step) w.fill(resident + step * Tiles::kWSize + plane * Tiles::W::kSize);
      }
      if constexpr (!Step::kPacks) copies.tell(barriers.w_filled);
    }
    auto x = copies.x(place);
    auto w = copies.w(place, 0), rest = copies.w(place, Tiles::kPlanes - 1);
#pragma unroll 1
    for (int step = 0; step < Tiles::kSteps; ++step) {
      // The first round finds all stages free.
      barriers.free[turn.stage].wait(turn.parity ^ 1);
      auto* to = stages + turn.stage * Tiles::kStage;
      x.fill(to);
      if constexpr (!Step::kResident) {
        w.fill(to + Step::kXSize);
        if constexpr (Step::kSplit) rest.fill(to + Step::kXSize + Tiles::W::kSize);
      }
      copies.tell(barriers.filled[turn.stage]);
      turn.advance();
    }
  }
}

// The sums of a team, and the products of a stage.
template <class Step>
struct GroupSums {
  using Operand = typename Step::Factor;
  using Tiles = GroupTiles<Step>;
  using X = typename Tiles::X;
  using W = typename Tiles::W;
  static constexpr int kLanes = Step::kLanes / Step::kGroupsLanes, kM = Step::kTeamM, kN = Step::kTileN / 8;
  static constexpr int kApart = kTeamRows * Step::kGroupsM;  // from a team's rows to its next ones
  static constexpr int kSlab = 32 / int(sizeof(Operand));    // contracted steps of a product
  float of[kLanes][kM][kN][4] = {};

  // The first lane and row of this team, and of this warp.
  static KRONOP_INLINE int lane() { return threadIdx.x / kTeam % Step::kGroupsLanes * kLanes; }
  static KRONOP_INLINE int row() { return threadIdx.x / (kTeam * Step::kGroupsLanes) * kTeamRows; }
  static KRONOP_INLINE int warp_row() { return row() + threadIdx.x / 32 % 4 * 16; }

  // Products that are left in flight read the stage that they were started for.
  KRONOP_INLINE void add(const Operand* x, const Operand* w) {
    const GroupMatrix right = W::matrix(w + W::start(lane(), 0, 0));
    if constexpr (Step::kDirect) {
      add_direct(X::matrix(x + X::start(0, 0, row())), right);
    } else if constexpr (sizeof(Operand) == 2) {
      add_words(x + X::at(lane(), 0, warp_row()), right);
    } else {
      add_elements(x + X::at(lane(), 0, warp_row()), right);
    }
  }

 private:
  KRONOP_INLINE void add_direct(const GroupMatrix& left, const GroupMatrix& right) {
    begin_group_products();
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        group_product<Operand, X::kTurned>(of[0][m], left.after(X::bytes(0, k, m * kApart)), right.after(W::bytes(0, k, 0)), true);
      }
    }
    commit_group_products();
  }

  // Fragments of the next products are loaded while those before are multiplied, where there is room for both.
  KRONOP_INLINE void add_words(const Operand* x, const GroupMatrix& right) {
    constexpr int jobs = Step::kTileK / kSlab * kM, buffers = kLanes <= 4 && jobs % 2 == 0 ? 2 : 1;
    unsigned a[buffers][kLanes][4];
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kSlab) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const int job = k / kSlab * kM + m;
        wait_for_group_products<buffers - 1>();
        load_words<X, 8, false, false>(a[job % buffers], x + k * X::kOwn + m * kApart * X::kWide);
        begin_group_products();
#pragma unroll
        for (int l = 0; l < kLanes; ++l) group_product<Operand>(of[l][m], a[job % buffers][l], right.after(W::bytes(l, k, 0)), true);
        commit_group_products();
      }
    }
  }

  // NOTE: the tensor cores truncate sums: a few products follow each other, ordinary additions collect them.
  KRONOP_INLINE void add_elements(const Operand* x, const GroupMatrix& right) {
    constexpr int steps = Step::kSplit && kLanes == 1 ? 2 : 1;
    float chain[2][kN][4];
    unsigned a[2][steps][kLanes][4], rest[2][steps][kLanes][4];
    int job = 0;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < Step::kTileK; k += kSlab * steps) {
        const int buffer = (m * (Step::kTileK / (kSlab * steps)) + k / (kSlab * steps)) % 2;
#pragma unroll
        for (int s = 0; s < steps; ++s) load_split(a[buffer][s], rest[buffer][s], x + (k + s * kSlab) * X::kOwn + m * kApart * X::kWide);
#pragma unroll
        for (int l = 0; l < kLanes; ++l) {
          begin_group_products();
          if constexpr (Step::kSplit) {
            multiply_chain<steps>(chain[job % 2], a[buffer], rest[buffer], l, k, right);
          } else {
            group_product<Operand>(of[l][m], a[buffer][0][l], right.after(W::bytes(l, k, 0)), true);
          }
          commit_group_products();
          wait_for_group_products<1>();
          if constexpr (Step::kSplit) {
            if (job > 0) collect_chain(chain[(job - 1) % 2], job - 1);
          }
          ++job;
        }
      }
    }
    wait_for_group_products<0>();
    if constexpr (Step::kSplit) collect_chain(chain[(job - 1) % 2], job - 1);
  }
  // Jobs are in the order of rows, steps and lanes.
  KRONOP_INLINE void collect_chain(const float (&chain)[kN][4], int job) {
    constexpr int steps = kLanes == 1 ? 2 : 1, jobs = Step::kTileK / (kSlab * steps) * kLanes;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[job % kLanes][job / jobs][n][e] += chain[n][e];
    }
  }
  // Small products first.
  template <int kSteps>
  KRONOP_INLINE void multiply_chain(float (&chain)[kN][4], const unsigned (&a)[kSteps][kLanes][4], const unsigned (&rest)[kSteps][kLanes][4], int l, int k, const GroupMatrix& right) {
    constexpr int plane = W::kSize * int(sizeof(Operand));
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int place = W::bytes(l, k + s * kSlab, 0);
      group_product<Operand>(chain, rest[s][l], right.after(place), s > 0);
      group_product<Operand>(chain, a[s][l], right.after(place + plane), true);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) group_product<Operand>(chain, a[s][l], right.after(W::bytes(l, k + s * kSlab, 0)), true);
  }
  static KRONOP_INLINE void load_split(unsigned (&a)[kLanes][4], unsigned (&rest)[kLanes][4], const Operand* x) {
    Operand values[kLanes][4];
    load_elements<X, 2, 8, true>(values, x);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Operand value = round_to_tf32(values[l][e]);
        a[l][e] = __builtin_bit_cast(unsigned, value);
        if constexpr (Step::kSplit) rest[l][e] = __builtin_bit_cast(unsigned, values[l][e] - value);
      }
    }
  }
};

// Results on their way to Y, part by part: kPartN outputs of 64 rows, of all lanes; of one team, or of those that share
// rows. What is added to them takes the same way first; then registers meet it, through the epilogue.
template <class Step, class Parameters>
struct GroupResults {
  using Output = typename Step::Output;
  using Sums = GroupSums<Step>;
  static constexpr int kThreads = kTeam * Step::kGroupsLanes, kVector = Step::kYVector;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows, kMatrices = sizeof(Output) == 2 && Step::kLanes == 1;
  static constexpr int kAcross = Step::kTileN / Step::kPartN, kParts = Step::kTeamM * kAcross;
  using Tile = Layout<Step::kYOrder, Step::kLanes, Step::kPartN, kTeamRows, Step::kYPitch>;
  using Mine = Share<Step::kYOrder, Step::kLanes, Step::kPartN, kTeamRows, kVector, kThreads>;
  using Ends = Places<Output, Mine, Evenly>;
  static constexpr int kShifts = Step::kPartN * Step::kLanes;
  using Words = Vector<unsigned, (kVector * int(sizeof(Output)) < 4 ? 1 : kVector * int(sizeof(Output)) / 4)>;
  const Parameters& parameters;
  Finish<Step> finish;
  Output* results;
  Output* shifts;  // the bias of a part
  int team;

  KRONOP_INLINE GroupResults(const Parameters& with, Output* of_all)
      : parameters(with), finish(with), team(threadIdx.x / kThreads) {
    results = of_all + team * (Tile::kSize + kShifts);
    shifts = results + Tile::kSize;
  }

  KRONOP_INLINE void store_tile(const Sums& sums, const Place& place) const {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      const int row = Sums::row() + part / kAcross * Sums::kApart, output = part % kAcross * Step::kPartN;
      wait_for_team<kThreads>(team);
      if (parameters.z) {
        move<true>(static_cast<Output*>(parameters.z) + place.z, parameters.produced_z, parameters.lane_z, parameters.row_z[0], place, row, output);
      }
      if (parameters.z || parameters.bias) {
        load_shifts(place, output);
        wait_for_team<kThreads>(team);
        deposit<true>(sums, part);
      } else {
        deposit<false>(sums, part);
      }
      wait_for_team<kThreads>(team);
      move<false>(static_cast<Output*>(parameters.y) + place.y, parameters.produced_y, parameters.lane_y, parameters.row_y[0], place, row, output);
    }
  }

 private:
  // Between memory and `results`, in whole accesses where rows and outputs exist.
  template <bool kToShared>
  KRONOP_INLINE void move(Output* base, long long own, long long lane, long long stride, const Place& place, int row, int output) const {
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
      Output* here = results + Tile::at(chunk.lane, chunk.own, chunk.wide);
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
  KRONOP_INLINE void load_shifts(const Place& place, int output) const {
    const Output* bias = static_cast<const Output*>(parameters.bias);
#pragma unroll 1
    for (int i = threadIdx.x % kThreads; i < kShifts; i += kThreads) {
      const int n = output + i / Step::kLanes, lane = i % Step::kLanes;
      const bool there = bias && n < place.outputs && lane < place.lanes;
      shifts[i] = there ? bias[place.bias + n * parameters.produced_bias + lane * parameters.lane_bias] : Output{};
    }
  }

  // The sums of a part to their places.
  template <bool kMore>
  KRONOP_INLINE void deposit(const Sums& sums, int part) const {
#pragma unroll
    for (int m = 0; m < Step::kTeamM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; n += kMatrices ? 2 : 1) {
        if (m * kAcross + n * 8 / Step::kPartN != part) continue;
        if constexpr (kMatrices) {
          deposit_matrices<kMore>(sums, m, n);
        } else {
          deposit_lanes<kMore>(sums, m, n);
        }
      }
    }
  }
  // Four matrices of 8 rows x 8 outputs.
  template <bool kMore>
  KRONOP_INLINE void deposit_matrices(const Sums& sums, int m, int n) const {
    const int warp = threadIdx.x / 32 % 4 * 16, line = threadIdx.x % 8, h = threadIdx.x / 8 % 2 * 8, j = threadIdx.x / 16 % 2 * 8;
    const int column = n * 8 % Step::kPartN;
    Output* to = results + Tile::at(0, column + j + (kByRows ? line : 0), warp + h + (kByRows ? 0 : line));
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
          bias = shifts[column + i / 2 * 8 + threadIdx.x % 4 * 2 + r];
        }
        pair[r] = finished<kMore>(sums, 0, m, n + i / 2, i % 2 * 2 + r, source, bias);
      }
      words[i] = pair[0].bits | unsigned(pair[1].bits) << 16;
    }
    store_matrices<kByRows>(to, words);
  }
  template <bool kMore>
  KRONOP_INLINE void deposit_lanes(const Sums& sums, int m, int n) const {
    constexpr int vector = Step::kYOrder == kAlongLanes ? vector_of_lanes<Sums::kLanes, sizeof(Output)> : 1;
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = n * 8 % Step::kPartN + threadIdx.x % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int l = 0; l < Sums::kLanes; l += vector) {
        Output* to = results + Tile::at(Sums::lane() + l, column + e % 2, row + e / 2 * 8);
        Vector<Output, vector> before{}, few;
        if (kMore && parameters.z) before = load<Output, vector>(to);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
          const Output bias = kMore ? shifts[(column + e % 2) * Step::kLanes + Sums::lane() + l + v] : Output{};
          few.data[v] = finished<kMore>(sums, l + v, m, n, e, before.data[v], bias);
        }
        store_shared<Output, vector>(to, few);
      }
    }
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void use_stages(const Parameters& parameters, GroupBarriers<Step>& barriers, const typename Step::Factor* stages, const typename Step::Factor* resident, typename Step::Output* staged) {
  using Tiles = GroupTiles<Step>;
  const bool speaks = threadIdx.x % 32 == 0;
  const GroupResults<Step, Parameters> results(parameters, staged);
  Turn<Step::kStages> turn;
  Turn<1> w_turn;
  long long had = -1;
#pragma unroll 1
  for (TileWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const Place& place = walk.place;
    if (Step::kResident && walk.part != had) {
      if (had >= 0 && speaks) barriers.w_free.arrive();
      barriers.w_filled.wait(w_turn.parity);
      w_turn.advance();
      had = walk.part;
    }
    GroupSums<Step> sums;
    int before = -1;
#pragma unroll 1
    for (int step = 0; step < Tiles::kSteps; ++step) {
      barriers.filled[turn.stage].wait(turn.parity);
      publish_to_group_products();
      const auto* stage = stages + turn.stage * Tiles::kStage;
      sums.add(stage, Step::kResident ? resident + step * Tiles::kWSize : stage + Step::kXSize);
      // The products of the stage before are done when only those of this one are left.
      wait_for_group_products<1>();
      if (before >= 0 && speaks) barriers.free[before].arrive();
      before = turn.stage;
      turn.advance();
    }
    wait_for_group_products<0>();
    if (speaks) barriers.free[before].arrive();
    results.store_tile(sums, place);
  }
}

}  // namespace contract

template <class Step, class Parameters>
KRONOP_INLINE void contract_group(const Parameters& parameters) {
  using Tiles = contract::GroupTiles<Step>;
  using Operand = typename Step::Factor;
  unsigned char* shared = shared_memory();
  auto& barriers = *reinterpret_cast<contract::GroupBarriers<Step>*>(shared + Step::kBarriersAt);
  auto* results = reinterpret_cast<typename Step::Output*>(shared + Step::kResultsAt);
  auto* stages = reinterpret_cast<Operand*>(shared);
  auto* resident = stages + Step::kStages * Tiles::kStage;
  if (threadIdx.x == 0) {
    barriers.begin();
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Tiles::kWarps * 32) {
    give_registers_back<Step::kCopyRegisters>();
    contract::fill_stages<Step>(parameters, barriers, stages, resident);
  } else {
    take_registers<Step::kProductRegisters>();
    contract::use_stages<Step>(parameters, barriers, stages, resident, results);
  }
}

}  // namespace kronop
