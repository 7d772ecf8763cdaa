// The three ways to multiply on vectors in a Kronecker-sparse product: lanes along the batch, along the outputs j, or
// along the slices l. Each packs the weights of a patch, brings X to where a register tile reads it, and
// leaves its results in scratch or, where nothing is to be done to them (`direct`), in Y.
#pragma once

#include "kronop_x86/tile.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop::ksparse {

// The weights that an item needs: one i, `slices` of l from `slice`, `outputs` of j from `output`.
struct Patch {
  index_t i, slice, slices, output, outputs;
};

// W[j, k, l] from the first element of a patch.
template <class Element>
struct Weights {
  const Element* data;
  index_t j, k, l;
};

// Rows of X from the first element of a patch: x[n, k, l].
template <class Element>
struct Input {
  const Element* data;
  index_t row, column, rows;
};

// Where results of a patch go: y[n, j, l] from its first element.
template <class Step>
struct Output {
  OutputSink<Step> sink;
  index_t y_row, y_column, z_row, z_column;
  bool plain;
};

template <class To, class From>
KRONOP_INLINE void read_run(To* __restrict to, const From* __restrict from, index_t stride, index_t count) {
  if (stride == 1) {
    KRONOP_INDEPENDENT
    for (index_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
  } else {
    for (index_t i = 0; i < count; ++i) to[i] = convert<To>(from[i * stride]);
  }
}

// `count` results in a row in scratch -> y, through the epilogue; `group` is the first one's bias.
template <class Step>
KRONOP_INLINE void store_run(const OutputSink<Step>& sink, const typename Step::Compute* values, index_t y_stride,
                             index_t z_stride, index_t group, index_t count) {
  index_t done = 0;
  if (sink.along(y_stride == 1, z_stride == 1)) {
    for (; done + Step::kWidth <= count; done += Step::kWidth) {
      sink.template run<Step::kWidth, true>(values + done, done, done, group + done);
    }
  }
  for (; done < count; ++done) sink.one(values[done], done * y_stride, done * z_stride, group + done);
}

// The weights of outputs [first, first + width) and slice l -> panel[k][pitch].
template <class Step>
void pack_outputs(typename Step::Compute* panel, index_t pitch, const Weights<typename Step::Element>& weights,
                  index_t first, index_t width, index_t l) {
  constexpr index_t kRun = 128;
  typename Step::Compute run[kRun];
  for (index_t k = 0; k < Step::kC; k += kRun) {
    const index_t count = k + kRun <= Step::kC ? kRun : Step::kC - k;
    for (index_t q = 0; q < width; ++q) {
      read_run(run, weights.data + (first + q) * weights.j + k * weights.k + l * weights.l, weights.k, count);
      for (index_t i = 0; i < count; ++i) panel[(k + i) * pitch + q] = run[i];
    }
  }
}

// Lanes along the batch: single weights times vectors of rows. X in scratch is [block of lanes][k][l][lanes], results
// are [block of lanes][j][l][lanes].
template <class Step>
struct AlongBatch {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static constexpr int kLanes = Step::kWidth * Step::kVectors;
  static constexpr index_t kBlock = index_t(Step::kDepth) * Step::kPitch;
  static constexpr index_t kSlicePanels = index_t(Step::kC) * Step::kOutputs;

  // Panels [l][tile of j][k][j]; the last tile may be lower.
  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    for (index_t j = 0; j < patch.outputs; j += Step::kTile) {
      const index_t height = j + Step::kTile <= patch.outputs ? Step::kTile : patch.outputs - j;
      for (index_t l = 0; l < patch.slices; ++l) {
        pack_outputs<Step>(panels + l * kSlicePanels + j * Step::kC, height, weights, j, height, l);
      }
    }
  }

  static bool is_direct(const Output<Step>& to, const Input<Element>& from, index_t block) {
    return to.plain && to.y_row == 1 && (block + 1) * kLanes <= from.rows;
  }
  // X is read in place where it is read only once.
  static bool is_in_place(const Input<Element>& from, index_t block) {
    return detail::is_same<Element, Compute> && Step::kB <= Step::kTile && from.row == 1 &&
           (block + 1) * kLanes <= from.rows;
  }

  static constexpr index_t place(index_t k, index_t l) { return k * Step::kPitch + l * kLanes; }

  static void stage_contiguous(Compute* state, const Input<Element>& from, const Patch& patch, index_t depth) {
    for (index_t k = 0; k < depth; ++k) {
      for (index_t l = 0; l < patch.slices; ++l) {
        const Element* x = from.data + (k * Step::kD + l) * from.column;
        Compute* to = state + place(k, l);
        index_t n = 0;
        for (; n + kLanes <= from.rows; n += kLanes, to += kBlock) convert_run<kLanes>(to, x + n);
        for (index_t i = 0; n + i < from.rows; ++i) to[i] = convert<Compute>(x[n + i]);
      }
    }
  }

  // Contiguous along the features: squares are transposed in registers, along all k and l.
  static void stage_transposed(Compute* state, const Input<Element>& from, index_t depth) {
    constexpr int kWidth = Step::kWidth;
    const index_t count = depth * Step::kD;
    for (index_t n = 0; n < from.rows; n += kWidth) {
      const Element* rows[kWidth];
      for (index_t i = 0; i < kWidth; ++i) {
        rows[i] = from.data + (n + i < from.rows ? n + i : from.rows - 1) * from.row;
      }
      Compute* to = state + n / kLanes * kBlock + n % kLanes;
      for (index_t g = 0; g < count; g += kWidth) {
        const index_t start = g + kWidth <= count ? g : count - kWidth;
        Vector<Compute, kWidth> square[kWidth];
        load_rows(square, rows, start);
        transpose(square);
        KRONOP_UNROLL
        for (int i = 0; i < kWidth; ++i) {
          store(to + place((start + i) / Step::kD, (start + i) % Step::kD), square[i]);
        }
      }
    }
  }

  KRONOP_INLINE static void load_rows(Vector<Compute, Step::kWidth> (&square)[Step::kWidth],
                                      const Element* const (&rows)[Step::kWidth], index_t start) {
    constexpr int kWidth = Step::kWidth;
    if constexpr (detail::is_same<Compute, Element>) {
      KRONOP_UNROLL
      for (int i = 0; i < kWidth; ++i) square[i] = load<Compute, kWidth>(rows[i] + start);
    } else {
      Compute staged[kWidth * kWidth];
      for (int i = 0; i < kWidth; ++i) convert_run<kWidth>(staged + i * kWidth, rows[i] + start);
      KRONOP_UNROLL
      for (int i = 0; i < kWidth; ++i) square[i] = load<Compute, kWidth>(staged + i * kWidth);
    }
  }

  static void stage_any(Compute* state, const Input<Element>& from, const Patch& patch, index_t depth) {
    for (index_t n = 0; n < from.rows; ++n) {
      Compute* to = state + n / kLanes * kBlock + n % kLanes;
      for (index_t k = 0; k < depth; ++k) {
        for (index_t l = 0; l < patch.slices; ++l) {
          to[place(k, l)] = convert<Compute>(from.data[n * from.row + (k * Step::kD + l) * from.column]);
        }
      }
    }
  }

  static void stage(Compute* state, const Input<Element>& from, const Patch& patch, index_t depth) {
    if (from.row == 1) {
      if (!is_in_place(from, (from.rows - 1) / kLanes)) stage_contiguous(state, from, patch, depth);
    } else if (Step::kSlices == Step::kD && from.column == 1 && depth * Step::kD >= Step::kWidth) {
      stage_transposed(state, from, depth);
    } else {
      stage_any(state, from, patch, depth);
    }
  }

  static void multiply(Compute* state, Compute* results, const Compute* panels, const Input<Element>& from,
                       const Output<Step>& to, const Patch& patch, index_t k, index_t depth) {
    stage(state, from, patch, depth);
    for (index_t l = 0; l < patch.slices; ++l) {
      for (index_t block = 0; block * kLanes < from.rows; ++block) {
        const Compute* x = state + block * kBlock + l * kLanes;
        index_t step = Step::kPitch;
        if constexpr (detail::is_same<Element, Compute>) {
          if (is_in_place(from, block)) {
            x = from.data + block * kLanes + l * from.column;
            step = Step::kD * from.column;
          }
        }
        const bool direct = is_direct(to, from, block);
        Compute* y = results + (block * Step::kOutputs * Step::kSlices + l) * kLanes;
        if constexpr (Step::kDirect) {
          if (direct) y = to.sink.y + block * kLanes + l * to.y_column;
        }
        const index_t row = direct ? Step::kD * to.y_column : patch.slices * kLanes;
        const Compute* panel = panels + l * kSlicePanels;
        const auto tile = [&](auto height, index_t j) __attribute__((always_inline)) {
          register_tile<decltype(height)::value, Step::kVectors, Step::kWidth, Step::kUnroll>(
              panel + j * Step::kC + k * decltype(height)::value, 1, decltype(height)::value, x, step, y + j * row,
              row, depth, k > 0);
        };
        constexpr int kRest = Step::kB % Step::kTile;
        index_t j = 0;
        for (; j + Step::kTile <= patch.outputs; j += Step::kTile) tile(Height<Step::kTile>{}, j);
        if constexpr (kRest > 0) {
          if (j < patch.outputs) tile(Height<kRest>{}, j);
        }
      }
    }
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to, const Patch& patch) {
    Lanes<kLanes> y, z;
    for (index_t block = 0; block * kLanes < from.rows; ++block) {
      if (is_direct(to, from, block)) continue;
      const index_t first = block * kLanes, left = from.rows - first;
      const Block lanes{first, 0, left < kLanes ? left : kLanes};
      place_lanes(y, lanes, 1, to.y_row, 0);
      place_lanes(z, lanes, 1, to.z_row, 0);
      const index_t step = Step::kSlices == Step::kD ? 1 : Step::kD;
      store_block<Step>(to.sink, results + block * Step::kOutputs * Step::kSlices * kLanes, y, step * to.y_column, z,
                        step * to.z_column, patch.outputs * patch.slices, lanes);
    }
  }
};

