// Products on vectors: packing of both operands, and a register tile of sums.
#pragma once

#include "gemm.hpp"
#include "kronop_x86/tile.hpp"

namespace kronop::gemm {

// Both operands are packed in the type of sums, in panels of as many rows or columns as a tile has,
// one element of k after the other. So all layouts are multiplied at the same speed.
template <class Decided>
struct VectorStep : Decided {
  using Packed = typename Decided::Accumulator;
  static constexpr int kPanel = Decided::kWidth * Decided::kVectors;
  // Elements of k that are multiplied at once: packed operands are padded to a multiple.
  static constexpr index_t kUnit = 1;
  // Whether packed panels have one unit after the other.
  static constexpr bool kInOrder = true;
  // State of a thread while it multiplies.
  struct State {};

  template <class Input>
  static void pack_rows(Packed* to, const Input* from, index_t row, index_t column, index_t count,
                        index_t depth) {
    load_panel<RowLanes>(to, from, row, column, count, depth);
  }
  template <class Input>
  static void pack_columns(Packed* to, const Input* from, index_t row, index_t column,
                           index_t count, index_t depth) {
    load_panel<ColumnLanes>(to, from, row, column, count, depth);
  }

  // Adds the sums of the first kHeight rows of a tile to memory (leading dimension kPanel) if
  // `joins`, else stores them. NOTE: a separate function, because GCC keeps the sums in registers
  // only in small functions.
  template <int kHeight>
  __attribute__((noinline)) static void multiply(const Packed* rows, const Packed* columns,
                                                 index_t depth, Packed* to, bool joins) {
    if (joins) {
      tile<kHeight>(rows, columns, depth, to, true);
    } else {
      tile<kHeight>(rows, columns, depth, to, false);
    }
  }

 private:
  struct RowLanes {
    using Compute = Packed;
    static constexpr int kWidth = 16 / int(sizeof(Compute)), kVectors = Decided::kRows / kWidth;
    static_assert(Decided::kRows % kWidth == 0);
  };
  struct ColumnLanes {
    using Compute = Packed;
    static constexpr int kWidth = Decided::kWidth, kVectors = Decided::kVectors;
  };

  template <int kHeight>
  KRONOP_INLINE static void tile(const Packed* rows, const Packed* columns, index_t depth,
                                 Packed* to, bool joins) {
    register_tile<kHeight, Decided::kVectors, Decided::kWidth, Decided::kUnroll>(
        rows, 1, Decided::kRows, columns, kPanel, to, kPanel, depth, joins);
  }
};

}  // namespace kronop::gemm

namespace kronop {

template <class Decided, class Parameters>
int gemm_vectors(const Parameters& parameters, bool alone) {
  return gemm::run<gemm::VectorStep<Decided>>(parameters, alone);
}

}  // namespace kronop
