// The first k numbers of each row and their columns: the smallest or the largest ones, sorted, NaN
// before all others, and equal numbers by column.
#pragma once

#include "kronop_x86/parallel.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {

// `matrix` is the part of a wider matrix that has `columns` columns from column `before` on. The
// selection from the columns before it is in `values` and `indices`, (rows, k) each.
struct SelectParameters {
  void *matrix, *values, *indices;
  index_t rows, columns, before, k, largest, threads;
};

namespace selection {

template <bool kLargest, class T>
KRONOP_INLINE bool precedes(T a, T b) {
  return (kLargest ? !(a <= b) : !(a >= b)) & (b == b);
}

// Whether one of the numbers may precede `last`.
// NOTE: without branches, so that compilers vectorise it.
template <int kCount, bool kLargest, class T>
KRONOP_INLINE bool some_precede(const T* numbers, T last) {
  int some = 0;
  for (int i = 0; i < kCount; ++i) some |= kLargest ? !(numbers[i] <= last) : !(numbers[i] >= last);
  return some != 0;
}

// The selected numbers of a row, sorted.
template <class Step, bool kLargest>
struct Chosen {
  using Compute = typename Step::Compute;
  Compute values[Step::kMost];
  int64_t* indices;
  index_t k, kept;

  KRONOP_INLINE Compute last() const { return values[k - 1]; }
  KRONOP_INLINE bool takes(Compute value) const {
    return kept < k || precedes<kLargest>(value, last());
  }

  KRONOP_INLINE void take(Compute value, index_t column) {
    index_t place = kept < k ? kept++ : k - 1;
    for (; place > 0 && precedes<kLargest>(value, values[place - 1]); --place) {
      values[place] = values[place - 1];
      indices[place] = indices[place - 1];
    }
    values[place] = value;
    indices[place] = column;
  }
};

template <class Step, bool kLargest>
void select_row(const typename Step::Element* row, const SelectParameters& p,
                typename Step::Element* values, int64_t* indices) {
  using Compute = typename Step::Compute;
  constexpr int kBlock = 64, kPiece = 16;
  Chosen<Step, kLargest> chosen;
  chosen.indices = indices, chosen.k = p.k, chosen.kept = p.before < p.k ? p.before : p.k;
  for (index_t i = 0; i < chosen.kept; ++i) chosen.values[i] = convert<Compute>(values[i]);
  const auto offer = [&](Compute value, index_t column) {
    if (chosen.takes(value)) chosen.take(value, p.before + column);
  };
  index_t column = 0;
  for (; column < p.columns && chosen.kept < p.k; ++column)
    offer(convert<Compute>(row[column]), column);
  for (; column + kBlock <= p.columns; column += kBlock) {
    Compute block[kBlock];
    convert_run<kBlock, Step::kWidth>(block, row + column);
    if (!some_precede<kBlock, kLargest>(block, chosen.last())) continue;
    for (int piece = 0; piece < kBlock; piece += kPiece) {
      if (!some_precede<kPiece, kLargest>(block + piece, chosen.last())) continue;
      for (int i = piece; i < piece + kPiece; ++i) offer(block[i], column + i);
    }
  }
  for (; column < p.columns; ++column) offer(convert<Compute>(row[column]), column);
  for (index_t i = 0; i < chosen.kept; ++i)
    values[i] = convert<typename Step::Element>(chosen.values[i]);
}

}  // namespace selection

template <class Step, class Parameters>
int select(const Parameters& p, bool alone) {
  using Element = typename Step::Element;
  const auto* const matrix = static_cast<const Element*>(p.matrix);
  share_out(p.rows, p.threads, alone, [&](index_t, index_t first, index_t end) {
    for (index_t row = first; row < end; ++row) {
      auto* const values = static_cast<Element*>(p.values) + row * p.k;
      auto* const indices = static_cast<int64_t*>(p.indices) + row * p.k;
      if (p.largest) {
        selection::select_row<Step, true>(matrix + row * p.columns, p, values, indices);
      } else {
        selection::select_row<Step, false>(matrix + row * p.columns, p, values, indices);
      }
    }
  });
  return 0;
}

}  // namespace kronop
