// Squared distances as |a|^2 + |b|^2 - 2 a b, after centring: the products cost one multiply-add,
// but are exact only relative to the squares of the norms.
#pragma once

#include "distance_tile.hpp"

namespace kronop::distances {

// The step of the register tiles: inner products if the form is expanded.
template <class Step, bool kExpanded = Step::kExpanded>
struct SummedStep : Step {};
template <class Step>
struct SummedStep<Step, true> : Step {
  static constexpr int kTerm[] = {int(TermKind::Dot)}, kTermValue[] = {-1}, kTermVector[] = {-1};
};

// The centre of the packed rows, for the current features, and the squared norms of the rows.
template <class Step>
struct Centred {
  using Compute = typename Step::Compute;
  using V = Vector<Compute, Step::kWidth>;
  alignas(64) Compute centre[Step::kDepth];
  alignas(64) Compute norms_of_rows[Step::kBlockRows], norms_of_columns[Step::kMostColumns];

  // The centre is the mean of the first panel: any point among the rows keeps the norms about as
  // small as the distances. A feature whose mean is not finite is not centred, since NaN in one row
  // must not reach the others.
  void settle(const Compute* panel, index_t depth) {
    for (index_t k = 0; k < depth; ++k) {
      Compute sum = 0;
      for (int i = 0; i < Step::kPanel; ++i) sum += panel[k * Step::kPanel + i];
      const Compute mean = sum / Step::kPanel;
      centre[k] = mean - mean == 0 ? mean : Compute(0);
    }
  }

  // Centres the panel from row j on, divides it by the vector, if there is one, and adds to the
  // norms. Even and odd features of a slab are summed separately, to keep chains of additions
  // short.
  void move_panel(Compute* panel, index_t j, index_t depth, bool first, const Compute* reciprocal) {
    V sums[2][Step::kVectors] = {};
    for (index_t k = 0; k < depth; ++k) {
      KRONOP_UNROLL
      for (int v = 0; v < Step::kVectors; ++v, panel += Step::kWidth) {
        V moved = load<Compute, Step::kWidth>(panel) - centre[k];
        if constexpr (Step::kVectorCount > 0) moved *= reciprocal[k];
        store(panel, moved);
        sums[k % 2][v] += moved * moved;
      }
    }
    KRONOP_UNROLL
    for (int v = 0; v < Step::kVectors; ++v) {
      Compute* norms = norms_of_columns + j + v * Step::kWidth;
      const V sum = sums[0][v] + sums[1][v];
      store(norms, first ? sum : load<Compute, Step::kWidth>(norms) + sum);
    }
  }

  // As move_panel, for a packed row.
  void move_row(Compute* row, index_t i, index_t depth, bool first, const Compute* reciprocal) {
    V partial = {};
    index_t k = 0;
    for (; k + Step::kWidth <= depth; k += Step::kWidth) {
      V moved = load<Compute, Step::kWidth>(row + k) - load<Compute, Step::kWidth>(centre + k);
      if constexpr (Step::kVectorCount > 0) moved *= load<Compute, Step::kWidth>(reciprocal + k);
      store(row + k, moved);
      partial += moved * moved;
    }
    Compute sum = first ? Compute(0) : norms_of_rows[i];
    for (int lane = 0; lane < Step::kWidth; ++lane) sum += partial[lane];
    for (; k < depth; ++k) {
      row[k] = (row[k] - centre[k]) * (Step::kVectorCount > 0 ? reciprocal[k] : Compute(1));
      sum += row[k] * row[k];
    }
    norms_of_rows[i] = sum;
  }

  // Computes squared distances from products, for row i and the panel at j of the block. Negative
  // results of rounding become 0; NaN propagates, since it fails the comparison.
  KRONOP_INLINE void expand(Compute* products, index_t i, index_t j) const {
    const V row = powers::all<V>(norms_of_rows[i]);
    KRONOP_UNROLL
    for (int v = 0; v < Step::kPanel; v += Step::kWidth) {
      const V square = row + load<Compute, Step::kWidth>(norms_of_columns + j + v) -
                       2 * load<Compute, Step::kWidth>(products + v);
      store(products + v, square < 0 ? V{} : square);
    }
  }
};

}  // namespace kronop::distances
