// Applies a visitor tree to sums: operands are read, D and auxiliary results are written, and
// reductions leave partial results, which are combined when all sums are done.
#pragma once

#include "kronop_x86/panels.hpp"
#include "kronop_x86/parallel.hpp"
#include "kronop_x86/visitor.hpp"

namespace kronop {

// The partial results of a reduction. Values of a row are combined over the columns that are
// computed together, values of a column over the rows of a work item: so the order does not depend
// on which thread is faster.
template <class Step, class Parameters>
class Parts {
 public:
  using Compute = typename Step::Epilogue::Compute;

  // Of result `index`. `axis` is the operation's; the problem may be its transpose.
  Parts(const Parameters& p, int index, Axis axis)
      : across((axis == Axis::kRow) != (p.turned != 0)),
        count(across ? parts(p.n, Step::kPanel) : parts(p.m, p.rows)), extent(across ? p.m : p.n),
        first_(reinterpret_cast<Compute*>(static_cast<char*>(p.workspace) + p.folds[index])) {}

  Compute* at(index_t problem, index_t part, index_t place) const {
    return first_ + (problem * count + part) * extent + place;
  }

  const bool across;  // whether it reduces each row of the kernel's problem
  const index_t count, extent;

 private:
  Compute* const first_;
};

// Applies the tree to sums of consecutive columns of a row.
template <class Step, class Parameters>
class VisitorResults {
 public:
  explicit VisitorResults(const Parameters& parameters) : p_(parameters), epilogue_(p_.scalars) {}

  // Moves on to another problem of the batch.
  void enter(index_t problem, const Place& place) {
    problem_ = problem;
    for (int i = 0; i < kVisited; ++i)
      offsets_[i] = place.offset(p_.visited_batch + i * kBatchDims);
  }

  // The results of row m in the `columns` columns from n on, at most kPanel. The first row
  // of a work item is processed first.
  void row(const typename Step::Accumulator* sums, index_t m, index_t n, index_t columns) const {
    Run run;
    for_each_type(typename Epilogue::Operands{}, [&]<class Element>(int i) {
      run.read(i, place<const Element>(i, m, n), p_.visited_column[i], columns);
    });
    run.compute(epilogue_, sums, columns);
    for_each_type(typename Epilogue::Results{}, [&]<class Kept>(int i) {
      keep(static_cast<Kept*>(nullptr), run, i, m, n, columns);
    });
  }

  // Combines the partial results of kBlock results of every reduction.
  void join(index_t block) const {
    for_each_type(typename Epilogue::Results{}, [&]<class Kept>(int i) {
      join_parts(static_cast<Kept*>(nullptr), i, block * kBlock);
    });
  }
  static index_t blocks(const Parameters& p) { return parts(p.m > p.n ? p.m : p.n, kBlock); }

 private:
  using Epilogue = typename Step::Epilogue;
  using Compute = typename Epilogue::Compute;
  using Run = VisitedRun<Epilogue, Step::kPanel>;
  static constexpr int kVisited = Epilogue::kOperands + Epilogue::kResults;
  static constexpr index_t kBlock = 256;

  template <class Element>
  KRONOP_INLINE Element* place(int i, index_t m, index_t n) const {
    return static_cast<Element*>(p_.visited[i]) + offsets_[i] + m * p_.visited_row[i] +
           n * p_.visited_column[i];
  }

  template <class Element>
  KRONOP_INLINE void keep(Element*, const Run& run, int i, index_t m, index_t n,
                          index_t columns) const {
    const int at = Epilogue::kOperands + i;
    run.write(i, place<Element>(at, m, n), p_.visited_column[at], columns);
  }
  template <class Join, Axis kAxis>
  KRONOP_INLINE void keep(Reduced<Join, kAxis>*, const Run& run, int i, index_t m, index_t n,
                          index_t columns) const {
    const Parts<Step, Parameters> parts(p_, i, kAxis);
    const Compute* from = run.kept(i);
    if (parts.across) {
      *parts.at(problem_, n / Step::kPanel, m) = join_run<Join, Step::kPanel>(from, columns);
      return;
    }
    Compute* to = parts.at(problem_, m / p_.rows, n);
    const bool joins = m % p_.rows != 0;
    for (index_t c = 0; c < columns; ++c) to[c] = joins ? Join::join(to[c], from[c]) : from[c];
  }

  template <class Element>
  KRONOP_INLINE void join_parts(Element*, int, index_t) const {}
  template <class Join, Axis kAxis>
  void join_parts(Reduced<Join, kAxis>*, int i, index_t first) const {
    const Parts<Step, Parameters> parts(p_, i, kAxis);
    const index_t count = lesser(parts.extent - first, kBlock);
    if (count <= 0) return;
    alignas(64) Compute joined[kBlock];
    const Compute* from = parts.at(problem_, 0, first);
    for (index_t c = 0; c < count; ++c) joined[c] = from[c];
    for (index_t part = 1; part < parts.count; ++part) {
      from = parts.at(problem_, part, first);
      for (index_t c = 0; c < count; ++c) joined[c] = Join::join(joined[c], from[c]);
    }
    const int at = Epilogue::kOperands + i;
    const index_t apart = parts.across ? p_.visited_row[at] : p_.visited_column[at];
    Compute* to = static_cast<Compute*>(p_.visited[at]) + offsets_[at] + first * apart;
    for (index_t c = 0; c < count; ++c) to[c * apart] = joined[c];
  }

  const Parameters& p_;
  Epilogue epilogue_;
  index_t problem_ = 0;
  index_t offsets_[kVisited];
};

// Combines the partial results of all reductions of so many problems.
template <class Results, class Parameters>
void join_parts(const Parameters& p, index_t problems, bool alone) {
  const index_t blocks = Results::blocks(p);
  share_out(problems * blocks, p.threads, alone, [&](index_t, index_t first, index_t end) {
    Results results(p);
    for (index_t index = first; index < end; ++index) {
      results.enter(index / blocks, Place(index / blocks, p.batch));
      results.join(index % blocks);
    }
  });
}

}  // namespace kronop
