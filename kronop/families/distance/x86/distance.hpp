// Distances and kernel matrices: for all rows m of x1 and n of x2
//
//     s_i[m, n] = sum, or maximum, over k of term_i(x1[m, k], x2[n, k])
//     Y[m, n]   = epilogue(kernel(s_0, s_1, ...; h) + regularization [n == m + diagonal], Z[m, n]).
//
// A work item is a block of at most kBlockRows by kBlockColumns results. It iterates over the
// features kDepth at a time: rows of both operands are packed, and register tiles sum over these
// features. Sums of slabs are accumulated in scratch memory, for small rounding errors.
#pragma once

#include "distance_expanded.hpp"
#include "distance_lengths.hpp"
#include "distance_parameters.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop::distances {

// How results are divided into blocks. With few features, blocks are wider, so that long contiguous
// runs of results are stored; if threads would have no block, they are lower. If x1 is x2, blocks
// below the diagonal are skipped.
template <class Step>
struct Blocks {
  index_t m, n, columns, rows, each, items;

  template <class Parameters>
  explicit Blocks(const Parameters& p) : m(p.m), n(p.n), each(0) {
    index_t problems = 1;
    for (int d = 0; d < kBatchDims; ++d) problems *= p.batch[d];
    const index_t fitting = Step::kBlockColumns * Step::kDepth / (p.k > 0 ? p.k : 1);
    columns = p.k > Step::kDepth
                  ? Step::kBlockColumns
                  : lesser(fitting / Step::kPanel * Step::kPanel, Step::kMostColumns);
    const index_t across = parts(n, columns) * problems, wanted = parts(p.threads, across);
    index_t count = parts(m, Step::kBlockRows);
    count = count < wanted ? lesser(wanted, parts(m, Step::kRows)) : count;
    rows = parts(parts(m, count), Step::kRows) * Step::kRows;
    for (index_t column = 0; column < n; column += columns) each += in_column(column);
    items = each * problems;
  }

  // How many blocks start at a column.
  index_t in_column(index_t column) const {
    return parts(Step::kSymmetric ? lesser(column + columns, n) : m, rows);
  }
};

// A thread's scratch memory. `sums`: those of a block, between slabs of features.
template <class Step>
struct Scratch {
  using Compute = typename Step::Compute;
  alignas(64) Compute rows[Step::kRows * Step::kPitch];
  alignas(64) Compute panels[Step::kBlockColumns * Step::kDepth];
  alignas(64) Compute sums[Step::kTerms * Step::kBlockRows * Step::kBlockColumns];
  Shared<Step> shared;
  Centred<Step> centred;
};

// Computes blocks, one after the other.
template <class Step, class Parameters>
class Worker {
 public:
  explicit Worker(const Parameters& parameters, const Blocks<Step>& blocks)
      : p_(parameters), blocks_(blocks), epilogue_(p_.scalars) {}

  void run(index_t first, index_t end) {
    index_t held = -1;
    for (index_t item = first; item < end; ++item) {
      const index_t problem = item / blocks_.each;
      index_t index = item % blocks_.each, n = 0;
      for (; index >= blocks_.in_column(n); n += blocks_.columns) index -= blocks_.in_column(n);
      if (item == first || item % blocks_.each == 0) enter(Place(problem, p_.batch));
      const index_t panels = problem * p_.n + n;
      block(index * blocks_.rows, n, held == panels);
      held = panels;
    }
  }

 private:
  using Compute = typename Step::Compute;
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  using Summed = SummedStep<Step>;

  void enter(const Place& place) {
    x1_ = static_cast<const Input*>(p_.x1) + place.offset(p_.x1_batch);
    x2_ = static_cast<const Input*>(p_.x2) + place.offset(p_.x2_batch);
    y_ = static_cast<Output*>(p_.y) + place.offset(p_.y_batch);
    z_ = p_.z ? static_cast<const Output*>(p_.z) + place.offset(p_.z_batch) : nullptr;
    for (int i = 0; i < Step::kValues; ++i) {
      const auto* value = static_cast<const Compute*>(p_.value[i]);
      s_.shared.take(
          i, value ? value[place.offset(p_.value_batch + kBatchDims * i)] : Compute(p_.number[i]));
    }
    for (int i = 0; i < Step::kVectorCount; ++i) {
      vector_[i] = static_cast<const Compute*>(p_.vector[i]) +
                   place.offset(p_.vector_batch + kBatchDims * i);
    }
    // Whether row m of x1 is row m + itself_ of x2 in memory.
    const index_t apart =
        (bit_cast<index_t>(x1_) - bit_cast<index_t>(x2_)) / index_t(sizeof(Input));
    const bool is_alike = p_.x1_row == p_.x2_row && p_.x1_column == p_.x2_column;
    is_itself_ = is_alike && p_.x1_row != 0 && apart % p_.x1_row == 0;
    itself_ = is_itself_ ? apart / p_.x1_row : 0;
  }

