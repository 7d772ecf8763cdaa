// The product of a kernel matrix and a matrix, without storing the kernel matrix:
//
//     Y[m, c] = epilogue(sum over n of (kernel(x1[m], x2[n]) + regularization [m = n]) v[n, c],
//                        Z[m, c])
//
// A thread has a block of rows and iterates over all columns n, kBlockColumns at a time. Register
// tiles sum over features, as in distance.hpp; the kernel's values of a row are multiplied by the
// rows of v immediately. Vectors of sums over the columns are added up block by block, which keeps
// rounding errors small, and their lanes at the end.
#pragma once

#include "distance_lengths.hpp"
#include "distance_parameters.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop {

// `rows`: of a block; `scratch_bytes`: of a thread. The others are as in distance_parameters.hpp.
template <int kValues, int kVectors, int kScalars, class Scalar>
struct ProductParameters {
  void *x1, *x2, *v, *y, *z, *scratch;
  index_t m, n, k, c, rows, scratch_bytes;
  index_t batch[kBatchDims];
  index_t x1_batch[kBatchDims], x2_batch[kBatchDims], v_batch[kBatchDims], y_batch[kBatchDims],
      z_batch[kBatchDims];
  index_t x1_row, x1_column, x2_row, x2_column, v_row, v_column, y_row, y_column, z_row, z_column;
  index_t threads;
  void *value[kValues], *vector[kVectors];
  index_t value_batch[kBatchDims * kValues], vector_batch[kBatchDims * kVectors],
      vector_column[kVectors];
  double number[kValues];
  Scalar scalars[kScalars];
};

namespace products {

// Computes blocks of rows. The scratch memory holds, one after the other: the columns of v, the
// totals and their parts, and a block's sums of terms if there are several slabs of features.
template <class Step, class Parameters>
class Worker {
 public:
  Worker(const Parameters& parameters, void* scratch) : p_(parameters) {
    v_columns_ = static_cast<Compute*>(scratch);
    totals_ = v_columns_ + p_.c * Step::kBlockColumns;
    part_ = totals_ + p_.rows * p_.c * Step::kWidth;
    sums_ = part_ + Step::kRows * p_.c * Step::kWidth;
  }

  void run(index_t problem, index_t m) {
    enter(problem);
    const index_t rows = lesser(p_.m - m, p_.rows);
    for (index_t i = 0; i < rows * p_.c * Step::kWidth; ++i) totals_[i] = 0;
    for (index_t n = 0; n < p_.n; n += Step::kBlockColumns) block(m, rows, n);
    finish(m, rows);
  }

 private:
  using Compute = typename Step::Compute;
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  using V = Vector<Compute, Step::kWidth>;
  using Lengths = distances::Lengths<Step>;
  static constexpr int kWidth = Step::kWidth, kPanel = Step::kPanel, kColumns = Step::kBlockColumns;

  index_t offset(index_t problem, const index_t* strides) const {
    index_t sum = 0;
    for (int d = kBatchDims - 1; d >= 0; problem /= p_.batch[d--])
      sum += problem % p_.batch[d] * strides[d];
    return sum;
  }

  void enter(index_t problem) {
    x1_ = static_cast<const Input*>(p_.x1) + offset(problem, p_.x1_batch);
    x2_ = static_cast<const Input*>(p_.x2) + offset(problem, p_.x2_batch);
    v_ = static_cast<const Input*>(p_.v) + offset(problem, p_.v_batch);
    y_ = static_cast<Output*>(p_.y) + offset(problem, p_.y_batch);
    z_ = p_.z ? static_cast<const Output*>(p_.z) + offset(problem, p_.z_batch) : nullptr;
    for (int i = 0; i < Step::kValues; ++i) {
      const auto* value = static_cast<const Compute*>(p_.value[i]);
      shared_.take(i, value ? value[offset(problem, p_.value_batch + kBatchDims * i)]
                            : Compute(p_.number[i]));
    }
    for (int i = 0; i < Step::kVectorCount; ++i) {
      vector_[i] = static_cast<const Compute*>(p_.vector[i]) +
                   offset(problem, p_.vector_batch + kBatchDims * i);
    }
  }

