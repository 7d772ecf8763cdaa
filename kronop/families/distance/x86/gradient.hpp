// Gradients of distances:
//
//     Y[o, n, m] = epilogue(sum over k of c[o, k] a[k, m] s(d[n, m] - b[n, k]), Z[o, n, m]).
//
// For a Relative power, differences are divided by largest[k, m] first.
//
// A work item is a block of kBlockRows by kBlockLanes pairs (n, m), for kOutputs rows of c. It
// iterates over k in slabs of kDepth, whose elements are packed; sums are in scratch memory between
// slabs, which also keeps rounding errors small. Lanes of vectors are columns m, or rows n if there
// are more rows than columns and the columns don't fill a vector.
#pragma once

#include "gradient_tile.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop::powers_of_distances {

constexpr index_t parts(index_t count, index_t size) { return (count + size - 1) / size; }
constexpr index_t lesser(index_t a, index_t b) { return a < b ? a : b; }

// The indices of a problem of the batch.
struct Place {
  index_t at[kBatchDims];

  KRONOP_INLINE Place(index_t index, const index_t* extents) {
    for (int d = kBatchDims - 1; d >= 0; index /= extents[d--]) at[d] = index % extents[d];
  }
  KRONOP_INLINE index_t offset(const index_t* strides) const {
    index_t sum = 0;
    for (int d = 0; d < kBatchDims; ++d) sum += at[d] * strides[d];
    return sum;
  }
};

// A matrix whose first index is that of rows of tiles, and the second that of lanes or of k.
template <class T>
struct Matrix {
  T* pointer;
  index_t row, column;

  KRONOP_INLINE T* at(index_t r, index_t c) const { return pointer + r * row + c * column; }
};

// How pairs are divided into blocks.
template <class Step>
struct Blocks {
  index_t rows, lanes, across, down, items;

  template <class Parameters>
  explicit Blocks(const Parameters& p)
      : rows(Step::kLanesAreRows ? p.m : p.n), lanes(Step::kLanesAreRows ? p.n : p.m) {
    across = parts(lanes, Step::kBlockLanes);
    down = parts(rows, Step::kBlockRows);
    items = across * down * parts(p.o, Step::kOutputs);
    for (int d = 0; d < kBatchDims; ++d) items *= p.batch[d];
  }
};

// Computes blocks, one after the other.
template <class Step, class Parameters>
class Worker {
 public:
  Worker(const Parameters& parameters, const Blocks<Step>& blocks)
      : p_(parameters), blocks_(blocks), epilogue_(p_.scalars) {}

  void run(index_t first, index_t end) {
    for (index_t item = first; item < end; ++item) {
      index_t rest = item;
      const auto take = [&](index_t extent) {
        const index_t digit = rest % extent;
        rest /= extent;
        return digit;
      };
      const index_t lane = take(blocks_.across) * Step::kBlockLanes,
                    row = take(blocks_.down) * Step::kBlockRows;
      const index_t output = take(parts(p_.o, Step::kOutputs)) * Step::kOutputs;
      enter(Place(rest, p_.batch));
      block(row, lane, output);
    }
  }

 private:
  using Compute = typename Step::Compute;
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  static constexpr int kOutputs = Step::kOutputs, kPanel = Step::kPanel, kPitch = Step::kPitch;
  static constexpr bool kRowsHaveReciprocals = Step::kIsRelative && Step::kLanesAreRows;
  static constexpr bool kLanesHaveReciprocals = Step::kIsRelative && !Step::kLanesAreRows;

