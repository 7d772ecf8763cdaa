// A visitor tree as a kernel of its own, applied to sums that other kernels left in the workspace.
//
// A block has a tile of the result; lanes of a warp have neighbours in memory. If the tree reduces,
// a second launch combines the partial results of the blocks.
#pragma once

#include "visitor_results.cuh"

namespace kronop {

// Strides are in elements; the members `sums_...` are the strides of the sums, which have the
// accumulator's type. `visited` are the tree's operands, then its results, D first. The partial
// results of a reduction, result i, begin at folds[i] of `partial`; a launch with `joins` > 0
// combines them, with `joins` threads for each result.
template <int kScalars, class Scalar, int kVisited, int kResults>
struct VisitSumsParameters {
  void *sums, *partial;
  void* visited[kVisited];
  long long m, n;
  long long batch[kVisitedBatch], sums_batch[kVisitedBatch];
  long long sums_row, sums_column;
  long long visited_batch[kVisited * kVisitedBatch], visited_row[kVisited],
      visited_column[kVisited];
  long long joins;
  long long folds[kResults];
  Scalar scalars[kScalars];
};

namespace visiting {

// A thread has kThreadM x kThreadN results, kRun contiguous ones of a row at a time. Neighbouring
// lanes have neighbours in a row where sums are contiguous along rows, else in a column.
template <class Step>
struct Layout : OfBlock {
  static constexpr int kLanes = 32, kWarps = Step::kThreads / kLanes;
  static constexpr int kRun = Step::kAlongRows ? 16 / int(sizeof(typename Step::Accumulator)) : 1;
  static constexpr int kAcross = Step::kAlongRows ? kLanes : kWarps,
                       kDown = Step::kAlongRows ? kWarps : kLanes;
  static constexpr int kStepM = kDown, kStepN = kAcross * kRun;
  static_assert(Step::kTileM % kStepM == 0 && Step::kTileN % kStepN == 0);
  KRONOP_INLINE static int lane() { return threadIdx.x % kLanes; }
  KRONOP_INLINE static int warp() { return threadIdx.x / kLanes; }

  static constexpr int kHoldersOfRows = kAcross, kHoldersOfColumns = kDown;
  KRONOP_INLINE static int holder_of_row() { return Step::kAlongRows ? lane() : warp(); }
  KRONOP_INLINE static int holder_of_column() { return Step::kAlongRows ? warp() : lane(); }
};

template <class Step, class Parameters>
class Tile {
  using Sum = typename Step::Accumulator;
  using Own = Layout<Step>;
  using Results = VisitorResults<Step, Parameters, Own>;

 public:
  // Processes tile `tile` of all problems' tiles.
  KRONOP_INLINE static void run(const Parameters& p, long long tile) {
    long long problem = tile;
    const long long within =
        split(problem, ceil_div(p.m, Step::kTileM) * ceil_div(p.n, Step::kTileN));
    const long long first_m = within / ceil_div(p.n, Step::kTileN) * Step::kTileM,
                    first_n = within % ceil_div(p.n, Step::kTileN) * Step::kTileN;
    const long long m = first_m + Own::holder_of_column(),
                    n = first_n + Own::holder_of_row() * Own::kRun;
    Results results(p, problem);
    results.begin(m, n);
    if constexpr (kReduces<typename Step::Epilogue>) results.open(first_m, first_n);
    const Sum* from = static_cast<const Sum*>(p.sums) + m * p.sums_row + n * p.sums_column;
    for_each_digit(problem, p.batch,
                   [&](int axis, long long digit) { from += digit * p.sums_batch[axis]; });
    if (!take_whole(p, results, from)) take_each(p, results, from, m, n);
    if constexpr (kReduces<typename Step::Epilogue>) results.close();
  }

  KRONOP_INLINE static void join(const Parameters& p, long long block) {
    Results::join(p, block, int(p.joins));
  }

 private:
  // All rows of the thread together, if they are complete.
  KRONOP_INLINE static bool take_whole(const Parameters& p, const Results& results,
                                       const Sum* from) {
    constexpr int rows = Step::kTileM / Own::kStepM;
    if constexpr (Own::kStepN != Step::kTileN) return false;
    if (!results.template is_whole<Own::kRun>(0, 0, (rows - 1) * Own::kStepM + 1)) return false;
    Sum sums[rows][Own::kRun];
#pragma unroll
    for (int i = 0; i < rows; ++i) read(from + i * Own::kStepM * p.sums_row, sums[i]);
    results.template store_whole_rows<Own::kStepM>(0, 0, sums);
    return true;
  }
  // The first sum is in row m and column n.
  KRONOP_INLINE static void take_each(const Parameters& p, const Results& results, const Sum* from,
                                      long long m, long long n) {
#pragma unroll 1
    for (int i = 0; i < Step::kTileM; i += Own::kStepM) {
#pragma unroll
      for (int j = 0; j < Step::kTileN; j += Own::kStepN) {
        if (m + i < p.m && n + j < p.n) {
          Sum sums[1][Own::kRun];
          read(from + i * p.sums_row + j * p.sums_column, sums[0]);
          results.store(i, j, sums);
        }
      }
    }
  }
  // Rows of sums are padded to multiples of kRun.
  KRONOP_INLINE static void read(const Sum* from, Sum (&sums)[Own::kRun]) {
    const auto run = load<Sum, Own::kRun>(from);
#pragma unroll
    for (int v = 0; v < Own::kRun; ++v) sums[v] = run.data[v];
  }
};

}  // namespace visiting

template <class Step, class Parameters>
KRONOP_INLINE void visit_sums(const Parameters& parameters) {
  using Tile = visiting::Tile<Step, Parameters>;
  if constexpr (kReduces<typename Step::Epilogue>) {
    if (parameters.joins) return Tile::join(parameters, blockIdx.x);
  }
  Tile::run(parameters, blockIdx.x);
}

}  // namespace kronop