  // Adds the products with the columns from n on.
  void block(index_t m, index_t rows, index_t n) {
    const index_t columns = lesser(p_.n - n, kColumns);
    for (index_t c = 0; c < p_.c; ++c) {
      Compute* to = v_columns_ + c * kColumns;
      load_run(to, v_ + n * p_.v_row + c * p_.v_column, p_.v_row, columns);
      // Columns beyond the last one are multiplied by 0.
      for (index_t j = columns; j < kColumns; ++j) to[j] = 0;
    }
    go_through<0>(m, rows, n, columns);
    if constexpr (Step::kRounds > 1) {
      if (p_.k > Step::kDepth) go_through<1>(m, rows, n, columns);
    }
  }

  template <int kRound>
  void go_through(index_t m, index_t rows, index_t n, index_t columns) {
    index_t k = 0;
    do {
      const index_t depth = lesser(p_.k - k, Step::kDepth);
      pack_columns(n, columns, k, depth);
      index_t i = 0;
      for (; i + Step::kRows <= rows; i += Step::kRows)
        tiles<Step::kRows, kRound>(m, n, i, columns, k, depth);
      for (; i < rows; ++i) tiles<1, kRound>(m, n, i, columns, k, depth);
      k += Step::kDepth;
    } while (k < p_.k);
  }

  void pack_columns(index_t n, index_t columns, index_t k, index_t depth) {
    for (int i = 0; i < Step::kVectorCount; ++i) {
      const Compute* from = vector_[i] + k * p_.vector_column[i];
      for (index_t at = 0; at < depth; ++at)
        shared_.reciprocal[i][at] = 1 / from[at * p_.vector_column[i]];
    }
    const Input* from = x2_ + n * p_.x2_row + k * p_.x2_column;
    for (index_t j = 0; j < columns; j += kPanel) {
      load_panel<Step>(panels_ + j * depth, from + j * p_.x2_row, p_.x2_row, p_.x2_column,
                       columns - j, depth);
    }
  }

  // Sums over a slab of features for kRows rows from i on, and all columns of the block.
  template <int kRows, int kRound>
  void tiles(index_t m, index_t n, index_t i, index_t columns, index_t k, index_t depth) {
    for (int r = 0; r < kRows; ++r) {
      load_run(rows_ + r * Step::kPitch, x1_ + (m + i + r) * p_.x1_row + k * p_.x1_column,
               p_.x1_column, depth);
    }
    const bool is_last = k + depth == p_.k && (kRound + 1 == Step::kRounds || p_.k <= Step::kDepth);
    if (is_last) {
      for (index_t at = 0; at < kRows * p_.c * kWidth; ++at) part_[at] = 0;
    }
    for (index_t j = 0; j < columns; j += kPanel) {
      const Compute* panel = panels_ + j * depth;
      if (p_.k <= Step::kDepth) {
        alignas(64) Compute sums[Step::kTerms * kRows * kPanel];
        constexpr index_t kApart = kRows * kPanel;
        distances::sum_whole<Step, kRows>(rows_, panel, depth, shared_, sums, kPanel, kApart);
        weigh<kRows>(sums, kPanel, kApart, m + i, n + j, j);
      } else {
        const index_t apart = p_.rows * kColumns;
        Compute* sums = sums_ + i * kColumns + j;
        distances::sum_slab<Step, kRows, kRound>(rows_, panel, depth, shared_, sums, kColumns,
                                                 apart, k > 0);
        if (is_last) weigh<kRows>(sums, kColumns, apart, m + i, n + j, j);
      }
    }
    if (!is_last) return;
    Compute* totals = totals_ + i * p_.c * kWidth;
    for (index_t at = 0; at < kRows * p_.c * kWidth; at += kWidth) {
      store(totals + at, V(load<Compute, kWidth>(totals + at) + load<Compute, kWidth>(part_ + at)));
    }
  }

  // Recomputes a row's values. Those of other rows stay in registers.
  KRONOP_INLINE void mend(V (&values)[Step::kVectors], const Compute* sums, index_t apart,
                          index_t m, index_t n) {
    alignas(64) Compute of_row[kPanel];
    for (int v = 0; v < Step::kVectors; ++v) store(of_row + v * kWidth, values[v]);
    Lengths::mend(of_row, sums, apart, {x1_ + m * p_.x1_row, 0, p_.x1_column},
                  {x2_ + n * p_.x2_row, p_.x2_row, p_.x2_column}, lesser(p_.n - n, kPanel), p_.k,
                  shared_);
    for (int v = 0; v < Step::kVectors; ++v) values[v] = load<Compute, kWidth>(of_row + v * kWidth);
  }

