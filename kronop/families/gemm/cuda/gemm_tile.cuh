// Products by ordinary (SIMT) cores, of any types and strides.
//
// A block has a tile of the result, and a thread kThreadM x kThreadN sums of it: rows and columns
// in vectors of 16 bytes. Slabs of kTileK contracted indices of both operands are double-buffered
// in shared memory, as [k][row].
#pragma once

#include "gemm_tile_feed.cuh"

namespace kronop {
namespace gemm {

// Which sums of a tile a thread has: pieces of kRun rows and columns.
template <class Step>
struct TileLayout : OfBlock {
  static constexpr int kRun = 16 / int(sizeof(typename Step::Accumulator));
  static constexpr int kBlocks = 1, kM = kRun, kN = kRun;
  static constexpr int kRowRuns = Step::kThreadM / kRun, kColumnRuns = Step::kThreadN / kRun,
                       kPieces = kRowRuns * kColumnRuns;
  static constexpr int kThreadsM = Step::kTileM / Step::kThreadM,
                       kThreadsN = Step::kTileN / Step::kThreadN;
  // Lanes of a warp: those of the same 8 columns have the same rows.
  static constexpr int kLanesN = 8, kLanesM = 4, kWarpsN = kThreadsN / kLanesN;
  static_assert(kThreadsM * kThreadsN == Step::kThreads && kThreadsN % kLanesN == 0 &&
                kThreadsM % kLanesM == 0);

  KRONOP_INLINE static int row() {
    return int(threadIdx.x / 32 / kWarpsN * kLanesM + threadIdx.x % 32 / kLanesN) * kRun;
  }
  KRONOP_INLINE static int column() {
    return int(threadIdx.x / 32 % kWarpsN * kLanesN + threadIdx.x % kLanesN) * kRun;
  }
  // Threads that hold sums of a row, or of a column, and which of them this one is.
  static constexpr int kHoldersOfRows = kThreadsN, kHoldersOfColumns = kThreadsM;
  KRONOP_INLINE static int holder_of_row() { return column() / kRun; }
  KRONOP_INLINE static int holder_of_column() { return row() / kRun; }
  KRONOP_INLINE static constexpr int row_of(int piece) {
    return piece / kColumnRuns * (kThreadsM * kRun);
  }
  KRONOP_INLINE static constexpr int column_of(int piece) {
    return piece % kColumnRuns * (kThreadsN * kRun);
  }
  KRONOP_INLINE static constexpr int row_in(int) { return 0; }
  KRONOP_INLINE static constexpr int column_in(int) { return 0; }
};

template <class Step, class OfA = TileFeed<Step, Step::kTileM, Step::kAcrossA, Step::kVectorA>,
          class OfB = TileFeed<Step, Step::kTileN, Step::kAcrossB, Step::kVectorB>>
class Tile {
 public:
  using FeedOfA = OfA;
  using FeedOfB = OfB;

 private:
  using Sum = typename Step::Accumulator;
  using Layout = TileLayout<Step>;
  static constexpr int kRun = Layout::kRun, kRowRuns = Layout::kRowRuns,
                       kColumnRuns = Layout::kColumnRuns;
  static constexpr int kOfA = FeedOfA::kPitch * Step::kTileK,
                       kSlab = kOfA + FeedOfB::kPitch * Step::kTileK;

 public:
  using Held = Sums<Step, Layout>;
  static constexpr int kSlabBytes = 2 * kSlab * int(sizeof(Sum));

  KRONOP_INLINE Tile() {
#pragma unroll
    for (int i = 0; i < Step::kThreadM; ++i) {
#pragma unroll
      for (int j = 0; j < Step::kThreadN; ++j) sums_[i][j] = Sum(0);
    }
  }

  // Adds slabs of `depth` contracted indices in all.
  KRONOP_INLINE void add(FeedOfA& a, FeedOfB& b, long long depth) {
    const int whole = int(depth / Step::kTileK), rest = int(depth % Step::kTileK),
              slabs = whole + (rest > 0);
    if (depth <= 0) return;
    const auto fetch = [&](int slab) {
      Sum* const to = slab_of(slab);
      const int left = slab < whole ? Step::kTileK : rest;
      a.fetch(to, left);
      b.fetch(to + kOfA, left);
    };
    const auto finish = [&](int slab) {
      a.store_to(slab_of(slab));
      b.store_to(slab_of(slab) + kOfA);
      wait_for_copies();
      __syncthreads();
    };
    fetch(0);
    finish(0);
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      const bool more = slab + 1 < slabs;
      if (more) fetch(slab + 1);
      add_slab(slab_of(slab));
      if (more) finish(slab + 1);
    }
  }

  KRONOP_INLINE typename Held::Piece piece(int index) const {
    typename Held::Piece held;
    const int i0 = index / kColumnRuns * kRun, j0 = index % kColumnRuns * kRun;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
#pragma unroll
      for (int j = 0; j < kRun; ++j) held.of[0][i][j] = sums_[i0 + i][j0 + j];
    }
    return held;
  }

 private:
  KRONOP_INLINE static Sum* slab_of(int slab) {
    return reinterpret_cast<Sum*>(shared_memory()) + (slab & 1) * kSlab;
  }

  KRONOP_INLINE void add_slab(const Sum* slab) {
    const Sum *from_a = slab + Layout::row(), *from_b = slab + kOfA + Layout::column();
    // NOTE: unrolled 8 or 16 times, ptxas hoists loads until registers spill.
#pragma unroll 4
    for (int k = 0; k < Step::kTileK; ++k) {
      Sum a[Step::kThreadM], b[Step::kThreadN];
#pragma unroll
      for (int i = 0; i < kRowRuns; ++i)
        load_run(from_a + k * FeedOfA::kPitch + Layout::row_of(i * kColumnRuns), a + i * kRun);
#pragma unroll
      for (int j = 0; j < kColumnRuns; ++j)
        load_run(from_b + k * FeedOfB::kPitch + Layout::column_of(j), b + j * kRun);
#pragma unroll
      for (int i = 0; i < Step::kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < Step::kThreadN; ++j)
          sums_[i][j] = multiply_add(a[i], b[j], sums_[i][j]);
      }
    }
  }
  KRONOP_INLINE static void load_run(const Sum* from, Sum* to) {
    const auto run = load<Sum, kRun>(from);
#pragma unroll
    for (int v = 0; v < kRun; ++v) to[v] = run.data[v];
  }

  Sum sums_[Step::kThreadM][Step::kThreadN];
};

}  // namespace gemm

template <class Step, class Parameters>
KRONOP_INLINE void gemm_tile(const Parameters& parameters) {
  gemm::run_block<Step, gemm::Tile<Step>>(parameters);
}

}  // namespace kronop
