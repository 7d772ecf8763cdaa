// Depthwise convolutions: every channel has a filter of its own. They are products of matrices with
// one column each, for every channel g,
//
//     Y[m, g] = epilogue(sum over k of A[m, k, g] B[k, g], Z[m, g], bias[m, g]),
//
// whose vectors are channels. A is gathered, and read in place: the addresses of a tile's rows are
// tabulated once for all channels. Of fprop and dgrad, m is a pixel and k one of the filter; of
// wgrad, m is a pixel of the filter.
#pragma once

#include "gemm.hpp"

namespace kronop::conv2d {

// The parameters are those of a matrix product with a column for each channel, and `a_column` and
// `b_column` the strides of channels.
template <class Step, class Plain>
class DepthwiseWorker {
 public:
  DepthwiseWorker(const GatheredParameters<Plain>& parameters, char* scratch)
      : p_(parameters.plain), a_(parameters.a_gathering), b_(parameters.b_gathering),
        filters_(reinterpret_cast<Sum*>(scratch + p_.packed_columns)),
        sums_(reinterpret_cast<Sum*>(scratch + p_.sums)), results_(p_) {
    results_.enter(0, Place(0, p_.batch));
  }

  void run(const gemm::Item& item) {
    const index_t first = item.slice * p_.slice, end = lesser(p_.k, first + p_.slice);
    index_t k = first;
    do {
      const index_t depth = lesser(end - k, p_.depth);
      enter(item, k, depth);
      for (index_t i = 0; i < item.rows; i += Step::kRows) {
        tabulate(item, i, depth);
        channels(item, i, depth, k > first, k + depth == end);
      }
      k += p_.depth;
    } while (k < end);
  }

 private:
  using Input = typename Step::Input;
  using Sum = typename Step::Accumulator;
  using Position = gemm::Position;
  static constexpr int kRows = Step::kRows, kWidth = Step::kWidth, kPanel = Step::kPanel;
  static constexpr int kTile = kRows * kPanel;

  // Packs the filters of a slab, and finds what its elements add to addresses.
  void enter(const gemm::Item& item, index_t k, index_t depth) {
    if (item.n == held_n_ && k == held_k_ && depth == held_depth_ && item.columns <= held_columns_)
      return;
    held_n_ = item.n, held_k_ = k, held_depth_ = depth, held_columns_ = item.columns;
    gemm::Walk tap(a_.columns, k), number(b_.rows, k);
    least_ = most_ = tap.position();
    for (index_t j = 0; j < depth; ++j, tap.advance(1), number.advance(1)) {
      const Position& at = taps_[j] = tap.position();
      steps_[j] = at.offset + at.u * a_.strides[0] + at.v * a_.strides[1];
      least_.u = lesser(least_.u, at.u), most_.u = -lesser(-most_.u, -at.u);
      least_.v = lesser(least_.v, at.v), most_.v = -lesser(-most_.v, -at.v);
      const Input* from = static_cast<const Input*>(p_.b) + item.n * p_.b_column +
                          gemm::find(b_, b_.first, number.position(), Position{}).offset;
      load_run(filters_ + j * item.columns, from, p_.b_column, item.columns);
    }
  }

  // The addresses of the elements of kRows rows; those of rows beyond the item's are zeros.
  void tabulate(const gemm::Item& item, index_t i, index_t depth) {
    const index_t count = lesser(item.rows - i, kRows);
    const Input* first = static_cast<const Input*>(p_.a) + item.n * p_.a_column;
    gemm::Walk row(a_.rows, item.m + i);
    for (index_t r = 0; r < kRows; ++r) {
      const Input** to = table_[r];
      if (r >= count) {
        for (index_t j = 0; j < depth; ++j) to[j] = zeros_;
        continue;
      }
      const Position& at = row.position();
      if (is_inside(at)) {
        const index_t offset =
            at.offset + (a_.first[0] + at.u) * a_.strides[0] + (a_.first[1] + at.v) * a_.strides[1];
        for (index_t j = 0; j < depth; ++j) to[j] = first + offset + steps_[j];
      } else {
        for (index_t j = 0; j < depth; ++j) {
          const gemm::Spot spot = gemm::find(a_, a_.first, at, taps_[j]);
          to[j] = spot.exists ? first + spot.offset : zeros_;
        }
      }
      row.advance(1);
    }
  }

  // Whether all elements of a row exist.
  bool is_inside(const Position& row) const {
    const index_t u = a_.first[0] + row.u, v = a_.first[1] + row.v;
    return a_.every[0] == 1 && a_.every[1] == 1 && u + least_.u >= 0 && v + least_.v >= 0 &&
           u + most_.u < a_.extents[0] && v + most_.v < a_.extents[1];
  }

