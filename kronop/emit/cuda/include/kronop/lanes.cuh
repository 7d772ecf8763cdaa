// Lanes that lie side by side, apart, and together again: [own][lane] <-> [lane][own] of many matrices.
//
// A block takes a few matrices, or some own indices of one, with all lanes: whole lines of memory both ways. Pieces of 16
// bytes reach shared memory as they lie in memory, and are collected from there element by element.
// There are whole pieces of own indices.
#pragma once

#include "memory.cuh"

namespace kronop {

// Matrix (row, group): where its lanes are apart, they are `lane_apart` from each other; where together, columns are
// `column` from each other.
struct LanesParameters {
  void* apart;
  void* together;
  long long rows, groups, vector;
  long long row_apart, group_apart, lane_apart;
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
  static constexpr int kElements = Step::kOwn * kLanes;

  static KRONOP_INLINE int together(int octet, int element) { return octet * kOctet + element; }
  static KRONOP_INLINE int apart(int matrix, int lane, int octet) {
    return ((matrix * kLanes + lane) * kRun + (octet ^ lane / kPiece % kRun)) * kPiece;
  }
};

// Where a block is, and what its pieces are in both orders.
template <class Step>
struct Work {
  using Of = Tile<Step>;
  using Element = typename Of::Element;
  static constexpr int kParts = (Step::kOwn + Of::kOctets * Of::kPiece - 1) / (Of::kOctets * Of::kPiece);
  const LanesParameters& parameters;
  long long matrix, matrices;
  int octet;  // The first one.

  KRONOP_INLINE explicit Work(const LanesParameters& with) : parameters(with), matrices(with.rows * with.groups) {
    long long index = blockIdx.x;
    octet = int(split(index, kParts)) * Of::kOctets;
    matrix = index * Step::kMatrices;
  }

