// How a visitor tree is applied to sums of warp groups: a team writes a piece of them to its shared
// memory and reads back contiguous runs, so that operands and results are accessed in vectors too.
#pragma once

#include "gemm_warp_group_results.cuh"
#include "kronop/visitor_results.cuh"

namespace kronop {
namespace gemm {

// A team as the unit that holds a part of a tile.
template <class Step>
struct TeamStep : Step {
  static constexpr int kTileM = Step::kParts * 64, kThreads = kTeam;
};

// Neighbours of a row of a piece belong to neighbouring threads, kRun to each.
template <class Step>
struct TeamLayout {
  static constexpr int kRun = 16 / int(sizeof(typename Step::Accumulator)),
                       kAcross = Step::kPiece / kRun, kDown = kTeam / kAcross;
  static constexpr int kHoldersOfRows = kAcross, kHoldersOfColumns = kDown;
  // After the shared memory of all stages.
  static constexpr int kPlaces = (int(sizeof(WarpGroupRoom<Step>)) + 15) / 16 * 16;

  KRONOP_INLINE static int thread() { return threadIdx.x % kTeam; }
  KRONOP_INLINE static void wait() { wait_for_team<kTeam>(threadIdx.x / kTeam); }
  KRONOP_INLINE static unsigned char* places() {
    return shared_memory() + kPlaces + threadIdx.x / kTeam * Step::kFoldBytes;
  }
  KRONOP_INLINE static int holder_of_row() { return thread() % kAcross; }
  KRONOP_INLINE static int holder_of_column() { return thread() / kAcross; }
};

template <class Step, class Parameters>
class WarpGroupVisits {
  using Own = TeamLayout<Step>;
  using Sum = typename Step::Accumulator;
  using Results = VisitorResults<TeamStep<Step>, Parameters, Own>;
  // Rows of a thread whose operands are loaded at the same time.
  static constexpr int kTogether = kReduces<typename Step::Epilogue> ? 4 : 8;

 public:
  KRONOP_INLINE WarpGroupVisits(const Parameters&, WarpGroupRoom<Step>& room)
      : own_(room.results[threadIdx.x / kTeam][0][0]) {
    static_assert(64 % (Own::kDown * kTogether) == 0);
    static_assert(Own::kPlaces + Step::kTeams * Step::kFoldBytes <= Step::kSharedBytes);
  }

  KRONOP_INLINE static void prefetch(const Parameters& p, long long m, long long n, int problem) {
    Results(p, problem).for_each_tensor([&]<class Element>(const Element* from, long long row) {
      prefetch_rows(extent_of<Step::kParts * 64>(p.m - m),
                    extent_of<Step::kTileN>(p.n - n) * int(sizeof(Element)),
                    [&](int at) { return from + (m + at) * row + n; });
    });
  }

  KRONOP_INLINE void wait_for_reads() const {}

  // As WarpGroupResults.
  template <class Sums>
  KRONOP_INLINE void write(const Parameters& p, const Sums& sums, long long m, long long n,
                           int problem) {
    // A team may have no rows of the last tile, or of a cluster's last tile; then it has no partial
    // result.
    if (m >= p.m) return;
    Results results(p, problem);
    results.begin(m + Own::holder_of_column(), n + Own::holder_of_row() * Own::kRun);
    if constexpr (kReduces<typename Step::Epilogue>) results.open(m, n);
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
#pragma unroll
      for (int first = 0; first < Step::kTileN; first += Step::kPiece) {
        Own::wait();
        fill(sums[part], first);
        Own::wait();
        take(results, part * 64, first);
      }
    }
    if constexpr (kReduces<typename Step::Epilogue>) results.close();
  }

  // Grids are whole clusters, so that a block may be one too many.
  KRONOP_INLINE static void join(const Parameters& p, long long block) {
    const long long extent = p.m > p.n ? p.m : p.n;
    if (block < p.problems * ceil_div(extent, kTeam / int(p.joins)))
      Results::join(p, block, int(p.joins));
  }

 private:
  template <class Sums>
  KRONOP_INLINE void fill(const Sums& sums, int first) const {
    const int thread = threadIdx.x % 32, row = threadIdx.x % kTeam / 32 * 16 + thread / 4,
              column = thread % 4 * 2;
#pragma unroll
    for (int j = 0; j < Step::kPiece; j += 8) {
      const auto& own = sums[(first + j) / 8];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        *reinterpret_cast<Vector<Sum, 2>*>(place_in_lines<Step>(own_, row + i * 8, column + j)) = {
            own[i * 2], own[i * 2 + 1]};
    }
  }

  // Applies the tree to a piece, whose rows are those of the team's from m on.
  KRONOP_INLINE void take(const Results& results, int m, int first) const {
    if (results.template is_whole<Own::kRun>(m, first, 64 - Own::kDown + 1)) {
#pragma unroll 1
      for (int row = 0; row < 64; row += Own::kDown * kTogether) {
        Sum sums[kTogether][Own::kRun];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) read(row + i * Own::kDown, sums[i]);
        results.template store_whole_rows<Own::kDown>(m + row, first, sums);
      }
    } else {
#pragma unroll 1
      for (int row = 0; row < 64; row += Own::kDown) {
        Sum sums[1][Own::kRun];
        read(row, sums[0]);
        results.store(m + row, first, sums);
      }
    }
  }
  // Loads a thread's run of a piece.
  KRONOP_INLINE void read(int row, Sum (&sums)[Own::kRun]) const {
    const int column = Own::holder_of_row() * Own::kRun;
    const auto run = *reinterpret_cast<const Vector<Sum, Own::kRun>*>(
        place_in_lines<Step>(own_, row + Own::holder_of_column(), column));
#pragma unroll
    for (int v = 0; v < Own::kRun; ++v) sums[v] = run.data[v];
  }

  unsigned char* own_;
};

// The end of the kernel for each kind of epilogue.
template <class Step, class Parameters>
struct WarpGroupEnd {
  using Type = WarpGroupResults<Step>;
};
template <class Step, class Parameters>
  requires Visits<typename Step::Epilogue>
struct WarpGroupEnd<Step, Parameters> {
  using Type = WarpGroupVisits<Step, Parameters>;
};

}  // namespace gemm
}  // namespace kronop