  void enter(const Place& place) {
    const auto input = [&](const void* of, const index_t* strides) {
      return static_cast<const Input*>(of) + place.offset(strides);
    };
    a_ = {input(p_.a, p_.a_batch), p_.a_column, p_.a_row};
    b_ = {input(p_.b, p_.b_batch), p_.b_row, p_.b_column};
    largest_ = {Step::kIsRelative ? input(p_.largest, p_.largest_batch) : nullptr,
                p_.largest_column, p_.largest_row};
    c_ = {p_.c ? input(p_.c, p_.c_batch) : nullptr, p_.c_row, p_.c_column};
    d_ = Step::kLanesAreRows ? Matrix<const Input>{input(p_.d, p_.d_batch), p_.d_column, p_.d_row}
                             : Matrix<const Input>{input(p_.d, p_.d_batch), p_.d_row, p_.d_column};
    y_ = static_cast<Output*>(p_.y) + place.offset(p_.y_batch);
    z_ = p_.z ? static_cast<const Output*>(p_.z) + place.offset(p_.z_batch) : nullptr;
    const Compute power = p_.power
                              ? static_cast<const Compute*>(p_.power)[place.offset(p_.power_batch)]
                              : Compute(p_.number);
    less_ = power - 1;
  }

  // Elements for the lanes from `lane` on, of which `count` exist; the last one is repeated.
  void pack(Compute* to, const Matrix<const Input>& from, index_t lane, index_t lane_step,
            index_t k, index_t step, index_t count, index_t depth) {
    Lanes<kPanel> lanes;
    for (index_t i = 0; i < kPanel; ++i) lanes.offset[i] = lesser(i, count - 1) * lane_step;
    lanes.contiguous = lane_step == 1 && count >= kPanel;
    load_block<Step>(to, from.pointer + lane * lane_step + k * step, lanes, step, depth);
  }

  void block(index_t row, index_t lane, index_t output) {
    const index_t rows = lesser(blocks_.rows - row, Step::kBlockRows),
                  lanes = lesser(blocks_.lanes - lane, Step::kBlockLanes);
    const Matrix<const Input>& of_lanes = Step::kLanesAreRows ? b_ : a_;
    const Matrix<const Input>& of_rows = Step::kLanesAreRows ? a_ : b_;
    for (index_t j = 0; j < lanes; j += kPanel) {
      pack(d_from_ + j * Step::kBlockRows, d_, lane + j, d_.column, row, d_.row, lanes - j, rows);
      for (index_t i = 0; i < rows * kPanel * kOutputs; ++i) sums_at(0, j)[i] = 0;
    }
    for (index_t k = 0; k < p_.k; k += Step::kDepth) {
      const index_t depth = lesser(p_.k - k, Step::kDepth);
      take_coefficients(output, k, depth);
      for (index_t i = 0; i < rows; ++i) {
        load_run(rows_ + i * kPitch, of_rows.at(row + i, k), of_rows.column, depth);
        if constexpr (kRowsHaveReciprocals) {
          load_run(reciprocals_ + i * kPitch, largest_.at(row + i, k), largest_.column, depth);
          invert(reciprocals_ + i * kPitch, depth);
        }
        if constexpr (kOutputs == 1 && Step::kLanesAreRows) weigh<1>(rows_ + i * kPitch, depth);
      }
      for (index_t j = 0; j < lanes; j += kPanel) {
        pack(panel_, of_lanes, lane + j, of_lanes.row, k, of_lanes.column, lanes - j, depth);
        if constexpr (kLanesHaveReciprocals) {
          pack(reciprocals_, largest_, lane + j, largest_.row, k, largest_.column, lanes - j,
               depth);
          invert(reciprocals_, kPanel * depth);
        }
        if constexpr (kOutputs == 1 && !Step::kLanesAreRows) weigh<kPanel>(panel_, depth);
        index_t i = 0;
        for (; i + Step::kRows <= rows; i += Step::kRows) tile<Step::kRows>(i, j, depth);
        for (; i < rows; ++i) tile<1>(i, j, depth);
      }
    }
    for (index_t j = 0; j < lanes; j += kPanel) {
      for (index_t i = 0; i < rows; ++i) {
        for (int o = 0; o < kOutputs && output + o < p_.o; ++o)
          finish(sums_at(i, j) + o * kPanel, row + i, lane + j, output + o, lanes - j);
      }
    }
  }

  void take_coefficients(index_t output, index_t k, index_t depth) {
    if (!c_.pointer) return;
    for (int o = 0; o < kOutputs; ++o) {
      // Lanes that don't exist have arbitrary values: their sums are not stored.
      if (output + o < p_.o)
        load_run(coefficients_ + o * kPitch, c_.at(output + o, k), c_.column, depth);
    }
  }

