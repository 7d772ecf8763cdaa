// Matrix products: for all rows m of A and columns n of B
//
//     Y[m, n] = epilogue(sum over k of A[m, k] B[k, n], Z[m, n], bias[m, n]).
//
// A work item is a block of results. It iterates over k slab by slab: the slab's columns are packed
// at once, and its rows kBlockRows at a time, which stay in the second-level cache. Tiles multiply
// a panel of columns, which stays in the first-level cache, by one panel of rows after the other.
// Sums of slabs are accumulated in scratch memory, tile by tile, which also keeps rounding errors
// small.
#pragma once

#include "gemm_gathered.hpp"
#include "gemm_results.hpp"
#include "kronop_x86/parallel.hpp"
#include "kronop_x86/visitor_results.hpp"

namespace kronop::gemm {

// Which results, of which slice of k, a work item has.
struct Item {
  index_t problem, slice, m, n, rows, columns;
};

// How results are divided into items. Consecutive items have the same columns.
template <class Parameters>
struct Items {
  const Parameters& p;
  index_t down = parts(p.m, p.rows), across = parts(p.n, p.columns);

  index_t problems() const {
    index_t count = 1;
    for (int d = 0; d < kBatchDims; ++d) count *= p.batch[d];
    return count;
  }
  index_t count() const { return down * across * p.slices * problems(); }
  Item at(index_t index) const {
    const index_t m = index % down * p.rows, block = index / down;
    const index_t n = block % across * p.columns, part = block / across;
    return {part / p.slices,         part % p.slices,           m, n,
            lesser(p.m - m, p.rows), lesser(p.n - n, p.columns)};
  }
};

// The class that stores results, for both kinds of epilogues.
template <class Step, class Parameters>
struct ResultsFor {
  using Type = Results<Step, Parameters>;
};
template <class Step, class Parameters>
  requires Visits<typename Step::Epilogue>
struct ResultsFor<Step, Parameters> {
  using Type = VisitorResults<Step, Parameters>;
};
template <class Step, class Parameters>
using ResultsOf = typename ResultsFor<Step, Parameters>::Type;

// Packs operands that are strided.
template <class Step, class Parameters>
class StridedFeed {
 public:
  using Packed = typename Step::Packed;
  using Matrix = const void*;

  // Whether parts of a slab may be skipped.
  static constexpr bool kSkips = false;

  StridedFeed(const Parameters& parameters, char*) : p_(parameters) {}

  // Moves on to an item, whose rows are `rows` from m on.
  void enter(const Place& place, index_t m, index_t) {
    m_ = m;
    a_ = static_cast<const Input*>(p_.a) + place.offset(p_.a_batch);
    b_ = static_cast<const Input*>(p_.b) + place.offset(p_.b_batch);
  }
  // The operand B of the problem: problems that have the same one share its packed columns.
  Matrix b() const { return b_; }
  // The row that is the i-th one of the item.
  index_t row(index_t i) const { return m_ + i; }

  // Packs a panel of a block: `count` rows, from the i-th one of the item on, of `depth` elements
  // from k on.
  KRONOP_INLINE void rows(Packed* to, index_t i, index_t, index_t k, index_t count,
                          index_t depth) const {
    Step::pack_rows(to, a_ + row(i) * p_.a_row + k * p_.a_column, p_.a_row, p_.a_column, count,
                    depth);
  }
  // The same of columns from n on.
  KRONOP_INLINE void columns(Packed* to, index_t n, index_t k, index_t count, index_t depth) const {
    Step::pack_columns(to, b_ + n * p_.b_column + k * p_.b_row, p_.b_column, p_.b_row, count,
                       depth);
  }

 private:
  using Input = typename Step::Input;

  const Parameters& p_;
  const Input *a_ = nullptr, *b_ = nullptr;
  index_t m_ = 0;
};

// The sums of a slice in row m.
template <class Sum, class Parameters>
Sum* partial_sums(const Parameters& p, index_t problem, index_t slice, index_t m) {
  char* first = static_cast<char*>(p.workspace) + p.partial;
  return reinterpret_cast<Sum*>(first) + ((problem * p.slices + slice) * p.m + m) * p.pitch;
}

// Computes items, one after the other, from what Feed packs.
template <class Step, class Feed, class Parameters>
class Worker {
 public:
  Worker(const Parameters& parameters, const Feed& feed, char* scratch)
      : p_(parameters), feed_(feed), results_(parameters) {
    rows_ = reinterpret_cast<Packed*>(scratch);
    columns_ = reinterpret_cast<Packed*>(scratch + p_.packed_columns);
    sums_ = reinterpret_cast<Sum*>(scratch + p_.sums);
  }

