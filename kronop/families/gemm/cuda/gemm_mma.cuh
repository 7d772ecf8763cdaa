// Products by warp-level MMAs, of any strides.
//
// A block has a tile of the result, and a warp kWarpM x kWarpN sums of it. Slabs of kTileK
// contracted indices of both operands are in a pipeline of kStages stages in shared memory. A warp
// loads the fragments of the next step before it multiplies the current one.
#pragma once

#include "gemm_mma_products.cuh"

namespace kronop {
namespace gemm {

// Which sums of a tile a thread has: of each 16 rows and 8 columns, two neighbours in rows g and g
// + 8. If bytes of A are transposed in registers, these are rows 4 g to 4 g + 3 of each 32; for B,
// columns 8 t to 8 t + 7 of each 32, so that a piece has 32 columns.
template <class Step, class Of>
struct MmaLayout : OfBlock {
  static constexpr bool kTurnsA = Of::kTurnsA, kTurnsB = Of::kTurnsB;
  static constexpr int kN = kTurnsB ? 4 : 2, kM = 1, kBlocks = kTurnsB ? 4 : 2;
  static constexpr int kOfRow = Of::kN / (kTurnsB ? 4 : 1), kPieces = Of::kM * kOfRow;

  KRONOP_INLINE static int warp_row() {
    return int(threadIdx.x / 32 % Step::kWarpsM) * Step::kWarpM;
  }
  KRONOP_INLINE static int warp_column() {
    return int(threadIdx.x / 32 / Step::kWarpsM) * Step::kWarpN;
  }
  KRONOP_INLINE static int row() {
    return warp_row() + int(threadIdx.x % 32 / 4) * (kTurnsA ? 4 : 1);
  }
  KRONOP_INLINE static int column() {
    return warp_column() + int(threadIdx.x % 4) * (kTurnsB ? 8 : 2);
  }
  // Threads that hold sums of a row, or of a column, and which of them this one is.
  static constexpr int kHoldersOfRows = Step::kTileN / Step::kWarpN * 4,
                       kHoldersOfColumns = Step::kWarpsM * 8;
  KRONOP_INLINE static int holder_of_row() {
    return int(threadIdx.x / 32 / Step::kWarpsM * 4 + threadIdx.x % 4);
  }
  KRONOP_INLINE static int holder_of_column() {
    return int(threadIdx.x / 32 % Step::kWarpsM * 8 + threadIdx.x % 32 / 4);
  }
  KRONOP_INLINE static constexpr int row_of(int piece) {
    const int i = piece / kOfRow;
    return kTurnsA ? i / 2 * 32 + i % 2 * 2 : i * 16;
  }
  KRONOP_INLINE static constexpr int column_of(int piece) {
    return piece % kOfRow * (kTurnsB ? 32 : 8);
  }
  KRONOP_INLINE static constexpr int row_in(int block) {
    return block / (kBlocks / 2) * (kTurnsA ? 1 : 8);
  }
  KRONOP_INLINE static constexpr int column_in(int block) { return kTurnsB ? block % 2 * 4 : 0; }
};

template <class Step, class OfA = MmaFeed<Step, Step::kTileM, Step::kAcrossA, Step::kVectorA>,
          class OfB = MmaFeed<Step, Step::kTileN, Step::kAcrossB, Step::kVectorB>>
class Mma {
 public:
  using FeedOfA = OfA;
  using FeedOfB = OfB;

 private:
  using RoomOfA = typename FeedOfA::Room;
  using RoomOfB = typename FeedOfB::Room;
  using Of = Operands<Step, RoomOfA, RoomOfB>;
  using Layout = MmaLayout<Step, Of>;
  static constexpr int kStageBytes = RoomOfA::kBytes + RoomOfB::kBytes, kStages = Step::kStages;
  // Steps of a slab; the fragments of the next one are loaded while one is multiplied.
  static constexpr int kSteps = Step::kTileK / Of::kDeep;
  static_assert(kSteps * Of::kDeep == Step::kTileK && kStages >= 2);

 public:
  using Held = Sums<Step, Layout>;
  static constexpr int kSlabBytes = kStages * kStageBytes;

  // Adds slabs of `depth` contracted indices in all.
  KRONOP_INLINE void add(FeedOfA& a, FeedOfB& b, long long depth) {
    const int whole = int(depth / Step::kTileK), rest = int(depth % Step::kTileK),
              slabs = whole + (rest > 0);
    if (depth <= 0) return;
    const auto fetch = [&](int slab, int stage) {
      const int left = slab < whole ? Step::kTileK : rest;
      a.fetch(stage_at(stage), left);
      b.fetch(stage_at(stage) + RoomOfA::kBytes, left);
    };
    const auto store = [&](int stage) {
      a.store_to(stage_at(stage));
      b.store_to(stage_at(stage) + RoomOfA::kBytes);
    };
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (stage < slabs) {
        fetch(stage, stage);
        store(stage);
      }
      commit_copies();
    }
    wait_for_older_copies<kStages - 2>();
    __syncthreads();
    Of now, next;
    load(now, 0, 0);
    int from = 0, to = kStages - 1;
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      const bool more = slab + kStages - 1 < slabs;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step == 0) {
          if (more) fetch(slab + kStages - 1, to);
          commit_copies();
        }
        if (step == kSteps - 1) {
          if (more) store(to);
          wait_for_older_copies<kStages - 2>();
          __syncthreads();
          to = from;
          from = from + 1 == kStages ? 0 : from + 1;
        }
        load(next, from, (step + 1) % kSteps);
        products_.add(now);
        now = next;
      }
    }
  }

  KRONOP_INLINE typename Held::Piece piece(int index) const {
    constexpr int together = Layout::kN == 4 ? 4 : 1;  // MMAs of a piece
    typename Held::Piece held;
    const int i = index / Layout::kOfRow, j = index % Layout::kOfRow * together;
#pragma unroll
    for (int block = 0; block < Layout::kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < Layout::kN; ++n) {
        held.of[block][0][n] =
            together == 4 ? products_.sum(i, j + n, block) : products_.sum(i, j, block * 2 + n);
      }
    }
    return held;
  }

 private:
  KRONOP_INLINE static unsigned char* stage_at(int stage) {
    return shared_memory() + stage * kStageBytes;
  }

  KRONOP_INLINE static void load(Of& of, int stage, int step) {
    const unsigned char* const from = stage_at(stage);
    of.load(from, from + RoomOfA::kBytes, Layout::warp_row(), Layout::warp_column(), step);
  }

  Products<Step, Of::kM, Of::kN> products_;
};

}  // namespace gemm

template <class Step, class Parameters>
KRONOP_INLINE void gemm_mma(const Parameters& parameters) {
  gemm::run_block<Step, gemm::Mma<Step>>(parameters);
}

}  // namespace kronop