  // Multiplies elements by the only coefficient of their k, so that tiles don't have to.
  template <int kCount>
  void weigh(Compute* values, index_t depth) const {
    if (!c_.pointer) return;
    for (index_t k = 0; k < depth; ++k) {
      KRONOP_UNROLL
      for (int i = 0; i < kCount; ++i) values[k * kCount + i] *= coefficients_[k];
    }
  }

  static void invert(Compute* largest, index_t count) {
    for (index_t i = 0; i < count; ++i) largest[i] = distances::reciprocal_of_largest(largest[i]);
  }

  Compute* sums_at(index_t i, index_t j) {
    return sums_ + (j * Step::kBlockRows + i * kPanel) * kOutputs;
  }

  template <int kRows>
  void tile(index_t i, index_t j, index_t depth) {
    const Compute* d = d_from_ + j * Step::kBlockRows + i * kPanel;
    const Compute* reciprocals = reciprocals_ + (kRowsHaveReciprocals ? i * kPitch : 0);
    add_tile<Step, kRows>(sums_at(i, j), d, panel_, rows_ + i * kPitch, coefficients_, reciprocals,
                          depth, less_);
  }

  // Stores results for a row and the lanes of a panel, of which `count` exist.
  void finish(const Compute* sums, index_t row, index_t lane, index_t output, index_t count) const {
    const index_t n = Step::kLanesAreRows ? lane : row, m = Step::kLanesAreRows ? row : lane;
    const index_t y_step = Step::kLanesAreRows ? p_.y_row : p_.y_column,
                  z_step = Step::kLanesAreRows ? p_.z_row : p_.z_column;
    const OutputSink<Step> sink{
        epilogue_, y_ + output * p_.y_output + n * p_.y_row + m * p_.y_column,
        z_ ? z_ + output * p_.z_output + n * p_.z_row + m * p_.z_column : nullptr, nullptr};
    if (count >= kPanel && sink.along(y_step == 1, z_step == 1)) {
      sink.template run<kPanel, true>(sums, 0, 0, 0);
    } else {
      for (index_t i = 0; i < lesser(count, kPanel); ++i)
        sink.one(sums[i], i * y_step, i * z_step, 0);
    }
  }

  const Parameters& p_;
  const Blocks<Step>& blocks_;
  typename Step::Epilogue epilogue_;
  Matrix<const Input> a_{}, b_{}, c_{}, d_{}, largest_{};
  Output* y_ = nullptr;
  const Output* z_ = nullptr;
  Compute less_ = 0;
  alignas(64) Compute panel_[kPanel * Step::kDepth];
  alignas(64) Compute rows_[Step::kBlockRows * kPitch];
  alignas(64) Compute reciprocals_[kRowsHaveReciprocals    ? Step::kBlockRows * kPitch
                                   : kLanesHaveReciprocals ? kPanel * Step::kDepth
                                                           : 1];
  alignas(64) Compute coefficients_[kOutputs * kPitch] = {};
  alignas(64) Compute d_from_[Step::kBlockRows * Step::kBlockLanes];
  alignas(64) Compute sums_[kOutputs * Step::kBlockRows * Step::kBlockLanes];
};

template <class Step, class Parameters>
void compute(const Parameters& parameters, bool alone) {
  const Blocks<Step> blocks(parameters);
  share_out(blocks.items, parameters.threads, alone, [&](index_t, index_t first, index_t end) {
    Worker<Step, Parameters> worker(parameters, blocks);
    worker.run(first, end);
  });
}

}  // namespace kronop::powers_of_distances

namespace kronop {

template <class Decided, class Parameters>
int distance_gradient(const Parameters& p, bool alone) {
  if (p.m < Decided::kWidth && p.n > p.m) {
    powers_of_distances::compute<powers_of_distances::TileStep<Decided, true>>(p, alone);
  } else {
    powers_of_distances::compute<powers_of_distances::TileStep<Decided, false>>(p, alone);
  }
  return 0;
}

}  // namespace kronop