  void run(const Item& item) {
    const Place place(item.problem, p_.batch);
    feed_.enter(place, item.m, item.rows);
    results_.enter(item.problem, place);
    const index_t first = item.slice * p_.slice, end = lesser(p_.k, first + p_.slice);
    index_t k = first;
    do {
      const index_t depth = lesser(end - k, p_.depth);
      pack_columns(item, k, depth);
      for (index_t i = 0; i < item.rows; i += Step::kBlockRows)
        block(item, i, k, depth, k > first, k + depth == end);
      k += p_.depth;
    } while (k < end);
  }

 private:
  using Packed = typename Step::Packed;
  using Sum = typename Step::Accumulator;
  static constexpr int kTile = Step::kRows * Step::kPanel;

  // Which columns are packed, and where along k.
  struct Held {
    typename Feed::Matrix b;
    index_t n, k, depth;
    bool operator==(const Held&) const = default;
  };

  // Packs the item's columns of a slab, unless they were packed last.
  void pack_columns(const Item& item, index_t k, index_t depth) {
    const Held wanted{feed_.b(), item.n, k, depth};
    if (wanted == held_ && item.columns <= held_columns_) return;
    held_ = wanted, held_columns_ = item.columns;
    for (index_t j = 0; j < item.columns; j += Step::kPanel)
      feed_.columns(columns_ + j * padded(depth), item.n + j, k, item.columns - j, depth);
  }

  // The rows of a block from i on, for a slab; `joins`: it is not the first one of the item.
  void block(const Item& item, index_t i, index_t k, index_t depth, bool joins, bool is_last) {
    const index_t end = lesser(item.rows, i + Step::kBlockRows), length = padded(depth);
    for (index_t row = i; row < end; row += Step::kRows) {
      feed_.rows(rows_ + (row - i) * length, row, (row - i) / Step::kRows, k, end - row, depth);
    }
    const index_t panels = parts(item.columns, Step::kPanel);
    alignas(64) Sum own[kTile];
    for (index_t j = 0; j < panels; ++j) {
      const Packed* columns = columns_ + j * Step::kPanel * length;
      for (index_t row = i; row < end; row += Step::kRows) {
        // With a single slab, sums need no memory beyond their tile.
        Sum* sums = joins || !is_last ? sums_ + (row / Step::kRows * panels + j) * kTile : own;
        multiply_panels(end - row, (row - i) / Step::kRows, columns, length, sums, joins);
        if (is_last) finish(item, row, lesser(end - row, Step::kRows), j * Step::kPanel, sums);
      }
    }
  }

  // A tile of a panel of the block's rows, of which `rows` exist.
  KRONOP_INLINE void multiply_panels(index_t rows, index_t panel, const Packed* columns,
                                     index_t length, Sum* sums, bool joins) const {
    const Packed* from = rows_ + panel * Step::kRows * length;
    if constexpr (Feed::kSkips) {
      const Spans& live = feed_.live(panel);
      for (int i = 0; i < live.count; ++i, joins = true) {
        const index_t begin = live.begin[i], some = live.end[i] - begin;
        multiply<Step::kRows>(rows, from + begin * Step::kRows, columns + begin * Step::kPanel,
                              some, sums, joins);
      }
      // Sums of nothing are 0.
      if (!joins) multiply<Step::kRows>(rows, from, columns, 0, sums, false);
    } else {
      multiply<Step::kRows>(rows, from, columns, length, sums, joins);
    }
  }

  // A tile of at least `rows` rows: the lowest for which there is a kernel.
  template <int kHeight>
  static void multiply(index_t rows, const Packed* a, const Packed* b, index_t depth, Sum* sums,
                       bool joins) {
    if constexpr (kHeight > Step::kLeastRows) {
      if (rows <= kHeight / 2) return multiply<kHeight / 2>(rows, a, b, depth, sums, joins);
    }
    Step::template multiply<kHeight>(a, b, depth, sums, joins);
  }

  void finish(const Item& item, index_t i, index_t rows, index_t j, const Sum* sums) const {
    const index_t n = item.n + j, columns = lesser(item.columns - j, Step::kPanel);
    if (p_.slices > 1) {
      Sum* to = partial_sums<Sum>(p_, item.problem, item.slice, 0) + n;
      for (index_t r = 0; r < rows; ++r) {
        __builtin_memcpy(to + feed_.row(i + r) * p_.pitch, sums + r * Step::kPanel,
                         columns * sizeof(Sum));
      }
    } else {
      for (index_t r = 0; r < rows; ++r)
        results_.row(sums + r * Step::kPanel, feed_.row(i + r), n, columns);
    }
  }

  static constexpr index_t padded(index_t depth) { return parts(depth, Step::kUnit) * Step::kUnit; }