  // Multiplies the kernel's values of the tile at (m, n), column j of the block, by v.
  template <int kRows>
  KRONOP_INLINE void weigh(const Compute* sums, index_t pitch, index_t apart, index_t m, index_t n,
                           index_t j) {
    const index_t diagonal = m - n;
    V values[kRows][Step::kVectors];
    KRONOP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < Step::kVectors; ++v) {
        typename Step::Numbers of_pair[Step::kTerms];
        distances::read_sums<Step>(of_pair, sums + r * pitch, sums, apart, v * kWidth);
        const typename Step::Numbers value = Step::Kernel::value(of_pair, shared_.of_kernel);
        values[r][v] = value.value;
      }
      if constexpr (Lengths::are_all()) {
        if (Lengths::has_unusual(sums + r * pitch, sums, apart))
          mend(values[r], sums + r * pitch, apart, m + r, n);
      }
    }
    if constexpr (Step::kRegularized) {
      if (diagonal > -kRows && diagonal < kPanel) regularize(values, diagonal);
    }
    for (index_t c = 0; c < p_.c; ++c) {
      V factor[Step::kVectors];
      KRONOP_UNROLL
      for (int v = 0; v < Step::kVectors; ++v)
        factor[v] = load<Compute, kWidth>(v_columns_ + c * kColumns + j + v * kWidth);
      KRONOP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        Compute* to = part_ + (r * p_.c + c) * kWidth;
        V sum = load<Compute, kWidth>(to);
        KRONOP_UNROLL
        for (int v = 0; v < Step::kVectors; ++v) sum += values[r][v] * factor[v];
        store(to, sum);
      }
    }
  }

  template <int kRows>
  void regularize(V (&values)[kRows][Step::kVectors], index_t diagonal) const {
    for (int r = 0; r < kRows; ++r) {
      const index_t at = diagonal + r;
      if (at >= 0 && at < kPanel)
        values[r][at / kWidth][at % kWidth] += shared_.value[Step::kValues - 1];
    }
  }

  void finish(index_t m, index_t rows) const {
    const OutputSink<Step> sink{typename Step::Epilogue(p_.scalars), y_, z_, nullptr};
    for (index_t i = 0; i < rows; ++i) {
      for (index_t c = 0; c < p_.c; ++c) {
        const Compute* lanes = totals_ + (i * p_.c + c) * kWidth;
        Compute sum = 0;
        for (int lane = 0; lane < kWidth; ++lane) sum += lanes[lane];
        const index_t of_y = (m + i) * p_.y_row + c * p_.y_column,
                      of_z = (m + i) * p_.z_row + c * p_.z_column;
        sink.one(sum, of_y, of_z, 0);
      }
    }
  }

  const Parameters& p_;
  const Input *x1_ = nullptr, *x2_ = nullptr, *v_ = nullptr;
  Output* y_ = nullptr;
  const Output* z_ = nullptr;
  const Compute* vector_[Step::kVectorCount > 0 ? Step::kVectorCount : 1];
  Compute *v_columns_, *totals_, *part_, *sums_;
  distances::Shared<Step> shared_;
  alignas(64) Compute rows_[Step::kRows * Step::kPitch];
  alignas(64) Compute panels_[Step::kBlockColumns * Step::kDepth];
};

}  // namespace products

template <class Decided, class Parameters>
int product(const Parameters& parameters, bool alone) {
  using Step = distances::TileStep<Decided>;
  const index_t blocks = parts(parameters.m, parameters.rows);
  index_t problems = 1;
  for (int d = 0; d < kBatchDims; ++d) problems *= parameters.batch[d];
  share_out(
      blocks * problems, parameters.threads, alone, [&](index_t share, index_t first, index_t end) {
        products::Worker<Step, Parameters> worker(
            parameters, static_cast<char*>(parameters.scratch) + share * parameters.scratch_bytes);
        for (index_t item = first; item < end; ++item)
          worker.run(item / blocks, item % blocks * parameters.rows);
      });
  return 0;
}

}  // namespace kronop
