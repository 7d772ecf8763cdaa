// Tiles of a contraction's operands in shared memory, and the copies that fill them.
//
// An operand has lanes, an index of its own (the contracted one; the produced one for results) and
// a wide index (rows of X, outputs of W). The index that is contiguous in global memory is
// contiguous in shared memory too:
//   kAlongOwn   [lane][wide][own]
//   kAlongRows  [lane][own][wide]
//   kAlongLanes [wide][own][lane]
// The leading dimension (pitch) avoids bank conflicts of a warp's accesses.
#pragma once

#include "contract.cuh"

namespace kronop {
namespace contract {

// Offsets in such a tile.
template <int Order, int Lanes, int Own, int Wide, int Pitch>
struct Layout {
  static constexpr int kOrder = Order, kLanes = Lanes;
  static constexpr int kLane = Order == kAlongLanes ? 1 : (Order == kAlongOwn ? Wide : Own) * Pitch;
  static constexpr int kOwn = Order == kAlongOwn ? 1 : Order == kAlongRows ? Pitch : Lanes;
  static constexpr int kWide = Order == kAlongRows ? 1 : Pitch;
  static constexpr int kSize = Order == kAlongLanes ? Wide * Pitch : Lanes * kLane;
  static KRONOP_INLINE constexpr int at(int lane, int own, int wide) {
    return lane * kLane + own * kOwn + wide * kWide;
  }
  // Whether offsets that many runs apart differ by a constant.
  static constexpr bool even(int) { return true; }
  static constexpr bool kCrossed = false;
};

// Piece `index` of a tile in memory order: the indices of the first of VectorSize contiguous
// elements. If a block has all lanes, a contiguous run along lanes continues with the next own
// index.
template <int Order, int Lanes, int Own, int Wide, int VectorSize>
struct Piece {
  static constexpr int kCount = Lanes * Own * Wide / VectorSize;
  // Pieces of a run, and runs of a lane.
  static constexpr int kRun = (Order == kAlongOwn    ? Own
                               : Order == kAlongRows ? Wide
                                                     : Lanes * Own) /
                              VectorSize;
  static constexpr int kRuns = Order == kAlongRows ? Own : Wide;
  int lane, own, wide;
  KRONOP_INLINE constexpr Piece(int lane_of, int own_of, int wide_of)
      : lane(lane_of), own(own_of), wide(wide_of) {}
  KRONOP_INLINE explicit Piece(int index) {
    const int at = index % kRun * VectorSize, run = index / kRun;
    lane = Lanes == 1 ? 0 : Order == kAlongLanes ? at % Lanes : run / kRuns;
    own = Order == kAlongOwn ? at : Order == kAlongRows ? run - lane * kRuns : at / Lanes;
    wide = Order == kAlongRows ? at : Order == kAlongLanes ? run : run - lane * kRuns;
  }
};

// The pieces of a thread. Where kRegular, each round of the participating threads covers whole
// runs, so that the pieces of a thread differ by constants.
template <int Order, int Lanes, int Own, int Wide, int VectorSize, int Threads>
struct Share {
  using Part = Piece<Order, Lanes, Own, Wide, VectorSize>;
  static constexpr int kOrder = Order, kApart = Threads / Part::kRun > 0 ? Threads / Part::kRun : 1;
  static constexpr bool kRegular =
      Part::kRun <= Threads && (Lanes == 1 || Order == kAlongLanes || Part::kRuns % kApart == 0 ||
                                kApart % Part::kRuns == 0 || Part::kCount <= Threads);
  static constexpr int kThreads = kRegular ? kApart * Part::kRun : Threads,
                       kEach = (Part::kCount + kThreads - 1) / kThreads;
  Part first{thread()};

