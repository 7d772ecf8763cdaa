// How sums become results: the only code that all sums of blocks and warps go through.
#pragma once

#include "gemm_parameters.cuh"

namespace kronop {
namespace gemm {

// The results of one problem of the batch. A thread gives its first row and column, and stores
// small matrices; if these are contiguous in a row or column of memory, vectorised.
template <class Step, class Parameters>
class Results {
 public:
  using Output = typename Step::Output;
  using Sum = typename Step::Accumulator;

  KRONOP_INLINE Results(const Parameters& parameters, long long problem)
      : p_(parameters), finish_(parameters) {
    long long y = 0, z = 0, bias = 0;
    for_each_digit(problem, p_.batch, [&](int axis, long long digit) {
      y += digit * p_.y_batch[axis];
      z += digit * p_.z_batch[axis];
      bias += digit * p_.bias_batch[axis];
    });
    y_ = static_cast<Output*>(p_.y) + y;
    z_ = p_.z ? static_cast<const Output*>(p_.z) + z : nullptr;
    bias_ = p_.bias ? static_cast<const Output*>(p_.bias) + bias : nullptr;
    of_y_ = Runs(y_, p_.y_row, p_.y_column);
    of_z_ = Runs(z_, p_.z_row, p_.z_column);
  }

  // The thread's results begin in row m and column n.
  KRONOP_INLINE void begin(long long m, long long n) {
    rows_ = near(p_.m - m);
    columns_ = near(p_.n - n);
    y_ += m * p_.y_row + n * p_.y_column;
    if (z_) z_ += m * p_.z_row + n * p_.z_column;
    if (bias_) bias_ += m * p_.bias_row + n * p_.bias_column;
  }

  // Stores kM x kN results, `m` rows and `n` columns behind the thread's first one; out of bounds
  // ones are skipped. Rows are multiples of kM, and columns of kN.
  template <int kM, int kN>
  KRONOP_INLINE void store(int m, int n, const Sum (&sums)[kM][kN]) const {
    const int rows = rows_ - m, columns = columns_ - n;
    if (rows <= 0 || columns <= 0) return;
    const bool whole = rows >= kM && columns >= kN;
    Output values[kM][kN];
    if (z_) load_source(z_ + m * p_.z_row + n * p_.z_column, whole, rows, columns, values);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const bool there = whole || (i < rows && j < columns);
        values[i][j] = finish(m + i, n + j, sums[i][j], values[i][j], there);
      }
    }
    Output* const y = y_ + m * p_.y_row + n * p_.y_column;
    if (whole && of_y_.template has<kN>(of_y_.by_columns)) {
      store_along_columns(y, values);
    } else if (kM > 1 && whole && of_y_.template has<kM>(of_y_.by_rows)) {
      store_along_rows(y, values);
    } else {
      store_each(y, rows, columns, values);
    }
  }

 private:
  // How many neighbours of a row, and of a column, are contiguous and aligned.
  struct Runs {
    int by_columns, by_rows;
    Runs() = default;
    KRONOP_INLINE Runs(const Output* from, long long row, long long column)
        : by_columns(column == 1 ? run_of((unsigned long long)from, row) : 1),
          by_rows(row == 1 ? run_of((unsigned long long)from, column) : 1) {}
    template <int kCount>
    KRONOP_INLINE static bool has(int run) {
      return run >= width<kCount>;
    }

   private:
    KRONOP_INLINE static int run_of(unsigned long long from, long long apart) {
      const unsigned long long bytes = (from | (unsigned long long)apart * sizeof(Output)) & 15;
      return (bytes == 0 ? 16 : int(bytes & (0 - bytes))) / int(sizeof(Output));
    }
  };
  // How many of kCount neighbours are stored at once.
  template <int kCount>
  static constexpr int width =
      kCount * int(sizeof(Output)) > 16 ? 16 / int(sizeof(Output)) : kCount;

  // Applies the epilogue to a sum in row `m` and column `n`, relative to the thread's first one.
  KRONOP_INLINE Output finish(int m, int n, Sum sum, Output source, bool there) const {
    Output bias = convert<Output>(Finish<Step>::no_bias());
    if (bias_ && there) bias = bias_[m * p_.bias_row + n * p_.bias_column];
    return finish_(sum, z_ ? source : Output{}, bias);
  }

  template <int kM, int kN>
  KRONOP_INLINE void load_source(const Output* z, bool whole, int rows, int columns,
                                 Output (&values)[kM][kN]) const {
    constexpr int kWidth = width<kN>;
    if (whole && of_z_.template has<kN>(of_z_.by_columns)) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; j += kWidth) {
          const auto run = load<Output, kWidth>(z + i * p_.z_row + j);
#pragma unroll
          for (int v = 0; v < kWidth; ++v) values[i][j + v] = run.data[v];
        }
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        values[i][j] = Output{};
        if (i < rows && j < columns) values[i][j] = z[i * p_.z_row + j * p_.z_column];
      }
    }
  }

  template <int kM, int kN>
  KRONOP_INLINE void store_along_columns(Output* y, const Output (&values)[kM][kN]) const {
    constexpr int kWidth = width<kN>;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; j += kWidth) {
        Vector<Output, kWidth> run;
#pragma unroll
        for (int v = 0; v < kWidth; ++v) run.data[v] = values[i][j + v];
        store_whole<Output, kWidth>(y + i * p_.y_row + j, run);
      }
    }
  }
  template <int kM, int kN>
  KRONOP_INLINE void store_along_rows(Output* y, const Output (&values)[kM][kN]) const {
    constexpr int kWidth = width<kM>;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int i = 0; i < kM; i += kWidth) {
        Vector<Output, kWidth> run;
#pragma unroll
        for (int v = 0; v < kWidth; ++v) run.data[v] = values[i + v][j];
        store_whole<Output, kWidth>(y + i + j * p_.y_column, run);
      }
    }
  }
  template <int kM, int kN>
  KRONOP_INLINE void store_each(Output* y, int rows, int columns,
                                const Output (&values)[kM][kN]) const {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (i < rows && j < columns) y[i * p_.y_row + j * p_.y_column] = values[i][j];
      }
    }
  }

  // Clamps a number that matters only if it is small.
  KRONOP_INLINE static int near(long long value) {
    return value < (1 << 20) ? int(value) : 1 << 20;
  }

  const Parameters& p_;
  const Finish<Step> finish_;
  Output* y_;
  const Output *z_, *bias_;
  Runs of_y_, of_z_;
  int rows_, columns_;
};

}  // namespace gemm
}  // namespace kronop