  // The sums of kRows rows from the i-th one of the item on.
  void channels(const gemm::Item& item, index_t i, index_t depth, bool joins, bool is_last) {
    const index_t panels = parts(item.columns, kPanel);
    alignas(64) Sum own[kTile];
    for (index_t panel = 0; panel < panels; ++panel) {
      const index_t j = panel * kPanel, columns = lesser(item.columns - j, kPanel);
      Sum* sums = joins || !is_last ? sums_ + (i / kRows * panels + panel) * kTile : own;
      if (p_.a_column != 1 || item.columns < kWidth) {
        one_by_one(j, columns, item.columns, depth, sums, joins);
      } else if (columns == kPanel) {
        multiply<Step::kVectors>(j, item.columns, depth, sums, joins);
      } else {
        vectors(j, columns, item.columns, depth, sums, joins, is_last);
      }
      if (is_last) finish(item, i, j, columns, sums);
    }
  }

  // Vectors of fewer channels than a panel has. The last vector ends at the last channel.
  void vectors(index_t j, index_t columns, index_t pitch, index_t depth, Sum* sums, bool joins,
               bool is_last) const {
    for (index_t c = 0; c < columns; c += kWidth) {
      const index_t before = c + kWidth > columns ? c + kWidth - columns : 0;
      multiply<1>(j + c - before, pitch, depth, sums + c, joins);
      if (before == 0 || !is_last) continue;
      for (int r = 0; r < kRows; ++r) {
        Sum* to = sums + r * kPanel + c;
        __builtin_memmove(to, to + before, (kWidth - before) * sizeof(Sum));
      }
    }
  }

  // kCount vectors of channels from j on.
  template <int kCount>
  __attribute__((noinline)) void multiply(index_t j, index_t pitch, index_t depth, Sum* to,
                                          bool joins) const {
    using V = Vector<Sum, kWidth>;
    V sums[kRows][kCount];
    KRONOP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < kCount; ++v)
        sums[r][v] = joins ? load<Sum, kWidth>(to + r * kPanel + v * kWidth) : V{};
    }
    const Sum* filters = filters_ + j;
    for (index_t k = 0; k < depth; ++k, filters += pitch) {
      V filter[kCount];
      KRONOP_UNROLL
      for (int v = 0; v < kCount; ++v) filter[v] = load<Sum, kWidth>(filters + v * kWidth);
      KRONOP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        KRONOP_UNROLL
        for (int v = 0; v < kCount; ++v)
          sums[r][v] += filter[v] * wide(table_[r][k] + j + v * kWidth);
      }
    }
    KRONOP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < kCount; ++v) store(to + r * kPanel + v * kWidth, sums[r][v]);
    }
  }

  // A vector of elements in the type of sums.
  static KRONOP_INLINE Vector<Sum, kWidth> wide(const Input* from) {
    if constexpr (detail::is_same<Input, Sum>) {
      return load<Sum, kWidth>(from);
    } else {
      Sum numbers[kWidth];
      convert_run<kWidth, kWidth>(numbers, from);
      return load<Sum, kWidth>(numbers);
    }
  }

  // Fewer channels than a vector has, or channels that are not contiguous.
  void one_by_one(index_t j, index_t count, index_t pitch, index_t depth, Sum* to,
                  bool joins) const {
    for (int r = 0; r < kRows; ++r, to += kPanel) {
      for (index_t c = 0; c < count; ++c) {
        Sum sum = joins ? to[c] : Sum(0);
        for (index_t k = 0; k < depth; ++k) {
          const Input* from = table_[r][k];
          if (from != zeros_)
            sum += filters_[k * pitch + j + c] * convert<Sum>(from[(j + c) * p_.a_column]);
        }
        to[c] = sum;
      }
    }
  }

  void finish(const gemm::Item& item, index_t i, index_t j, index_t columns,
              const Sum* sums) const {
    const index_t rows = lesser(item.rows - i, kRows), m = item.m + i, n = item.n + j;
    for (index_t r = 0; r < rows; ++r, sums += kPanel) {
      if (p_.slices > 1) {
        Sum* to = gemm::partial_sums<Sum>(p_, item.problem, item.slice, m + r) + n;
        __builtin_memcpy(to, sums, columns * sizeof(Sum));
      } else {
        results_.row(sums, m + r, n, columns);
      }
    }
  }

  const Plain& p_;
  const Gathering &a_, &b_;
  Sum *const filters_, *const sums_;
  gemm::Results<Step, Plain> results_;
  index_t held_n_ = 0, held_k_ = 0, held_depth_ = 0, held_columns_ = 0;
  // Of a slab: what its elements add to coordinates and to offsets; bounds of the former.
  Position taps_[Step::kDepth], least_{}, most_{};
  index_t steps_[Step::kDepth];
  const Input* table_[kRows][Step::kDepth];
  alignas(64) Input zeros_[Step::kMostColumns] = {};
};

template <class Decided>
struct DepthwiseStep : Decided {
  static constexpr int kPanel = Decided::kWidth * Decided::kVectors;
};

}  // namespace kronop::conv2d

namespace kronop {

template <class Decided, class Plain>
int depthwise(const GatheredParameters<Plain>& parameters, bool alone) {
  using Step = conv2d::DepthwiseStep<Decided>;
  return gemm::run_workers<Step>(parameters.plain, alone, [&](char* scratch) {
    return conv2d::DepthwiseWorker<Step, Plain>(parameters, scratch);
  });
}

}  // namespace kronop