  // Computes the block at (m, n). `packed`: its rows of x2 are packed, if a slab has all features.
  void block(index_t m, index_t n, bool packed) {
    go_through<0>(m, n, packed);
    if constexpr (Step::kRounds > 1) {
      if (p_.k > Step::kDepth) go_through<1>(m, n, packed);
    }
  }

  template <int kRound>
  void go_through(index_t m, index_t n, bool packed) {
    const index_t rows = lesser(p_.m - m, blocks_.rows),
                  columns = lesser(p_.n - n, blocks_.columns);
    index_t k = 0;
    do {
      const index_t depth = lesser(p_.k - k, Step::kDepth);
      if (!packed || p_.k > Step::kDepth) pack_columns(n, columns, k, depth);
      index_t i = 0;
      for (; i + Step::kRows <= rows; i += Step::kRows)
        tiles<Step::kRows, kRound>(m, n, i, columns, k, depth);
      for (; i < rows; ++i) tiles<1, kRound>(m, n, i, columns, k, depth);
      k += Step::kDepth;
    } while (k < p_.k);
  }

  // Sums over a slab of features for kRows rows from i on, and all columns of the block.
  template <int kRows, int kRound>
  void tiles(index_t m, index_t n, index_t i, index_t columns, index_t k, index_t depth) {
    for (int r = 0; r < kRows; ++r) {
      Compute* to = s_.rows + r * Step::kPitch;
      load_run(to, x1_ + (m + i + r) * p_.x1_row + k * p_.x1_column, p_.x1_column, depth);
      if constexpr (Step::kExpanded)
        s_.centred.move_row(to, i + r, depth, k == 0, s_.shared.reciprocal[0]);
    }
    for (index_t j = 0; j < columns; j += Step::kPanel) tile<kRows, kRound>(m, n, i, j, k, depth);
  }

  void pack_columns(index_t n, index_t columns, index_t k, index_t depth) {
    for (int i = 0; i < Step::kVectorCount; ++i) {
      const Compute* from = vector_[i] + k * p_.vector_column[i];
      for (index_t at = 0; at < depth; ++at)
        s_.shared.reciprocal[i][at] = 1 / from[at * p_.vector_column[i]];
    }
    const Input* from = x2_ + n * p_.x2_row + k * p_.x2_column;
    for (index_t j = 0; j < columns; j += Step::kPanel) {
      Compute* to = s_.panels + j * depth;
      load_panel<Step>(to, from + j * p_.x2_row, p_.x2_row, p_.x2_column, columns - j, depth);
      if constexpr (Step::kExpanded) {
        if (j == 0) s_.centred.settle(to, depth);
        s_.centred.move_panel(to, j, depth, k == 0, s_.shared.reciprocal[0]);
      }
    }
  }

  // Sums over a slab of features, for the tile at (i, j) of the block at (m, n).
  template <int kRows, int kRound>
  void tile(index_t m, index_t n, index_t i, index_t j, index_t k, index_t depth) {
    if (Step::kSymmetric && n + j + Step::kPanel <= m + i) return;
    const Compute* panel = s_.panels + j * depth;
    if (p_.k <= Step::kDepth) {
      alignas(64) Compute sums[Step::kTerms * kRows * Step::kPanel];
      constexpr index_t kApart = kRows * Step::kPanel;
      sum_whole<Summed, kRows>(s_.rows, panel, depth, s_.shared, sums, Step::kPanel, kApart);
      finish<kRows>(sums, Step::kPanel, kApart, m, n, i, j);
    } else {
      constexpr index_t kApart = Step::kBlockRows * Step::kBlockColumns;
      Compute* sums = s_.sums + i * Step::kBlockColumns + j;
      sum_slab<Summed, kRows, kRound>(s_.rows, panel, depth, s_.shared, sums, Step::kBlockColumns,
                                      kApart, k > 0);
      if (kRound + 1 == Step::kRounds && k + depth == p_.k)
        finish<kRows>(sums, Step::kBlockColumns, kApart, m, n, i, j);
    }
  }