// Lanes along the outputs, for one slice (d = 1): a row's numbers times vectors of weights. X in scratch is [n][k],
// results are [n][j].
template <class Step>
struct AlongOutputs {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static constexpr int kSpan = Step::kWidth * Step::kVectors;
  static constexpr index_t kRow = (Step::kOutputs + Step::kWidth - 1) / Step::kWidth * Step::kWidth;

  // Panels [span of j][k][j], then single vectors of j, the last of which is filled up.
  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    for (index_t j = 0; j < patch.outputs;) {
      const index_t left = patch.outputs - j, span = left >= kSpan ? kSpan : Step::kWidth;
      Compute* panel = panels + j * Step::kC;
      pack_outputs<Step>(panel, span, weights, j, left < span ? left : span, 0);
      for (index_t q = left; q < span; ++q) {
        for (index_t k = 0; k < Step::kC; ++k) panel[k * span + q] = Compute(0);
      }
      j += span;
    }
  }

  static bool is_direct(const Output<Step>& to, const Patch& patch) {
    return to.plain && to.y_column == 1 && patch.outputs % Step::kWidth == 0;
  }
  // NOTE: rows a multiple of 2 KB apart fall into the same few sets of the first-level cache.
  static bool is_in_place(const Input<Element>& from) {
    return detail::is_same<Element, Compute> && from.column == 1 && from.row * sizeof(Element) % 2048 != 0;
  }

  static void multiply(Compute* state, Compute* results, const Compute* panels, const Input<Element>& from,
                       const Output<Step>& to, const Patch& patch, index_t k, index_t depth) {
    const Compute* x = state;
    index_t x_row = Step::kPitch;
    if (!is_in_place(from)) {
      for (index_t n = 0; n < from.rows; ++n) {
        read_run(state + n * Step::kPitch, from.data + n * from.row, from.column, depth);
      }
    } else if constexpr (detail::is_same<Element, Compute>) {
      x = from.data, x_row = from.row;
    }
    Compute* y = results;
    index_t y_row = kRow;
    if constexpr (Step::kDirect) {
      if (is_direct(to, patch)) y = to.sink.y, y_row = to.y_row;
    }
    const auto tiles = [&](auto vectors, index_t j) __attribute__((always_inline)) {
      constexpr int kVectors = decltype(vectors)::value;
      const Compute* panel = panels + j * Step::kC + k * kVectors * Step::kWidth;
      in_tiles<Step::kTile>(from.rows, [&](auto height, index_t n) __attribute__((always_inline)) {
        register_tile<decltype(height)::value, kVectors, Step::kWidth, Step::kUnroll>(
            x + n * x_row, x_row, 1, panel, kVectors * Step::kWidth, y + n * y_row + j, y_row, depth, k > 0);
      });
    };
    index_t j = 0;
    for (; j + kSpan <= patch.outputs; j += kSpan) tiles(Height<Step::kVectors>{}, j);
    if constexpr (Step::kB % kSpan != 0 || Step::kOutputs % kSpan != 0) {
      for (; j < patch.outputs; j += Step::kWidth) tiles(Height<1>{}, j);
    }
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to, const Patch& patch) {
    if (is_direct(to, patch)) return;
    for (index_t n = 0; n < from.rows; ++n) {
      store_run<Step>(to.sink.at(n * to.y_row, n * to.z_row), results + n * kRow, to.y_column, to.z_column, 0,
                      patch.outputs);
    }
  }
};

