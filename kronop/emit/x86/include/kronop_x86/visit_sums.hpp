// A visitor tree as a kernel of its own, applied to sums that other kernels left in the workspace.
#pragma once

#include "kronop_x86/parallel.hpp"
#include "kronop_x86/visitor_results.hpp"

namespace kronop {

// Strides are in elements; the members `sums_...` are the strides of the sums, which have the
// accumulator's type. A work item is `rows` rows. If the matrices are transposes of the
// operation's, `turned` is 1. `visited` are the tree's operands, then its results, D first; if
// result i is a reduction, its partial results begin at folds[i] of the workspace.
template <int kScalars, class Scalar, int kVisited, int kResults>
struct VisitSumsParameters {
  void *sums, *workspace;
  void* visited[kVisited];
  index_t m, n;
  index_t batch[kBatchDims], sums_batch[kBatchDims];
  index_t sums_row, sums_column;
  index_t visited_batch[kVisited * kBatchDims], visited_row[kVisited], visited_column[kVisited];
  index_t rows, threads, turned, folds[kResults];
  Scalar scalars[kScalars];
};

// Applies the tree to the sums of row m.
template <class Step, class Parameters>
void visit_row(const Parameters& p, const VisitorResults<Step, Parameters>& results,
               const typename Step::Accumulator* from, index_t m) {
  using Sum = typename Step::Accumulator;
  for (index_t n = 0; n < p.n; n += Step::kPanel) {
    const index_t columns = lesser(p.n - n, Step::kPanel);
    const Sum* run = from + m * p.sums_row + n * p.sums_column;
    if (p.sums_column == 1) {
      results.row(run, m, n, columns);
    } else {
      alignas(64) Sum own[Step::kPanel];
      load_run(own, run, p.sums_column, columns);
      results.row(own, m, n, columns);
    }
  }
}

template <class Step, class Parameters>
int visit_sums(const Parameters& p, bool alone) {
  using Results = VisitorResults<Step, Parameters>;
  index_t problems = 1;
  for (index_t extent : p.batch) problems *= extent;
  const index_t down = parts(p.m, p.rows);
  share_out(problems * down, p.threads, alone, [&](index_t, index_t first, index_t end) {
    Results results(p);
    for (index_t index = first; index < end; ++index) {
      const Place place(index / down, p.batch);
      results.enter(index / down, place);
      const auto* from =
          static_cast<const typename Step::Accumulator*>(p.sums) + place.offset(p.sums_batch);
      const index_t m = index % down * p.rows, rows = lesser(p.m - m, p.rows);
      for (index_t r = 0; r < rows; ++r) visit_row<Step>(p, results, from, m + r);
    }
  });
  if constexpr (kReduces<typename Step::Epilogue>) join_parts<Results>(p, problems, alone);
  return 0;
}

}  // namespace kronop
