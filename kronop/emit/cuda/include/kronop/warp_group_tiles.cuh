// The shared memory of contract_warp_group.cuh's blocks, and the order of the tiles of a persistent
// block.
#pragma once

#include "barrier.cuh"
#include "contract_mma.cuh"
#include "warp_group_products.cuh"

namespace kronop {
namespace contract {

inline constexpr int kTeam = 128, kTeamRows = 64;

// A tile with swizzled rows, as the tensor cores read it (warp_group_products.cuh).
template <int Order, int Lanes, int Own, int Wide, class Element>
struct Swizzled {
  static constexpr bool kTurned = Order == kAlongRows;
  static constexpr int kPiece = 16 / int(sizeof(Element)), kLongest = 128 / int(sizeof(Element));
  static constexpr int kRow = kTurned || Own > kLongest ? kLongest : Own,
                       kRowBytes = kRow * int(sizeof(Element));
  static constexpr int kRows = kTurned ? Own : Wide,
                       kPart = kRows * kRow;  // rows of a part, and its contiguous elements
  static constexpr int kLane = Own * Wide, kSize = Lanes * kLane;
  static constexpr int kSwizzle = kRowBytes == 128  ? 1
                                  : kRowBytes == 64 ? 2
                                                    : 4;  // neighbouring rows with the same swizzle

  // An element's offset without the swizzle, as descriptors need it.
  static KRONOP_INLINE constexpr int start(int lane, int own, int wide) {
    const int along = kTurned ? wide : own, row = kTurned ? own : wide;
    return lane * kLane + along / kRow * kPart + row * kRow + along % kRow;
  }
  static KRONOP_INLINE constexpr int bytes(int lane, int own, int wide) {
    return start(lane, own, wide) * int(sizeof(Element));
  }
  static KRONOP_INLINE constexpr int at(int lane, int own, int wide) {
    const int row = kTurned ? own : wide;
    return start(lane, own, wide) ^ row / kSwizzle % (kRow / kPiece) * kPiece;
  }
  // Whether offsets that many rows apart differ by a constant.
  static constexpr bool even(int rows) { return rows % 8 == 0; }
  static KRONOP_INLINE WarpGroupMatrix matrix(const Element* from) {
    return WarpGroupMatrix(from, 8 * kRowBytes, kRowBytes);
  }
};

// Rows of 4-byte elements whose pitch is an odd number of sectors. In rows 4 to 7 of every eight,
// the halves of each 32-byte sector are swapped. So fragment loads have no bank conflicts, and each
// sector of memory still goes to one sector of shared memory.
template <int Lanes, int Own, int Wide, int Pitch>
struct Crossed : Layout<kAlongOwn, Lanes, Own, Wide, Pitch> {
  static KRONOP_INLINE constexpr int at(int lane, int own, int wide) {
    return Layout<kAlongOwn, Lanes, Own, Wide, Pitch>::at(lane, own ^ wide / 4 % 2 * 4, wide);
  }
  static constexpr bool even(int rows) { return rows % 8 == 0; }
  static constexpr bool kCrossed = true;
};

// The tiles in shared memory, in elements of the operands.
template <class Step>
struct WarpGroupTiles {
  using Operand = typename Step::Factor;
  using X = Either<
      Step::kDirect, Swizzled<Step::kXOrder, Step::kLanes, Step::kTileK, Step::kTileM, Operand>,
      Either<sizeof(Operand) == 4 && Step::kXOrder == kAlongOwn,
             Crossed<Step::kLanes, Step::kTileK, Step::kTileM, Step::kXPitch>,
             Layout<Step::kXOrder, Step::kLanes, Step::kTileK, Step::kTileM, Step::kXPitch>>>;
  using W = Swizzled<kAlongOwn, Step::kLanes, Step::kTileK, Step::kTileN, Operand>;
  static constexpr int kPlanes = Step::kSplit ? 2 : 1, kWSize = kPlanes * W::kSize;
  static constexpr int kSteps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK;
  // Teams along outputs share rows; each has an equal share of the tile's outputs.
  static constexpr int kTeams = Step::kTeamsAlongM * Step::kTeamsAlongLanes * Step::kTeamsAlongN,
                       kWarps = kTeams * 4;
  static constexpr int kTeamN = Step::kTileN / Step::kTeamsAlongN;
  // Units of results, each of kPartM rows and all outputs of a team (warp_group_results.cuh).
  static constexpr int kUnits = Step::kTeamsAlongM * Step::kTeamsAlongN * kTeamRows / Step::kPartM;
};

// The barriers of a block: "filled" and "free" for each stage, for a resident W and for each unit
// of results, and one for the bias.
template <class Step>
struct WarpGroupBarriers {
  Barrier filled[Step::kStages], free[Step::kStages], w_filled, w_free;
  Barrier results_filled[WarpGroupTiles<Step>::kUnits], results_free[WarpGroupTiles<Step>::kUnits],
      shifts_filled;

