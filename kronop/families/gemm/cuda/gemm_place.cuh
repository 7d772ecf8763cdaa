// Which tile of the result a block has, how split-K sums are stored in the workspace, and what a
// block does.
#pragma once

#include "gemm_visitor.cuh"

namespace kronop {
namespace gemm {

// The tile and slice of block `index`. The order is: tiles of a problem, problems, slices. kBand
// tiles along N come before the next row of tiles, so that blocks that run at the same time share
// operands in the level-2 cache.
template <class Step>
struct Place {
  long long row, column, problem, tile, tiles, slice;

  template <class Parameters>
  KRONOP_INLINE Place(const Parameters& p, long long index) {
    const long long rows = ceil_div(p.m, Step::kTileM), columns = ceil_div(p.n, Step::kTileN);
    tiles = rows * columns * p.batch[0] * p.batch[1] * p.batch[2] * p.batch[3];
    tile = problem = split(index, tiles);
    slice = index;
    long long within = split(problem, rows * columns);
    row = split(within, rows * Step::kBand);
    const long long before = within * Step::kBand, left = columns - before;
    column = split(row, left < Step::kBand ? left : Step::kBand) + before;
    row *= Step::kTileM;
    column *= Step::kTileN;
  }
};

// A thread's sums of a tile: kPieces pieces of kBlocks small matrices, given by its Layout.
//
// With split-K, a launch stores them in the workspace in the order of threads, in vectors of up to
// 16 bytes, coalesced. A second launch has a block for each piece of each tile.
template <class Step, class Layout>
class Sums {
  using Sum = typename Step::Accumulator;
  static constexpr int kBlocks = Layout::kBlocks, kM = Layout::kM, kN = Layout::kN,
                       kEach = kBlocks * kM * kN;
  static constexpr int kWidth = kEach * int(sizeof(Sum)) > 16 ? 16 / int(sizeof(Sum)) : kEach,
                       kVectors = kEach / kWidth;
  static_assert(kEach % kWidth == 0);

 public:
  struct Piece {
    Sum of[kBlocks][kM][kN];
  };

  // Stores results, or the sums of a slice. `piece_of(p)` returns the thread's piece p.
  template <class Parameters, class PieceOf>
  KRONOP_INLINE static void leave(const Parameters& p, const Place<Step>& place,
                                  const PieceOf& piece_of) {
    if (p.slices == 1) {
      ResultsOf<Step, Parameters, Layout> results(p, place.problem);
      results.begin(place.row + Layout::row(), place.column + Layout::column());
      if constexpr (kReduces<typename Step::Epilogue>) results.open(place.row, place.column);
      for_each_piece([&](int piece) { store(results, piece, piece_of(piece)); });
      if constexpr (kReduces<typename Step::Epilogue>) results.close();
    } else {
      Sum* const to = start(p, place, place.slice);
      for_each_piece([&](int piece) {
        const Piece held = piece_of(piece);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          Vector<Sum, kWidth> vector;
#pragma unroll
          for (int i = 0; i < kWidth; ++i) vector.data[i] = at(held, v * kWidth + i);
          store_whole<Sum, kWidth>(to + (piece * kVectors + v) * (Step::kThreads * kWidth), vector);
        }
      });
    }
  }

  // Adds up the slices' sums of piece `block` of all tiles' pieces; if a tree reduces, combines
  // partial results instead.
  template <class Parameters>
  KRONOP_INLINE static void add_up(const Parameters& p, long long block) {
    if constexpr (kReduces<typename Step::Epilogue>) {
      VisitorResults<Step, Parameters, Layout>::join(p, block, int(p.adds_up));
    } else {
      add_slices(p, block);
    }
  }

