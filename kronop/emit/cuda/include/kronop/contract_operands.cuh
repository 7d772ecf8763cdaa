// Tiles of a contraction's operands in shared memory, in the order of their memory, and how they get there.
//
// An operand has lanes, an index of its own (contracted; of the results: produced) and a wide one (rows
// of X, outputs of W). Which of them is contiguous in memory is so in shared memory as well:
//   kAlongOwn   [lane][wide][own]
//   kAlongRows  [lane][own][wide]
//   kAlongLanes [wide][own][lane]
// with a pitch from one run to the next that keeps the accesses of a warp apart in the banks.
#pragma once

#include "async_copy.cuh"
#include "contract.cuh"

namespace kronop {
namespace contract {

// Places in such a tile.
template <int Order, int Lanes, int Own, int Wide, int Pitch>
struct Layout {
  static constexpr int kOrder = Order, kLanes = Lanes;
  static constexpr int kLane = Order == kAlongLanes ? 1 : (Order == kAlongOwn ? Wide : Own) * Pitch;
  static constexpr int kOwn = Order == kAlongOwn ? 1 : Order == kAlongRows ? Pitch : Lanes;
  static constexpr int kWide = Order == kAlongRows ? 1 : Pitch;
  static constexpr int kSize = Order == kAlongLanes ? Wide * Pitch : Lanes * kLane;
  static KRONOP_INLINE constexpr int at(int lane, int own, int wide) { return lane * kLane + own * kOwn + wide * kWide; }
};

// Piece `index` of a tile in the order of its memory, VectorSize elements of one run: its first one.
// Runs along lanes go on along the own index: where a block has all lanes, memory does so too.
template <int Order, int Lanes, int Own, int Wide, int VectorSize>
struct Piece {
  static constexpr int kCount = Lanes * Own * Wide / VectorSize;
  int lane, own, wide;
  KRONOP_INLINE explicit Piece(int index) {
    if constexpr (Order == kAlongOwn) {
      constexpr int run = Own / VectorSize;
      own = index % run * VectorSize, wide = index / run % Wide, lane = index / (run * Wide);
    } else if constexpr (Order == kAlongRows) {
      constexpr int run = Wide / VectorSize;
      wide = index % run * VectorSize, own = index / run % Own, lane = index / (run * Own);
    } else {
      constexpr int run = Lanes * Own / VectorSize;
      const int flat = index % run * VectorSize;
      lane = flat % Lanes, own = flat / Lanes, wide = index / run;
    }
  }
};

// How a block copies an operand, tile after tile along the contracted index. offset(wide) is in elements
// from `base`; `wide` and `lanes` are how many of them exist.
template <class Step, class Element, int Order, int Width, int VectorSize, int Pitch, class Offset>
struct Copies {
  using Tile = Layout<Order, Step::kLanes, Step::kTileK, Width, Pitch>;
  const Element* base;
  long long own_stride, lane_stride;
  bool vectors;
  int wide, lanes;
  Offset offset;

  // The kTileK contracted steps that start at k0; zeros where there are none.
  KRONOP_INLINE void fill(Element* tile, int k0) const {
    if (VectorSize * sizeof(Element) >= 4 && vectors) {
      fill_pieces(tile, k0);
    } else {
      fill_elements(tile, k0);
    }
  }

 private:
  template <class Part>
  KRONOP_INLINE bool exists(const Part& part, int k0) const {
    return part.wide < wide && part.lane < lanes && part.own + k0 < Step::kContracted;
  }
  template <class Part>
  KRONOP_INLINE const Element* place(const Part& part, int k0) const {
    return base + (offset(part.wide) + part.lane * lane_stride + (part.own + k0) * own_stride);
  }

  // NOTE: places are found anew each time: pointers would take two registers for every piece.
  KRONOP_INLINE void fill_pieces(Element* tile, int k0) const {
    using Part = Piece<Order, Step::kLanes, Step::kTileK, Width, VectorSize>;
    const int thread = int(renewed(unsigned(threadIdx.x)));
    constexpr int bytes = VectorSize * sizeof(Element) < 4 ? 4 : VectorSize * int(sizeof(Element));
#pragma unroll
    for (int i = 0; i < (Part::kCount + Step::kThreads - 1) / Step::kThreads; ++i) {
      const int index = thread + i * Step::kThreads;
      if (Part::kCount % Step::kThreads != 0 && index >= Part::kCount) break;
      const Part part(index);
      const bool there = exists(part, k0);
      // The last rows may end within a piece.
      const int most = Order == kAlongRows ? (wide - part.wide) * int(sizeof(Element)) : bytes;
      copy_or_zero<bytes>(tile + Tile::at(part.lane, part.own, part.wide), there ? place(part, k0) : base, there ? (most < bytes ? most : bytes) : 0);
    }
  }

  // Of operands that allow no vectors.
  KRONOP_INLINE void fill_elements(Element* tile, int k0) const {
    using One = Piece<Order, Step::kLanes, Step::kTileK, Width, 1>;
#pragma unroll 2
    for (int index = threadIdx.x; index < One::kCount; index += Step::kThreads) {
      const One one(index);
      const bool there = exists(one, k0);
      copy_element(tile + Tile::at(one.lane, one.own, one.wide), there ? place(one, k0) : base, there);
    }
  }
};

template <class Step, class Element, int Order, int Width, int VectorSize, int Pitch, class Offset>
KRONOP_INLINE Copies<Step, Element, Order, Width, VectorSize, Pitch, Offset> make_copies(
    const Element* base, long long own_stride, long long lane_stride, bool vectors, int wide, int lanes, Offset offset) {
  return {base, own_stride, lane_stride, vectors, wide, lanes, offset};
}

}  // namespace contract
}  // namespace kronop