  KRONOP_INLINE void begin() {
    constexpr int users = WarpGroupTiles<Step>::kWarps;
    for (int stage = 0; stage < Step::kStages; ++stage) {
      filled[stage].begin(kTeam + (Step::kImages ? 1 : 0));
      free[stage].begin(users);
    }
    w_filled.begin(kTeam);
    w_free.begin(users);
    // A unit is stored by one warp, or by all four.
    for (int unit = 0; unit < WarpGroupTiles<Step>::kUnits; ++unit) {
      results_filled[unit].begin(users / WarpGroupTiles<Step>::kUnits);
      results_free[unit].begin(Step::kPartM * 4 / kTeamRows);
    }
    shifts_filled.begin(kTeam);
  }
};

// The tiles of a persistent block, in an order in which blocks that run at the same time access
// neighbouring memory.
//
// With a resident W, a block keeps its part of W and processes a range of all tiles, rows fastest.
// If X is not contiguous along rows and each part of W has n blocks, it processes every n-th tile
// of rows instead. Without, outputs are fastest, so that blocks share rows of X. If X is not
// contiguous along rows, lanes and sections follow, since they are contiguous in memory, and rows
// are last, unless W exceeds the level-2 cache: all of W is read again for every tile of rows.
template <class Step, class Parameters>
struct TileWalk {
  static constexpr int kOutputTiles = (Step::kProduced + Step::kTileN - 1) / Step::kTileN;
  static constexpr long long kMostWeights = 24 << 20, kWeights = (long long)Step::kContracted *
                                                                 Step::kProduced *
                                                                 WarpGroupTiles<Step>::kPlanes *
                                                                 sizeof(typename Step::Factor);
  // NOTE: there are fewer than 2^31 tiles: so many would be 4 terabytes of results.
  const Parameters& parameters;
  int item, end, row = 0, part = -1;  // `part` distinguishes tiles of different parts of W
  int apart = 1;                      // the stride between a block's tiles of rows
  Place place;

  KRONOP_INLINE explicit TileWalk(const Parameters& with) : parameters(with) {
    const long long parts = (long long)kOutputTiles * lane_tiles() * sections(),
                    all = parts * row_tiles();
    if (Step::kResident && Step::kXOrder != kAlongRows && gridDim.x % parts == 0) {
      apart = int(gridDim.x / parts);
      row = int(blockIdx.x / parts);
      part = int(blockIdx.x % parts);
      item = 0;
      end = int(ceil_div(row_tiles() - row, apart));
      if (more()) locate_part(part);
      return;
    }
    item = Step::kResident ? int(all * blockIdx.x / gridDim.x) : blockIdx.x;
    end = Step::kResident ? int(all * (blockIdx.x + 1) / gridDim.x) : int(all);
    if (more()) locate();
  }
  KRONOP_INLINE bool more() const { return item < end; }
  KRONOP_INLINE void advance() {
    item += Step::kResident ? 1 : gridDim.x;
    row += apart;
    if (Step::kResident && row < row_tiles()) {
      place.x += apart * Step::kTileM * parameters.row_x[0];
      place.y += apart * Step::kTileM * parameters.row_y[0];
      place.z += apart * Step::kTileM * parameters.row_z[0];
      place.rows = least(parameters.row_extent[0] - (long long)row * Step::kTileM, Step::kTileM);
    } else if (more()) {
      locate();
    }
  }

 private:
  KRONOP_INLINE int row_tiles() const {
    return int(ceil_div(parameters.row_extent[0], Step::kTileM));
  }
  KRONOP_INLINE int lane_tiles() const {
    return int(ceil_div(parameters.lane_extent, Step::kLanes));
  }
  KRONOP_INLINE int sections() const {
    return int(parameters.section_extent[0] * parameters.section_extent[1] *
               parameters.section_extent[2] * parameters.section_extent[3]);
  }
  static KRONOP_INLINE int least(long long left, int most) {
    return left < most ? int(left) : most;
  }
  static KRONOP_INLINE int digit(unsigned& index, unsigned extent) {
    const unsigned rest = index / extent, digit = index - rest * extent;
    index = rest;
    return int(digit);
  }
  KRONOP_INLINE void locate() {
    unsigned rest = item;
    if (Step::kResident) row = digit(rest, row_tiles());
    part = int(rest);
    locate_part(rest);
  }
  // Locates a tile by its part, and by its row unless the row is a digit of its own.
  KRONOP_INLINE void locate_part(unsigned rest) {
    const bool rows_last = !Step::kResident && Step::kXOrder != kAlongRows &&
                           sections() * parameters.lane_extent * kWeights <= kMostWeights;
    const int output = digit(rest, kOutputTiles) * Step::kTileN;
    if (!Step::kResident && !rows_last) row = digit(rest, row_tiles());
    const long long lane = digit(rest, lane_tiles()) * Step::kLanes;
    if (rows_last) {
      const int section = digit(rest, sections());
      row = int(rest);
      rest = section;
    }
    const long long first = (long long)row * Step::kTileM;
    place = Place{};
    place.rows = least(parameters.row_extent[0] - first, Step::kTileM);
    place.outputs = least(Step::kProduced - output, Step::kTileN);
    place.lanes = least(parameters.lane_extent - lane, Step::kLanes);
    place.x = lane * parameters.lane_x + first * parameters.row_x[0];
    place.w = lane * parameters.lane_w + output * parameters.produced_w;
    place.y =
        lane * parameters.lane_y + output * parameters.produced_y + first * parameters.row_y[0];
    place.z =
        lane * parameters.lane_z + output * parameters.produced_z + first * parameters.row_z[0];
    place.bias = lane * parameters.lane_bias + output * parameters.produced_bias;
    for_each_digit<4>(rest, parameters.section_extent, [&](int axis, long long digit) {
      place.x += digit * parameters.section_x[axis];
      place.w += digit * parameters.section_w[axis];
      place.y += digit * parameters.section_y[axis];
      place.z += digit * parameters.section_z[axis];
      place.bias += digit * parameters.section_bias[axis];
    });
  }
};

}  // namespace contract
}  // namespace kronop