  // The thread's number within its team: teams begin at multiples of their size.
  static KRONOP_INLINE int thread() { return int(threadIdx.x) % Threads; }
  KRONOP_INLINE bool has(int i) const {
    if (kThreads < Threads && thread() >= kThreads) return false;
    return Part::kCount % kThreads == 0 || thread() + i * kThreads < Part::kCount;
  }
  // The offset of piece i from the first one, where kRegular.
  static KRONOP_INLINE constexpr Part apart(int i) {
    constexpr int runs = Order == kAlongLanes ? Part::kRuns * Lanes : Part::kRuns;
    const int lane = i * kApart / runs, run = i * kApart % runs;
    return Part(lane, Order == kAlongRows ? run : 0, Order == kAlongRows ? 0 : run);
  }
  KRONOP_INLINE Part operator[](int i) const {
    if constexpr (kRegular) {
      const Part more = apart(i);
      return Part(first.lane + more.lane, first.own + more.own, first.wide + more.wide);
    } else {
      return Part(thread() + i * Threads);
    }
  }
};

// The offsets of wide indices: at a constant stride (Evenly), or listed in shared memory (Listed).
struct Evenly {
  static constexpr bool kListed = false;
  long long stride;
  KRONOP_INLINE long long operator[](int wide) const { return wide * stride; }
  KRONOP_INLINE long long after(int) const { return stride; }
};
struct Listed {
  static constexpr bool kListed = true;
  const long long* of;
  bool even;  // whether all of them exist, at a constant stride
  long long stride;
  KRONOP_INLINE long long operator[](int wide) const { return of[wide]; }
  // From one wide index to the next.
  KRONOP_INLINE long long after(int wide) const { return of[wide + 1] - of[wide]; }
};

// The addresses of a thread's pieces. Their common part is computed once.
template <class Element, class Mine, class Wide>
struct Places {
  static constexpr bool kOneByOne = Wide::kListed && Mine::kOrder != kAlongRows;
  const Element* start;
  long long own_stride, lane_stride;
  Wide wide;
  KRONOP_INLINE Places(const Element* base, long long own, long long lane, Wide places,
                       const Mine& mine)
      : start(base), own_stride(own), lane_stride(lane), wide(places) {
    if constexpr (Mine::kRegular) {
      if (mine.has(0)) {
        start += mine.first.own * own_stride + mine.first.lane * lane_stride;
        if constexpr (!kOneByOne) {
          start += wide[mine.first.wide];
        } else if (wide.even) {
          start += wide[0] + mine.first.wide * wide.stride;
        }
      }
    }
  }
  // kEven: whether listed wide indices are known to have a constant stride.
  template <bool kEven>
  KRONOP_INLINE const Element* at(const Mine& mine, int i) const {
    if constexpr (Mine::kRegular) {
      const auto more = Mine::apart(i);
      const Element* place = start + (more.own * own_stride + more.lane * lane_stride);
      if constexpr (kOneByOne && kEven) {
        return place + more.wide * wide.stride;
      } else if constexpr (kOneByOne) {
        return place + wide[mine.first.wide + more.wide];
      } else if constexpr (Wide::kListed) {
        return place;
      } else {
        return place + wide[more.wide];
      }
    } else {
      const auto part = mine[i];
      return start + (part.own * own_stride + part.lane * lane_stride + wide[part.wide]);
    }
  }
};

// Pairs of 16-bit neighbours that are copied through registers, each element with its own load:
// asynchronous copies need at least four aligned bytes, and a pair may begin in the middle of such
// a word. The threads of a warp read adjacent elements, so that loads are coalesced. kAllWide:
// whether elements of wide indices beyond the operand may be read.
template <class Step, class Element, class Tile, int Order, int Width, bool kAllWide, class Wide>
struct Pairs {
  using Mine = Share<Order, Step::kLanes, Step::kTileK, Width, 2, Step::kThreads>;
  static constexpr bool kPossible = Step::kLanes == 1 && Mine::kRegular && Order != kAlongLanes;
  static constexpr int kMost = 16, kAtOnce = Mine::kEach < kMost ? Mine::kEach : kMost;
  Mine mine;
  Places<Element, Mine, Wide> places;
  long long apart, step;  // from the first element of each pair of this thread to the second, and
                          // to the next pair
  int wide;
  unsigned first_of[kAtOnce], second_of[kAtOnce];