  // Stores the results of a tile.
  template <int kRows>
  KRONOP_INLINE void finish(Compute* sums, index_t pitch, index_t apart, index_t block_m,
                            index_t block_n, index_t i, index_t j) {
    const index_t n = block_n + j, columns = lesser(p_.n - n, Step::kPanel);
    const Compute* first_row = sums;
    for (int r = 0; r < kRows; ++r, sums += pitch) {
      const index_t m = block_m + i + r;
      if constexpr (Step::kExpanded) {
        s_.centred.expand(sums, i + r, j);
        const index_t same = m + itself_ - n;
        const Compute norm = s_.centred.norms_of_rows[i + r];
        if (is_itself_ && same >= 0 && same < Step::kPanel)
          sums[same] = norm == norm ? Compute(0) : norm;
      }
      alignas(64) Compute values[Step::kPanel];
      KRONOP_UNROLL
      for (int v = 0; v < Step::kPanel; v += Step::kWidth) {
        typename Step::Numbers of_pair[Step::kTerms];
        read_sums<Step>(of_pair, sums, first_row, apart, v);
        const typename Step::Numbers result = Step::Kernel::value(of_pair, s_.shared.of_kernel);
        store(values + v, result.value);
      }
      if constexpr (Lengths<Step>::are_all()) {
        if (Lengths<Step>::has_unusual(sums, first_row, apart)) {
          Lengths<Step>::mend(values, sums, apart, {x1_ + m * p_.x1_row, 0, p_.x1_column},
                              {x2_ + n * p_.x2_row, p_.x2_row, p_.x2_column}, columns, p_.k,
                              s_.shared);
        }
      }
      index_t first = 0;
      if constexpr (Step::kSymmetric) {
        first = n < m ? m - n : 0;
        mirror(values, first, columns, m, n);
      }
      if constexpr (Step::kRegularized) {
        const index_t at = m + p_.diagonal - n;
        if (at >= 0 && at < columns) values[at] += s_.shared.value[Step::kValues - 1];
      }
      const auto sink = sink_at(m, n);
      if (first == 0 && columns == Step::kPanel && sink.along(p_.y_column == 1, p_.z_column == 1)) {
        sink.template run<Step::kPanel, true>(values, 0, 0, 0);
      } else {
        for (index_t c = first; c < columns; ++c)
          sink.one(values[c], c * p_.y_column, c * p_.z_column, 0);
      }
    }
  }

  // Stores results of row m, from column n + first on, also to column m (the mirrored triangle).
  KRONOP_INLINE void mirror(const Compute* values, index_t first, index_t columns, index_t m,
                            index_t n) const {
    const auto sink = sink_at(n, m);
    for (index_t c = n + first == m ? first + 1 : first; c < columns; ++c) {
      Compute value = values[c];
      if constexpr (Step::kRegularized) {
        if (n + c + p_.diagonal == m) value += s_.shared.value[Step::kValues - 1];
      }
      sink.one(value, c * p_.y_row, c * p_.z_row, 0);
    }
  }

  KRONOP_INLINE OutputSink<Step> sink_at(index_t m, index_t n) const {
    return {epilogue_, y_ + m * p_.y_row + n * p_.y_column,
            z_ ? z_ + m * p_.z_row + n * p_.z_column : z_, nullptr};
  }

  const Parameters& p_;
  const Blocks<Step>& blocks_;
  typename Step::Epilogue epilogue_;
  const Input *x1_ = nullptr, *x2_ = nullptr;
  Output* y_ = nullptr;
  const Output* z_ = nullptr;
  bool is_itself_ = false;
  index_t itself_ = 0;
  const Compute* vector_[Step::kVectorCount > 0 ? Step::kVectorCount : 1];
  Scratch<Step> s_;
};

}  // namespace kronop::distances

namespace kronop {

template <class Decided, class Parameters>
int distance(const Parameters& parameters, bool alone) {
  using Step = distances::TileStep<Decided>;
  const distances::Blocks<Step> blocks(parameters);
  share_out(blocks.items, parameters.threads, alone, [&](index_t, index_t first, index_t end) {
    distances::Worker<Step, Parameters> worker(parameters, blocks);
    worker.run(first, end);
  });
  return 0;
}

}  // namespace kronop