 private:
  // A recursion, since NVRTC before 12.8 does not unroll so long a loop, and then indexes the sums
  // dynamically, on the stack.
  template <int kPiece = 0, class Visit>
  KRONOP_INLINE static void for_each_piece(const Visit& visit) {
    if constexpr (kPiece < Layout::kPieces) {
      visit(kPiece);
      for_each_piece<kPiece + 1>(visit);
    }
  }

  template <class Parameters>
  KRONOP_INLINE static void add_slices(const Parameters& p, long long block) {
    const int piece = int(split(block, Layout::kPieces));
    const Place<Step> place(p, block);
    const Sum* from = start(p, place, 0) + piece * (kVectors * Step::kThreads * kWidth);
    const long long apart = place.tiles * (Step::kTileM * Step::kTileN);
    Piece total;
    Wide sums[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[i] = Wide(0);
#pragma unroll 4
    for (long long slice = 0; slice < p.slices; ++slice, from += apart) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const auto vector = load<Sum, kWidth>(from + v * (Step::kThreads * kWidth));
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          sums[v * kWidth + i] = sums[v * kWidth + i] + convert<Wide>(vector.data[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) at(total, i) = convert<Sum>(sums[i]);
    ResultsOf<Step, Parameters, Layout> results(p, place.problem);
    results.begin(place.row + Layout::row() + Layout::row_of(piece),
                  place.column + Layout::column() + Layout::column_of(piece));
    store_piece(results, 0, 0, total);
  }

  // Sums of float16 are added up in float32.
  using Wide = Either<detail::same<Sum, half_t>, float, Sum>;

  template <class Parameters>
  KRONOP_INLINE static Sum* start(const Parameters& p, const Place<Step>& place, long long slice) {
    return static_cast<Sum*>(p.partial) +
           (slice * place.tiles + place.tile) * (Step::kTileM * Step::kTileN) +
           int(threadIdx.x) * kWidth;
  }
  template <class Of>
  KRONOP_INLINE static auto& at(Of& piece, int i) {
    return piece.of[i / (kM * kN)][i / kN % kM][i % kN];
  }

  template <class Out>
  KRONOP_INLINE static void store(const Out& results, int piece, const Piece& held) {
    store_piece(results, Layout::row_of(piece), Layout::column_of(piece), held);
  }
  template <class Out>
  KRONOP_INLINE static void store_piece(const Out& results, int row, int column,
                                        const Piece& held) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      results.template store<kM, kN>(row + Layout::row_in(block), column + Layout::column_in(block),
                                     held.of[block]);
    }
  }
};

// Computes a block's tile. `Own` accumulates its sums, in pieces (`Own::Held`), from both operands'
// feeds.
template <class Step, class Own, class Parameters>
KRONOP_INLINE void run_tile(const Parameters& p, long long index) {
  using Input = typename Step::Input;
  const Place<Step> place(p, index);
  const long long start = place.slice * p.depth, left = p.k - start;
  long long a = start * p.a_column, b = start * p.b_row;
  for_each_digit(place.problem, p.batch, [&](int axis, long long digit) {
    a += digit * p.a_batch[axis];
    b += digit * p.b_batch[axis];
  });
  typename Own::FeedOfA of_a(static_cast<const Input*>(p.a) + a, place.row, p.m, p.a_row,
                             p.a_column);
  typename Own::FeedOfB of_b(static_cast<const Input*>(p.b) + b, place.column, p.n, p.b_column,
                             p.b_row);
  Own own;
  own.add(of_a, of_b, left < p.depth ? left : p.depth);
  // The place is recomputed: if it were kept, it would take registers.
  Own::Held::leave(p, Place<Step>(p, renewed(index)), [&](int piece) { return own.piece(piece); });
}

template <class Step, class Own, class Parameters>
KRONOP_INLINE void run_block(const Parameters& p) {
  if (p.adds_up) {
    Own::Held::add_up(p, blockIdx.x);
  } else {
    run_tile<Step, Own>(p, blockIdx.x);
  }
}

}  // namespace gemm
}  // namespace kronop