  // Matrix `which` of the block: whether there is one, and its start.
  KRONOP_INLINE bool has(int which) const { return matrix + which < matrices; }
  KRONOP_INLINE Element* start(void* from, int which, long long row_stride, long long group_stride) const {
    long long row = matrix + which;
    const long long group = split(row, parameters.groups);
    return static_cast<Element*>(from) + (row * row_stride + group * group_stride);
  }
  KRONOP_INLINE Element* apart(int which) const { return start(parameters.apart, which, parameters.row_apart, parameters.group_apart); }
  KRONOP_INLINE Element* together(int which) const { return start(parameters.together, which, parameters.row_together, parameters.group_together); }
};

// Piece `index` of a tile where lanes are together: `at` is its first element from the start of its octet.
template <class Step>
struct TogetherPiece {
  using Of = Tile<Step>;
  int matrix, octet, at;
  KRONOP_INLINE explicit TogetherPiece(int index)
      : matrix(index / (Of::kOctets * Of::kLanes)), octet(index / Of::kLanes % Of::kOctets), at(index % Of::kLanes * Of::kPiece) {}
};
// And where they are apart.
template <class Step>
struct ApartPiece {
  using Of = Tile<Step>;
  int matrix, lane, octet;
  KRONOP_INLINE explicit ApartPiece(int index)
      : matrix(index / (Of::kOctets * Of::kLanes)), lane(index / Of::kOctets % Of::kLanes), octet(index % Of::kOctets) {}
};

template <class Step>
KRONOP_INLINE void fill_together(const Work<Step>& work, typename Step::Input* tile) {
  using Of = Tile<Step>;
  for (int index = threadIdx.x; index < Of::kPieces; index += Step::kThreads) {
    const TogetherPiece<Step> piece(index);
    const int first = (work.octet + piece.octet) * Of::kPiece * Of::kLanes + piece.at;
    if (!work.has(piece.matrix) || first >= Of::kElements) continue;
    auto* to = tile + Of::together(piece.matrix * Of::kOctets + piece.octet, piece.at);
    const auto* from = work.together(piece.matrix);
    if (work.parameters.vector) {
      copy_asynchronously<16>(to, from + first);
    } else {
#pragma unroll 1
      for (int v = 0; v < Of::kPiece; ++v) to[v] = from[(first + v) * work.parameters.column];
    }
  }
}

template <class Step>
KRONOP_INLINE void store_apart(const Work<Step>& work, const typename Step::Input* tile) {
  using Of = Tile<Step>;
  for (int index = threadIdx.x; index < Of::kPieces; index += Step::kThreads) {
    const ApartPiece<Step> piece(index);
    const int first = (work.octet + piece.octet) * Of::kPiece;
    if (!work.has(piece.matrix) || first >= Step::kOwn) continue;
    const auto* from = tile + Of::together(piece.matrix * Of::kOctets + piece.octet, piece.lane);
    Vector<typename Step::Input, Of::kPiece> values;
#pragma unroll
    for (int v = 0; v < Of::kPiece; ++v) values.data[v] = from[v * Of::kLanes];
    store_whole<typename Step::Input, Of::kPiece>(work.apart(piece.matrix) + (piece.lane * work.parameters.lane_apart + first), values);
  }
}

template <class Step>
KRONOP_INLINE void fill_apart(const Work<Step>& work, typename Step::Input* tile) {
  using Of = Tile<Step>;
  for (int index = threadIdx.x; index < Of::kPieces; index += Step::kThreads) {
    const ApartPiece<Step> piece(index);
    const int first = (work.octet + piece.octet) * Of::kPiece;
    if (!work.has(piece.matrix) || first >= Step::kOwn) continue;
    copy_asynchronously<16>(tile + Of::apart(piece.matrix, piece.lane, piece.octet),
        work.apart(piece.matrix) + (piece.lane * work.parameters.lane_apart + first));
  }
}

template <class Step>
KRONOP_INLINE void store_together(const Work<Step>& work, const typename Step::Input* tile) {
  using Of = Tile<Step>;
  for (int index = threadIdx.x; index < Of::kPieces; index += Step::kThreads) {
    const TogetherPiece<Step> piece(index);
    const int first = (work.octet + piece.octet) * Of::kPiece * Of::kLanes + piece.at;
    if (!work.has(piece.matrix) || first >= Of::kElements) continue;
    Vector<typename Step::Input, Of::kPiece> values;
    int own = piece.at / Of::kLanes, lane = piece.at % Of::kLanes;
#pragma unroll
    for (int v = 0; v < Of::kPiece; ++v) {
      values.data[v] = tile[Of::apart(piece.matrix, lane, piece.octet) + own];
      if constexpr (Of::kLanes % Of::kPiece == 0) {
        ++lane;
      } else {
        const bool over = ++lane == Of::kLanes;
        lane = over ? 0 : lane;
        own += over;
      }
    }
    auto* to = work.together(piece.matrix);
    if (work.parameters.vector) {
      store_whole<typename Step::Input, Of::kPiece>(to + first, values);
    } else {
#pragma unroll
      for (int v = 0; v < Of::kPiece; ++v) to[(first + v) * work.parameters.column] = values.data[v];
    }
  }
}

}  // namespace lanes

// Brings lanes apart, or together where kJoin.
template <class Step, class Parameters>
KRONOP_INLINE void move_lanes(const Parameters& parameters) {
  auto* tile = reinterpret_cast<typename Step::Input*>(shared_memory());
  const lanes::Work<Step> work(parameters);
  if constexpr (Step::kJoin) {
    lanes::fill_apart<Step>(work, tile);
  } else {
    lanes::fill_together<Step>(work, tile);
  }
  wait_for_copies();
  __syncthreads();
  if constexpr (Step::kJoin) {
    lanes::store_together<Step>(work, tile);
  } else {
    lanes::store_apart<Step>(work, tile);
  }
}

}  // namespace kronop
