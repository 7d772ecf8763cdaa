// Transposes many matrices between [own][lane] (interleaved lanes, "together") and [lane][own]
// (separated lanes, "apart").
//
// A block has a few matrices, or some own indices of one, with all lanes, so that both orders are
// accessed in whole cache lines. Pieces of 16 bytes are copied to shared memory in memory order,
// and gathered from there element by element. The own indices of a matrix are whole pieces.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

// Strides of matrix (row, section). Apart: lanes are contiguous, one after the other; together:
// columns are `column` apart.
struct LanesParameters {
  void* apart;
  void* together;
  long long rows, sections, vector;
  long long row_apart, section_apart;
  long long row_together, section_together, column;
};

namespace lanes {

// The tile of a block: kMatrices x kOctets times kPiece own indices, of all lanes. An octet is the
// own indices of one piece.
template <class Step>
struct Tile {
  using Element = typename Step::Input;
  static constexpr int kPiece = 16 / sizeof(Element), kLanes = Step::kLanes,
                       kOctets = Step::kOctets;
  static constexpr int kPieces = Step::kMatrices * kOctets * kLanes;
  // Together: octets are contiguous, kOctet elements each.
  static constexpr int kOctet = Step::kPitch * kPiece;
  // Apart: contiguous elements for each lane. Pieces are swizzled, so that lanes a piece apart
  // start in different banks.
  static constexpr int kRun = Step::kRun;

  static KRONOP_INLINE int together(int octet, int element) { return octet * kOctet + element; }
  static KRONOP_INLINE int apart(int matrix, unsigned lane, int octet) {
    return ((matrix * kLanes + lane) * kRun + (octet ^ lane / kPiece % kRun)) * kPiece;
  }
};

// The address of a matrix, from the block's first own index on.
template <class Element>
struct Start {
  Element* apart;
  Element* together;
};

// The matrices and own indices of a block.
template <class Step>
struct Work {
  using Of = Tile<Step>;
  using Element = typename Of::Element;
  static constexpr int kOwns = Of::kOctets * Of::kPiece, kParts = (Step::kOwn + kOwns - 1) / kOwns;
  const LanesParameters& parameters;
  Start<Element>* const starts;  // in shared memory
  int matrices, own;             // how many there are, and the first own index