  KRONOP_INLINE Pairs(const Element* from, long long own_stride, int wide_there, Wide where)
      : places(from, own_stride, 0, where, mine), apart(own_stride),
        step(Order == kAlongOwn ? Mine::apart(1).wide * where.stride
                                : Mine::apart(1).own * own_stride),
        wide(wide_there) {
    if (Order == kAlongRows && mine.has(0)) apart = where.after(mine.first.wide);
  }
  // Loads this thread's pairs from number `begin` on, of the tile at contracted step k0.
  KRONOP_INLINE void fetch(int begin, int k0) {
    if constexpr (decltype(places)::kOneByOne) {
      if (!places.wide.even) return fetch<false>(begin, k0);
    }
    fetch<true>(begin, k0);
  }
  // Stores the pairs that fetch() loaded before, and loads and stores all others.
  KRONOP_INLINE void fill(Element* tile, int k0) {
    store(tile, 0);
#pragma unroll 1
    for (int begin = kAtOnce; begin < Mine::kEach; begin += kAtOnce) {
      fetch(begin, k0);
      store(tile, begin);
    }
    places.start += Step::kTileK * places.own_stride;
  }

 private:
  template <bool kEven>
  KRONOP_INLINE void fetch(int begin, int k0) {
    const Element* from = places.template at<kEven>(mine, begin);
    const Element* then = from + apart;
    const long long next = renewed(step);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= Mine::kEach || !mine.has(begin + i)) break;
      const auto part = mine[begin + i];
      const bool first = part.own + k0 < Step::kContracted &&
                         ((Order == kAlongOwn && kAllWide) || part.wide < wide);
      const bool second = first && (Order == kAlongOwn ? part.own + k0 + 1 < Step::kContracted
                                                       : part.wide + 1 < wide);
      first_of[i] = second_of[i] = 0;
      if (first) first_of[i] = from->bits;
      if (second) second_of[i] = then->bits;
      if constexpr (kEven) {
        from += next;
      } else if (begin + i + 1 < Mine::kEach && mine.has(begin + i + 1)) {
        from = places.template at<false>(mine, begin + i + 1);
      }
      then = from + apart;
    }
  }
  KRONOP_INLINE void store(Element* tile, int begin) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= Mine::kEach || !mine.has(begin + i)) break;
      const auto part = mine[begin + i];
      *reinterpret_cast<unsigned*>(tile + Tile::at(0, part.own, part.wide)) =
          first_of[i] | second_of[i] << 16;
    }
  }
};
struct NoPairs {
  template <class... Ignored>
  KRONOP_INLINE NoPairs(const Ignored&...) {}
};

// Copies one element, or a zero. Elements of one or two bytes go through a register, because
// asynchronous copies bring at least four bytes.
template <class Element>
KRONOP_INLINE void copy_element(Element* to, const Element* from, bool there) {
  if constexpr (sizeof(Element) >= 4) {
    copy_or_clear<sizeof(Element)>(to, from, there ? int(sizeof(Element)) : 0);
  } else {
    Element value{};
    if (there) value = *from;
    *to = value;
  }
}

// How a block copies an operand to tiles of type Tile, along the contracted index. `wide` and
// `lanes` are how many of these indices exist. Extent: how many wide indices all tiles have, or 0
// where lists repeat the last one that exists. kPaired: 16-bit elements that allow no vectors are
// copied as Pairs.
template <class Step, class Element, class Tile, int Order, int Width, int VectorSize, int Extent,
          class Wide, bool kPaired = false>
struct Copies {
  using Mine = Share<Order, Step::kLanes, Step::kTileK, Width, VectorSize, Step::kThreads>;
  static constexpr int kBytes =
      VectorSize * sizeof(Element) < 4 ? 4 : VectorSize * int(sizeof(Element));
  static constexpr bool kRaggedSteps = Step::kContracted % Step::kTileK != 0;
  static constexpr bool kRaggedWide = Extent > 0 ? Extent % Width != 0 : Order == kAlongRows;
  using OfPairs = Pairs<Step, Element, Tile, Order, Width, !kRaggedWide, Wide>;
  static constexpr bool kPairs = kPaired && sizeof(Element) == 2 && OfPairs::kPossible;
  // Whether all of its copies are known at compile time to be such pairs: the next ones can then be
  // in flight during the products.
  static constexpr bool kLater = kPairs && VectorSize == 1;
  const Element* base;
  bool vectors;
  int wide, lanes, k0 = 0;
  Mine mine;
  Places<Element, Mine, Wide> places;
  Either<kPairs, OfPairs, NoPairs> pairs;