// Lanes along the slices, of which there is a vector at least: products of vectors. X in scratch is [n][k][lanes],
// results are [vector of l][n][j][lanes]. The last vector of l may overlap the one before it.
template <class Step>
struct AlongSlices {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static constexpr int kWidth = Step::kWidth;
  static constexpr index_t kVectorPanels = index_t(Step::kC) * Step::kOutputs * kWidth;
  static constexpr index_t kRow = index_t(Step::kOutputs) * kWidth, kVectorResults = Step::kRowTile * kRow;

  // Where in the patch a vector of l begins, and at which of its lanes its own results do.
  static index_t start(const Patch& patch, index_t l) {
    return patch.slice + l + kWidth <= Step::kD ? l : Step::kD - kWidth - patch.slice;
  }

  // Panels [vector of l][tile of j][k][j][lanes].
  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    for (index_t l = 0; l < patch.slices; l += kWidth, panels += kVectorPanels) {
      for (index_t j = 0; j < patch.outputs; j += Step::kTile) {
        const index_t height = j + Step::kTile <= patch.outputs ? Step::kTile : patch.outputs - j;
        for (index_t q = 0; q < height; ++q) {
          const Element* from = weights.data + (j + q) * weights.j + start(patch, l) * weights.l;
          Compute* to = panels + (j * Step::kC + q) * kWidth;
          for (index_t k = 0; k < Step::kC; ++k) {
            copy_lanes(to + k * height * kWidth, from + k * weights.k, weights.l);
          }
        }
      }
    }
  }

  KRONOP_INLINE static void copy_lanes(Compute* to, const Element* from, index_t stride) {
    if (stride == 1) {
      convert_run<kWidth>(to, from);
    } else {
      for (int i = 0; i < kWidth; ++i) to[i] = convert<Compute>(from[i * stride]);
    }
  }

  static bool is_direct(const Output<Step>& to, const Patch& patch, index_t l) {
    return to.plain && to.y_column == 1 && start(patch, l) == l;
  }
  // Vectors one after the other, or lines of a cache apart: more would fall into fewer sets of it.
  static bool is_in_place(const Input<Element>& from) {
    return detail::is_same<Element, Compute> && from.column == 1 && Step::kD * sizeof(Element) <= 64;
  }

  static void multiply(Compute* state, Compute* results, const Compute* panels, const Input<Element>& from,
                       const Output<Step>& to, const Patch& patch, index_t k, index_t depth) {
    for (index_t l = 0; l < patch.slices; l += kWidth, panels += kVectorPanels, results += kVectorResults) {
      const Element* first = from.data + start(patch, l) * from.column;
      const Compute* x = state;
      index_t x_row = Step::kPitch, x_step = kWidth;
      if (!is_in_place(from)) {
        for (index_t n = 0; n < from.rows; ++n) {
          for (index_t p = 0; p < depth; ++p) {
            copy_lanes(state + n * Step::kPitch + p * kWidth, first + n * from.row + p * Step::kD * from.column,
                       from.column);
          }
        }
      } else if constexpr (detail::is_same<Element, Compute>) {
        x = first, x_row = from.row, x_step = Step::kD;
      }
      Compute* y = results;
      index_t y_row = kRow, y_column = kWidth;
      if constexpr (Step::kDirect) {
        if (is_direct(to, patch, l)) y = to.sink.y + l, y_row = to.y_row, y_column = Step::kD;
      }
      const auto tiles = [&](auto columns, index_t j) __attribute__((always_inline)) {
        constexpr int kColumns = decltype(columns)::value;
        const Compute* panel = panels + (j * Step::kC + k * kColumns) * kWidth;
        in_tiles<Step::kRows>(from.rows, [&](auto height, index_t n) __attribute__((always_inline)) {
          vector_tile<decltype(height)::value, kColumns, kWidth, Step::kUnroll>(
              x + n * x_row, x_row, x_step, panel, y + n * y_row + j * y_column, y_row, y_column, depth, k > 0);
        });
      };
      constexpr int kRest = Step::kB % Step::kTile;
      index_t j = 0;
      for (; j + Step::kTile <= patch.outputs; j += Step::kTile) tiles(Height<Step::kTile>{}, j);
      if constexpr (kRest > 0) {
        if (j < patch.outputs) tiles(Height<kRest>{}, j);
      }
    }
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to, const Patch& patch) {
    for (index_t l = 0; l < patch.slices; l += kWidth, results += kVectorResults) {
      if (is_direct(to, patch, l)) continue;
      const index_t stale = l - start(patch, l);
      for (index_t n = 0; n < from.rows; ++n) {
        for (index_t j = 0; j < patch.outputs; ++j) {
          const index_t feature = j * Step::kD + l;
          store_run<Step>(to.sink.at(n * to.y_row + feature * to.y_column, n * to.z_row + feature * to.z_column),
                          results + n * kRow + j * kWidth + stale, to.y_column, to.z_column, j * patch.slices + l,
                          kWidth - stale);
        }
      }
    }
  }
};

}  // namespace kronop::ksparse