  // All threads of the block have to call this, since there is a barrier inside.
  KRONOP_INLINE Work(const LanesParameters& with, Start<Element>* of_block)
      : parameters(with), starts(of_block) {
    long long first = blockIdx.x;
    own = int(split(first, kParts)) * kOwns;
    first *= Step::kMatrices;
    const long long left = with.rows * with.sections - first;
    matrices = left < Step::kMatrices ? int(left) : Step::kMatrices;
    for (int which = threadIdx.x; which < matrices; which += Step::kThreads) {
      long long row = first + which;
      const long long section = split(row, with.sections);
      Start<Element>& start = starts[which];
      start.apart = static_cast<Element*>(with.apart) +
                    (row * with.row_apart + section * with.section_apart + own);
      start.together = static_cast<Element*>(with.together) +
                       (row * with.row_together + section * with.section_together +
                        own * Step::kLanes * with.column);
    }
    __syncthreads();
  }
  // Whether the whole tile is in bounds and can be accessed in vectors.
  KRONOP_INLINE bool is_whole() const {
    return parameters.vector && matrices == Step::kMatrices && own + kOwns <= Step::kOwn;
  }
  KRONOP_INLINE bool has(int matrix, int octet) const {
    return matrix < matrices && own + octet * Of::kPiece < Step::kOwn;
  }
};

// Piece `index` of a tile of interleaved lanes. `at` is its first element, relative to the start of
// its octet.
template <class Step>
struct TogetherPiece {
  using Of = Tile<Step>;
  int matrix, octet, at;
  KRONOP_INLINE explicit TogetherPiece(unsigned index)
      : matrix(index / (Of::kOctets * Of::kLanes)), octet(index / Of::kLanes % Of::kOctets),
        at(index % Of::kLanes * Of::kPiece) {}
  KRONOP_INLINE int first() const { return octet * Of::kPiece * Of::kLanes + at; }
};
// Piece `index` of a tile of separated lanes.
template <class Step>
struct ApartPiece {
  using Of = Tile<Step>;
  int matrix, lane, octet;
  KRONOP_INLINE explicit ApartPiece(unsigned index)
      : matrix(index / (Of::kOctets * Of::kLanes)), lane(index / Of::kOctets % Of::kLanes),
        octet(index % Of::kOctets) {}
  KRONOP_INLINE int first() const { return lane * Step::kOwn + octet * Of::kPiece; }
};

// Calls move(piece) for the pieces of a tile that exist.
template <bool kWhole, class Piece, class Step, class Move>
KRONOP_INLINE void for_each_piece(const Work<Step>& work, const Move& move) {
  using Of = Tile<Step>;
  constexpr int each = (Of::kPieces + Step::kThreads - 1) / Step::kThreads,
                unrolled = kWhole ? each : 1;
#pragma unroll unrolled
  for (int i = 0; i < each; ++i) {
    const unsigned index = threadIdx.x + i * Step::kThreads;
    if (index >= Of::kPieces) break;
    const Piece piece(index);
    if (kWhole || work.has(piece.matrix, piece.octet)) move(piece);
  }
}

template <bool kWhole, class Step>
KRONOP_INLINE void fill_together(const Work<Step>& work, typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, TogetherPiece<Step>>(work, [&](const TogetherPiece<Step>& piece) {
    auto* to = tile + Of::together(piece.matrix * Of::kOctets + piece.octet, piece.at);
    const auto* from = work.starts[piece.matrix].together;
    if (kWhole || work.parameters.vector) {
      copy_asynchronously<16>(to, from + piece.first());
    } else {
#pragma unroll 1
      for (int v = 0; v < Of::kPiece; ++v)
        to[v] = from[(piece.first() + v) * work.parameters.column];
    }
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void store_apart(const Work<Step>& work, const typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, ApartPiece<Step>>(work, [&](const ApartPiece<Step>& piece) {
    const auto* from = tile + Of::together(piece.matrix * Of::kOctets + piece.octet, piece.lane);
    Vector<typename Step::Input, Of::kPiece> values;
#pragma unroll
    for (int v = 0; v < Of::kPiece; ++v) values.data[v] = from[v * Of::kLanes];
    store_whole<typename Step::Input, Of::kPiece>(work.starts[piece.matrix].apart + piece.first(),
                                                  values);
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void fill_apart(const Work<Step>& work, typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, ApartPiece<Step>>(work, [&](const ApartPiece<Step>& piece) {
    copy_asynchronously<16>(tile + Of::apart(piece.matrix, piece.lane, piece.octet),
                            work.starts[piece.matrix].apart + piece.first());
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void store_together(const Work<Step>& work, const typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, TogetherPiece<Step>>(work, [&](const TogetherPiece<Step>& piece) {
    Vector<typename Step::Input, Of::kPiece> values;
    unsigned own = unsigned(piece.at) / Of::kLanes, lane = unsigned(piece.at) % Of::kLanes;
    if constexpr (Of::kLanes % Of::kPiece == 0) {
      // All lanes of this piece have the same position in their runs, so their addresses differ by
      // constants.
      const auto* from = tile + Of::apart(piece.matrix, lane, piece.octet) + own;
#pragma unroll
      for (int v = 0; v < Of::kPiece; ++v) values.data[v] = from[v * Of::kRun * Of::kPiece];
    } else {
#pragma unroll
      for (int v = 0; v < Of::kPiece; ++v) {
        values.data[v] = tile[Of::apart(piece.matrix, lane, piece.octet) + own];
        const bool over = ++lane == Of::kLanes;
        lane = over ? 0 : lane;
        own += over;
      }
    }
    auto* to = work.starts[piece.matrix].together;
    if (kWhole || work.parameters.vector) {
      store_whole<typename Step::Input, Of::kPiece>(to + piece.first(), values);
    } else {
#pragma unroll
      for (int v = 0; v < Of::kPiece; ++v)
        to[(piece.first() + v) * work.parameters.column] = values.data[v];
    }
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void move(const Work<Step>& work, typename Step::Input* tile) {
  if constexpr (Step::kJoin) {
    fill_apart<kWhole>(work, tile);
  } else {
    fill_together<kWhole>(work, tile);
  }
  wait_for_copies();
  __syncthreads();
  if constexpr (Step::kJoin) {
    store_together<kWhole>(work, tile);
  } else {
    store_apart<kWhole>(work, tile);
  }
}

}  // namespace lanes

// Separates lanes or, if kJoin, interleaves them.
template <class Step, class Parameters>
KRONOP_INLINE void move_lanes(const Parameters& parameters) {
  using Element = typename Step::Input;
  auto* tile = reinterpret_cast<Element*>(shared_memory());
  const lanes::Work<Step> work(
      parameters, reinterpret_cast<lanes::Start<Element>*>(shared_memory() + Step::kStartsAt));
  if (work.is_whole()) {
    lanes::move<true>(work, tile);
  } else {
    lanes::move<false>(work, tile);
  }
}

}  // namespace kronop
