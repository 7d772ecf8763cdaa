// The epilogue and the stores of all kernels.
#pragma once

#include "gemm_parameters.hpp"

namespace kronop::gemm {

// Applies the epilogue to sums of consecutive columns of a row, and stores them to Y.
template <class Step, class Parameters>
class Results {
 public:
  using Compute = typename Step::Accumulator;
  static constexpr int kMost = Step::kPanel;

  explicit Results(const Parameters& parameters) : p_(parameters), epilogue_(p_.scalars) {}

  // Moves on to another problem of the batch.
  void enter(index_t, const Place& place) {
    y_ = static_cast<Output*>(p_.y) + place.offset(p_.y_batch);
    z_ = p_.z ? static_cast<const Output*>(p_.z) + place.offset(p_.z_batch) : nullptr;
    bias_ = p_.bias ? static_cast<const Output*>(p_.bias) + place.offset(p_.bias_batch) : nullptr;
  }

  // The results of row m in the `columns` columns from n on, at most kMost.
  KRONOP_INLINE void row(const Compute* sums, index_t m, index_t n, index_t columns) const {
    alignas(64) Wide bias[kMost];
    if (bias_)
      load_run(bias, bias_ + m * p_.bias_row + n * p_.bias_column, p_.bias_column, columns);
    Output* to = y_ + m * p_.y_row + n * p_.y_column;
    const Output* from = z_ ? z_ + m * p_.z_row + n * p_.z_column : z_;
    index_t z_column = p_.z_column;
    alignas(64) Output source[kMost];
    if (from && p_.y_column == 1 && z_column != 1) {
      // A source with other strides than Y is not Y itself, and may be copied first.
      for (index_t c = 0; c < columns; ++c) source[c] = from[c * z_column];
      from = source, z_column = 1;
    }
    const OutputSink<Sunk> sink{epilogue_, to, from, bias_ ? bias : nullptr};
    if (columns == kMost && sink.along(p_.y_column == 1, z_column == 1)) {
      sink.template run<kMost, true>(sums, 0, 0, 0);
    } else {
      store_run<kRun>(sink, sums, p_.y_column, z_column, columns);
    }
  }

 private:
  struct Sunk : Step {
    using Compute = typename Step::Accumulator;
  };
  using Output = typename Step::Output;
  using Wide = typename Step::Epilogue::Compute;
  static constexpr int kRun = Step::kWidth < 4 ? 1 : Step::kWidth / 4;

  const Parameters& p_;
  typename Step::Epilogue epilogue_;
  Output* y_ = nullptr;
  const Output *z_ = nullptr, *bias_ = nullptr;
};

}  // namespace kronop::gemm
