// Lanes that lie side by side, apart, and together again: [own][lane] <-> [lane][own] of many matrices.
//
// A block takes a few matrices, or some own indices of one, with all lanes: whole lines of memory both ways. Pieces of 16
// bytes reach shared memory as they lie in memory, and are collected from there element by element.
// There are whole pieces of own indices.
#pragma once

#include "memory.cuh"

namespace kronop {

// Matrix (row, group): where its lanes are apart, each follows the one before; where together, columns are `column` from each
// other.
struct LanesParameters {
  void* apart;
  void* together;
  long long rows, groups, vector;
  long long row_apart, group_apart;
  long long row_together, group_together, column;
};

namespace lanes {

// The tile of a block: kMatrices x kOctets times kPiece own indices, of all lanes. (Octets: as many as a piece has.)
template <class Step>
struct Tile {
  using Element = typename Step::Input;
  static constexpr int kPiece = 16 / sizeof(Element), kLanes = Step::kLanes, kOctets = Step::kOctets;
  static constexpr int kPieces = Step::kMatrices * kOctets * kLanes;
  // Together: octets lie one after the other, so many elements apart.
  static constexpr int kOctet = Step::kPitch * kPiece;
  // Apart: a run of each lane, whose pieces change places so that lanes a piece apart start in different banks.
  static constexpr int kRun = Step::kRun;

  static KRONOP_INLINE int together(int octet, int element) { return octet * kOctet + element; }
  static KRONOP_INLINE int apart(int matrix, unsigned lane, int octet) {
    return ((matrix * kLanes + lane) * kRun + (octet ^ lane / kPiece % kRun)) * kPiece;
  }
};

// Where a matrix of the block, from its first own index on, is in memory.
template <class Element>
struct Start {
  Element* apart;
  Element* together;
};

// Where a block is.
template <class Step>
struct Work {
  using Of = Tile<Step>;
  using Element = typename Of::Element;
  static constexpr int kOwns = Of::kOctets * Of::kPiece, kParts = (Step::kOwn + kOwns - 1) / kOwns;
  const LanesParameters& parameters;
  Start<Element>* const starts;  // In shared memory.
  int matrices, own;             // How many there are, and the first own index.

  // For all threads of the block.
  KRONOP_INLINE Work(const LanesParameters& with, Start<Element>* of_block) : parameters(with), starts(of_block) {
    long long first = blockIdx.x;
    own = int(split(first, kParts)) * kOwns;
    first *= Step::kMatrices;
    const long long left = with.rows * with.groups - first;
    matrices = left < Step::kMatrices ? int(left) : Step::kMatrices;
    for (int which = threadIdx.x; which < matrices; which += Step::kThreads) {
      long long row = first + which;
      const long long group = split(row, with.groups);
      Start<Element>& start = starts[which];
      start.apart = static_cast<Element*>(with.apart) + (row * with.row_apart + group * with.group_apart + own);
      start.together = static_cast<Element*>(with.together) + (row * with.row_together + group * with.group_together + own * Step::kLanes * with.column);
    }
    __syncthreads();
  }
  // Whether all of the tile is there, in whole accesses.
  KRONOP_INLINE bool is_whole() const { return parameters.vector && matrices == Step::kMatrices && own + kOwns <= Step::kOwn; }
  KRONOP_INLINE bool has(int matrix, int octet) const { return matrix < matrices && own + octet * Of::kPiece < Step::kOwn; }
};

// Piece `index` of a tile where lanes are together: `at` is its first element from the start of its octet.
template <class Step>
struct TogetherPiece {
  using Of = Tile<Step>;
  int matrix, octet, at;
  KRONOP_INLINE explicit TogetherPiece(unsigned index)
      : matrix(index / (Of::kOctets * Of::kLanes)), octet(index / Of::kLanes % Of::kOctets), at(index % Of::kLanes * Of::kPiece) {}
  KRONOP_INLINE int first() const { return octet * Of::kPiece * Of::kLanes + at; }
};
// And where they are apart.
template <class Step>
struct ApartPiece {
  using Of = Tile<Step>;
  int matrix, lane, octet;
  KRONOP_INLINE explicit ApartPiece(unsigned index)
      : matrix(index / (Of::kOctets * Of::kLanes)), lane(index / Of::kOctets % Of::kLanes), octet(index % Of::kOctets) {}
  KRONOP_INLINE int first() const { return lane * Step::kOwn + octet * Of::kPiece; }
};

// All pieces of a tile that are there.
template <bool kWhole, class Piece, class Step, class Move>
KRONOP_INLINE void for_each_piece(const Work<Step>& work, const Move& move) {
  using Of = Tile<Step>;
  constexpr int each = (Of::kPieces + Step::kThreads - 1) / Step::kThreads, unrolled = kWhole ? each : 1;
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
      for (int v = 0; v < Of::kPiece; ++v) to[v] = from[(piece.first() + v) * work.parameters.column];
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
    store_whole<typename Step::Input, Of::kPiece>(work.starts[piece.matrix].apart + piece.first(), values);
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void fill_apart(const Work<Step>& work, typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, ApartPiece<Step>>(work, [&](const ApartPiece<Step>& piece) {
    copy_asynchronously<16>(tile + Of::apart(piece.matrix, piece.lane, piece.octet), work.starts[piece.matrix].apart + piece.first());
  });
}

template <bool kWhole, class Step>
KRONOP_INLINE void store_together(const Work<Step>& work, const typename Step::Input* tile) {
  using Of = Tile<Step>;
  for_each_piece<kWhole, TogetherPiece<Step>>(work, [&](const TogetherPiece<Step>& piece) {
    Vector<typename Step::Input, Of::kPiece> values;
    unsigned own = unsigned(piece.at) / Of::kLanes, lane = unsigned(piece.at) % Of::kLanes;
    if constexpr (Of::kLanes % Of::kPiece == 0) {
      // Pieces of all of them are in the same place of their runs.
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
      for (int v = 0; v < Of::kPiece; ++v) to[(piece.first() + v) * work.parameters.column] = values.data[v];
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

// Brings lanes apart, or together where kJoin.
template <class Step, class Parameters>
KRONOP_INLINE void move_lanes(const Parameters& parameters) {
  using Element = typename Step::Input;
  auto* tile = reinterpret_cast<Element*>(shared_memory());
  const lanes::Work<Step> work(parameters, reinterpret_cast<lanes::Start<Element>*>(shared_memory() + Step::kStartsAt));
  if (work.is_whole()) {
    lanes::move<true>(work, tile);
  } else {
    lanes::move<false>(work, tile);
  }
}

}  // namespace kronop