  const Parameters& p_;
  Feed feed_;
  ResultsOf<Step, Parameters> results_;
  typename Step::State state_;
  Held held_{};
  index_t held_columns_ = 0;
  Packed *rows_, *columns_;
  Sum* sums_;
};

// Adds up the slices' sums of a row, and applies the epilogue.
template <class Step, class Parameters>
void add_slices(const Parameters& p, index_t problem, index_t m) {
  using Sum = typename Step::Accumulator;
  ResultsOf<Step, Parameters> results(p);
  results.enter(problem, Place(problem, p.batch));
  for (index_t n = 0; n < p.n; n += Step::kPanel) {
    const index_t columns = lesser(p.n - n, Step::kPanel);
    alignas(64) Sum sums[Step::kPanel] = {};
    for (index_t slice = 0; slice < p.slices; ++slice) {
      const Sum* from = partial_sums<Sum>(p, problem, slice, m) + n;
      for (index_t c = 0; c < columns; ++c) sums[c] += from[c];
    }
    results.row(sums, m, n, columns);
  }
}

// Computes a problem; make(scratch) is a worker.
template <class Step, class Parameters, class Make>
int run_workers(const Parameters& p, bool alone, const Make& make) {
  const Items<Parameters> items{p};
  share_out(items.count(), p.threads, alone, [&](index_t share, index_t first, index_t end) {
    auto worker = make(static_cast<char*>(p.workspace) + share * p.scratch_bytes);
    for (index_t index = first; index < end; ++index) worker.run(items.at(index));
  });
  if (p.slices > 1) {
    // Trees need all rows of an item one after the other.
    const index_t height = Visits<typename Step::Epilogue> ? p.rows : 1, down = parts(p.m, height);
    share_out(items.problems() * down, p.threads, alone, [&](index_t, index_t first, index_t end) {
      for (index_t index = first; index < end; ++index) {
        const index_t m = index % down * height, rows = lesser(p.m - m, height);
        for (index_t r = 0; r < rows; ++r) add_slices<Step>(p, index / down, m + r);
      }
    });
  }
  if constexpr (kReduces<typename Step::Epilogue>) {
    join_parts<VisitorResults<Step, Parameters>>(p, items.problems(), alone);
  }
  return 0;
}

// The same by what Feed packs, which is made from `operands` and the end of a share's scratch.
template <class Step, class Feed, class Operands, class Parameters>
int run_fed(const Operands& operands, const Parameters& p, bool alone) {
  return run_workers<Step>(p, alone, [&](char* scratch) {
    return Worker<Step, Feed, Parameters>(p, Feed(operands, scratch + p.scratch_bytes), scratch);
  });
}

template <class Step, class Parameters>
int run(const Parameters& p, bool alone) {
  return run_fed<Step, StridedFeed<Step, Parameters>>(p, p, alone);
}

template <class Step, class Plain>
int run(const GatheredParameters<Plain>& p, bool alone) {
  return run_fed<Step, GatheredFeed<Step, Plain>>(p, p.plain, alone);
}

// The work of a problem's items: `each` multiply-adds, of `count` items.
struct Work {
  index_t each, count;
  index_t total() const { return each * count; }
};
template <class Parameters>
Work work_of(const Parameters& p) {
  const Items<Parameters> items{p};
  const index_t count = items.count(), all = p.m * p.n * items.problems() * (p.k > 0 ? p.k : 1);
  return {parts(all, count), count};
}

// Many problems, whose items are shared among the threads of one team, to each thread about the
// same work. Problems whose sums are cut in slices, which are large, have teams of their own.
template <class Step, class Plain, int kMost>
int run(const ManyParameters<Plain, kMost>& p, bool alone) {
  index_t work = 0, scratch = 0;
  for (const Plain *member = p.members, *end = member + p.used; member < end; ++member) {
    if (member->slices > 1 || p.used == 1) {
      run<Step>(*member, alone);
    } else {
      work += work_of(*member).total();
      scratch = scratch > member->scratch_bytes ? scratch : member->scratch_bytes;
    }
  }
  const index_t wanted = lesser(p.threads, work / p.least);
  share_out(work, wanted > 1 ? wanted : 1, alone, [&](index_t share, index_t first, index_t end) {
    index_t begin = 0;
    for (index_t i = 0; i < p.used && begin < end; ++i) {
      const Plain& own = p.members[i];
      if (own.slices > 1 || p.used == 1) continue;
      const Work some = work_of(own);
      // Those items are this share's whose work begins in it.
      const auto item_at = [&](index_t place) {
        return place > begin ? lesser(parts(place - begin, some.each), some.count) : 0;
      };
      const index_t from = item_at(first), to = item_at(end);
      begin += some.total();
      if (from >= to) continue;
      using Feed = StridedFeed<Step, Plain>;
      char* memory = static_cast<char*>(own.workspace) + share * scratch;
      Worker<Step, Feed, Plain> worker(own, Feed(own, nullptr), memory);
      const Items<Plain> items{own};
      for (index_t index = from; index < to; ++index) worker.run(items.at(index));
    }
  });
  return 0;
}

}  // namespace kronop::gemm