  KRONOP_INLINE Copies(const Element* from, long long own_stride, long long lane_stride,
                       bool aligned, int wide_there, int lanes_there, Wide where)
      : base(from), vectors(aligned), wide(wide_there), lanes(lanes_there),
        places(from, own_stride, lane_stride, where, mine),
        pairs(from, own_stride, wide_there, where) {}

  // Loads the first pairs. Several operands may do so before any of them stores its pairs, so that
  // their loads overlap.
  KRONOP_INLINE void begin() {
    if constexpr (kPairs) {
      if (paired()) pairs.fetch(0, k0);
    }
  }
  // Copies the next kTileK contracted steps, padded with zeros.
  KRONOP_INLINE void fill(Element* tile) {
    if (VectorSize * sizeof(Element) >= 4 && vectors) {
      if constexpr (decltype(places)::kOneByOne && Mine::kRegular) {
        if (places.wide.even) {
          fill_pieces<true>(tile);
        } else {
          fill_pieces<false>(tile);
        }
      } else {
        fill_pieces<false>(tile);
      }
    } else if (paired()) {
      if constexpr (kPairs) pairs.fill(tile, k0);
    } else {
      fill_elements(tile);
    }
    k0 += Step::kTileK;
    places.start += Step::kTileK * places.own_stride;
  }

 private:
  // How many bytes of a piece exist. Results of wide indices beyond the operand are ignored, but
  // out of bounds memory must not be read.
  template <class Part>
  KRONOP_INLINE int bytes_of(const Part& part) const {
    int bytes = kBytes;
    if constexpr (kRaggedWide) {
      // The last rows may end within a piece.
      const int most = (wide - part.wide) * int(sizeof(Element));
      if (Order != kAlongRows || most < bytes)
        bytes = most <= 0 ? 0 : Order == kAlongRows ? most : bytes;
    }
    if (kRaggedSteps && part.own + k0 >= Step::kContracted) bytes = 0;
    if (Step::kLanes > 1 && part.lane >= lanes) bytes = 0;
    return bytes;
  }
  template <bool kEven>
  KRONOP_INLINE void fill_pieces(Element* tile) const {
    Element* to = tile + Tile::at(mine.first.lane, mine.first.own, mine.first.wide);
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const auto part = mine[i];
      if constexpr (Mine::kRegular && Tile::even(Mine::kApart)) {
        const auto more = Mine::apart(i);
        copy_or_clear<kBytes>(to + Tile::at(more.lane, more.own, more.wide),
                              places.template at<kEven>(mine, i), bytes_of(part));
      } else {
        copy_or_clear<kBytes>(tile + Tile::at(part.lane, part.own, part.wide),
                              places.template at<kEven>(mine, i), bytes_of(part));
      }
    }
  }
  KRONOP_INLINE bool paired() const { return kPairs && (VectorSize == 1 || !vectors); }
  // Copies element by element: where the operand allows no vectors and is not copied in pairs.
  KRONOP_INLINE void fill_elements(Element* tile) const {
    using One = Piece<Order, Step::kLanes, Step::kTileK, Width, 1>;
#pragma unroll 2
    for (int index = Mine::thread(); index < One::kCount; index += Step::kThreads) {
      const One one(index);
      const bool there = one.wide < wide && one.lane < lanes && one.own + k0 < Step::kContracted;
      const Element* from = base + ((one.own + k0) * places.own_stride +
                                    one.lane * places.lane_stride + places.wide[one.wide]);
      copy_element(tile + Tile::at(one.lane, one.own, one.wide), there ? from : base, there);
    }
  }
};

}  // namespace contract
}  // namespace kronop
