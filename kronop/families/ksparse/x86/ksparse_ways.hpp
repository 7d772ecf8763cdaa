// The two variants of a Kronecker-sparse product on vectors: lanes along the batch, or along the
// outputs j. Each packs the weights of a patch, copies X to where a register tile reads it, and
// stores its results in scratch memory or, if the epilogue would not change them (`direct`), in Y.
#pragma once

#include "kronop_x86/ahead.hpp"
#include "kronop_x86/tile.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop::ksparse {

// The unroll factor of the contraction.
// NOTE: where a tile fills the registers (6 x 2 on AVX2), GCC 12 spills sums of an unrolled loop.
inline constexpr int kUnroll = 1;

// The weights of an item: `blocks` of i from `block` on, kSlices of l from `slice` on, `outputs` of
// j from `output` on.
struct Patch {
  index_t block, blocks, slice, output, outputs;
};

// The weights W[j, k, l] of one i, from the first element of a patch on, and their strides.
template <class Element>
struct Weights {
  const Element* data;
  index_t j, k, l;
};

// Rows of X of one i from the first element of a patch: x[n, k, l].
template <class Element>
struct Input {
  const Element* data;
  index_t row, column, rows;
};

// Results of one i: y[n, j, l] from the first element of a patch.
template <class Step>
struct Output {
  OutputSink<Step> sink;
  index_t y_row, y_column, z_row, z_column;
};

// Whether register tiles of a step that may (kStreams) use streaming stores: every vector of Y has
// to be a whole cache line.
template <class Step>
KRONOP_INLINE bool fits_lines(const OutputSink<Step>& sink, const typename Step::Compute* y,
                              index_t row) {
  return sink.stream && reinterpret_cast<unsigned long long>(y) % 64 == 0 &&
         row * sizeof(*y) % 64 == 0;
}

// Prefetches the cache lines of Y that a tile will write, before its sums are computed: Y is often
// not in the caches.
template <int kRows, class Compute>
KRONOP_INLINE void expect_rows(const Compute* y, index_t row) {
  KRONOP_UNROLL
  for (int i = 0; i < kRows; ++i) __builtin_prefetch(y + i * row, 1);
}

// Packs the weights of outputs [first, first + width) and slice l as panel[k][pitch].
template <class Step>
void pack_outputs(typename Step::Compute* panel, index_t pitch,
                  const Weights<typename Step::Element>& weights, index_t first, index_t width,
                  index_t l) {
  constexpr index_t kRun = 128;
  typename Step::Compute run[kRun];
  for (index_t k = 0; k < Step::kC; k += kRun) {
    const index_t count = k + kRun <= Step::kC ? kRun : Step::kC - k;
    for (index_t q = 0; q < width; ++q) {
      load_run(run, weights.data + (first + q) * weights.j + k * weights.k + l * weights.l,
               weights.k, count);
      for (index_t i = 0; i < count; ++i) panel[(k + i) * pitch + q] = run[i];
    }
  }
}

// The variant with lanes along the batch: single weights times vectors of rows. In scratch memory,
//   X is        [block of lanes][k][l][lanes]
//   results are [block of lanes][j][l][lanes]
template <class Step>
struct AlongBatch {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static constexpr int kLanes = Step::kWidth * Step::kVectors;
  static constexpr index_t kBlock = index_t(Step::kDepth) * Step::kPitch;
  static constexpr index_t kSlicePanels = index_t(Step::kC) * Step::kOutputs;
  static constexpr index_t kPanels = kSlicePanels * Step::kSlices;
  static constexpr bool kWhole = Step::kSlices == Step::kD;
  static_assert(Step::kD % Step::kSlices == 0);

  // Panels [l][tile of j][k][j]; the last tile may have fewer j.
  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    for (index_t j = 0; j < patch.outputs; j += Step::kTile) {
      const index_t height = j + Step::kTile <= patch.outputs ? Step::kTile : patch.outputs - j;
      for (index_t l = 0; l < Step::kSlices; ++l) {
        pack_outputs<Step>(panels + l * kSlicePanels + j * Step::kC, height, weights, j, height, l);
      }
    }
  }

  static bool is_direct(const Output<Step>& to, const Input<Element>& from, index_t block) {
    return to.sink.plain && to.y_row == 1 && (block + 1) * kLanes <= from.rows;
  }
  // X is read in place if it is read only once.
  static bool is_in_place(const Input<Element>& from, index_t block) {
    return detail::is_same<Element, Compute> && Step::kB <= Step::kTile && from.row == 1 &&
           (block + 1) * kLanes <= from.rows;
  }

  static constexpr index_t place(index_t k, index_t l) { return k * Step::kPitch + l * kLanes; }

  static void stage_contiguous(Compute* state, const Input<Element>& from, index_t depth) {
    for (index_t k = 0; k < depth; ++k) {
      for (index_t l = 0; l < Step::kSlices; ++l) {
        const Element* x = from.data + (k * Step::kD + l) * from.column;
        Compute* to = state + place(k, l);
        index_t n = 0;
        for (; n + kLanes <= from.rows; n += kLanes, to += kBlock)
          convert_run<kLanes, Step::kWidth>(to, x + n);
        for (index_t i = 0; n + i < from.rows; ++i) to[i] = convert<Compute>(x[n + i]);
      }
    }
  }

  // For an X that is contiguous along the features. Squares of rows x features are transposed in
  // registers: over all k and l at once, or over l for every k if a patch has only some of the
  // slices.
  static void stage_transposed(Compute* state, const Input<Element>& from, index_t depth) {
    constexpr int kWidth = Step::kWidth;
    const index_t runs = kWhole ? 1 : depth, count = kWhole ? depth * Step::kD : Step::kSlices;
    for (index_t n = 0; n < from.rows; n += kWidth) {
      const Element* rows[kWidth];
      for (index_t i = 0; i < kWidth; ++i) {
        rows[i] = from.data + (n + i < from.rows ? n + i : from.rows - 1) * from.row;
      }
      Compute* to = state + n / kLanes * kBlock + n % kLanes;
      for (index_t run = 0; run < runs; ++run) {
        for (index_t g = 0; g < count; g += kWidth) {
          const index_t start = g + kWidth <= count ? g : count - kWidth;
          Vector<Compute, kWidth> square[kWidth];
          load_rows(square, rows, run * Step::kD + start);
          transpose(square);
          KRONOP_UNROLL
          for (int i = 0; i < kWidth; ++i) {
            store(to + place(run + (start + i) / Step::kSlices, (start + i) % Step::kSlices),
                  square[i]);
          }
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
      for (int i = 0; i < kWidth; ++i)
        convert_run<kWidth, kWidth>(staged + i * kWidth, rows[i] + start);
      KRONOP_UNROLL
      for (int i = 0; i < kWidth; ++i) square[i] = load<Compute, kWidth>(staged + i * kWidth);
    }
  }

  static void stage_any(Compute* state, const Input<Element>& from, index_t depth) {
    for (index_t n = 0; n < from.rows; ++n) {
      Compute* to = state + n / kLanes * kBlock + n % kLanes;
      for (index_t k = 0; k < depth; ++k) {
        for (index_t l = 0; l < Step::kSlices; ++l) {
          to[place(k, l)] =
              convert<Compute>(from.data[n * from.row + (k * Step::kD + l) * from.column]);
        }
      }
    }
  }

  static void stage(Compute* state, const Input<Element>& from, index_t depth) {
    if (from.row == 1) {
      if (!is_in_place(from, (from.rows - 1) / kLanes)) stage_contiguous(state, from, depth);
    } else if (from.column == 1 && (kWhole ? depth : 1) * Step::kSlices >= Step::kWidth) {
      stage_transposed(state, from, depth);
    } else {
      stage_any(state, from, depth);
    }
  }

  // Not inlined, because the constants of an epilogue would take registers from the tiles.
  __attribute__((noinline)) static void multiply(Compute* state, Compute* results,
                                                 const Compute* panels, const Input<Element>& from,
                                                 const Output<Step>& to, const Patch& patch,
                                                 index_t k, index_t depth, const Element*) {
    stage(state, from, depth);
    for (index_t l = 0; l < Step::kSlices; ++l) {
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
        const index_t row = direct ? Step::kD * to.y_column : Step::kSlices * kLanes;
        const Compute* panel = panels + l * kSlicePanels;
        const auto tile = [&](auto height, auto past, index_t j) __attribute__((always_inline)) {
          constexpr int kHeight = decltype(height)::value;
          constexpr bool kPast = decltype(past)::value != 0;
          if (!kPast) expect_rows<kHeight>(y + j * row, row);
          register_tile<kHeight, Step::kVectors, Step::kWidth, kUnroll, kPast>(
              panel + j * Step::kC + k * kHeight, 1, kHeight, x, step, y + j * row, row, depth,
              k > 0);
        };
        const auto all = [&](auto past) __attribute__((always_inline)) {
          constexpr int kRest = Step::kB % Step::kTile;
          index_t j = 0;
          for (; j + Step::kTile <= patch.outputs; j += Step::kTile)
            tile(Constant<Step::kTile>{}, past, j);
          if constexpr (kRest > 0) {
            if (j < patch.outputs) tile(Constant<kRest>{}, past, j);
          }
        };
        if constexpr (Step::kStreams) {
          if (direct && fits_lines<Step>(to.sink, y, row)) {
            all(Constant<1>{});
            continue;
          }
        }
        all(Constant<0>{});
      }
    }
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to,
                     const Patch& patch) {
    Lanes<kLanes> y, z;
    for (index_t block = 0; block * kLanes < from.rows; ++block) {
      if (is_direct(to, from, block)) continue;
      const index_t first = block * kLanes, left = from.rows - first;
      const Block lanes{first, 0, left < kLanes ? left : kLanes};
      place_lanes(y, lanes, 1, to.y_row, 0);
      place_lanes(z, lanes, 1, to.z_row, 0);
      const Compute* from_block = results + block * Step::kOutputs * Step::kSlices * kLanes;
      if constexpr (kWhole || Step::kSlices == 1) {
        constexpr index_t kStep = kWhole ? 1 : Step::kD;
        store_block<Step>(to.sink, from_block, y, kStep * to.y_column, z, kStep * to.z_column,
                          patch.outputs * Step::kSlices, lanes);
      } else {
        OutputSink<Step> sink = to.sink;
        for (index_t j = 0; j < patch.outputs; ++j) {
          store_block<Step>(sink, from_block + j * Step::kSlices * kLanes, y, to.y_column, z,
                            to.z_column, Step::kSlices, lanes);
          sink = sink.at(Step::kD * to.y_column, Step::kD * to.z_column);
          if (sink.bias) sink.bias += Step::kSlices;
        }
      }
    }
  }
};

// The variant with lanes along the outputs, for one slice (d = 1): a row's numbers times vectors of
// weights. X in scratch memory is [n][k], results are [n][j].
template <class Step>
struct AlongOutputs {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static constexpr int kSpan = Step::kWidth * Step::kVectors;
  static constexpr index_t kRow = (Step::kOutputs + Step::kWidth - 1) / Step::kWidth * Step::kWidth;
  static constexpr index_t kPanels = Step::kC * kRow;

  // Panels [span of j][k][j], then single vectors of j, the last of which is zero-padded.
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
    return to.sink.plain && to.y_column == 1 && patch.outputs % Step::kWidth == 0;
  }
  // NOTE: rows a multiple of 2 KB apart map to the same few sets of the first-level cache.
  static bool is_in_place(const Input<Element>& from) {
    return detail::is_same<Element, Compute> && from.column == 1 &&
           from.row * sizeof(Element) % 2048 != 0;
  }

  // Not inlined, because the constants of an epilogue would take registers from the tiles.
  __attribute__((noinline)) static void multiply(Compute* state, Compute* results,
                                                 const Compute* panels, const Input<Element>& from,
                                                 const Output<Step>& to, const Patch& patch,
                                                 index_t k, index_t depth, const Element* next) {
    Ahead ahead;
    if (next && from.column == 1) {
      constexpr index_t kSize = sizeof(Element);
      const index_t calls =
          (from.rows + Step::kTile - 1) / Step::kTile * ((patch.outputs + kSpan - 1) / kSpan);
      ahead = Ahead(next, depth * kSize, from.row * kSize, from.rows, calls);
    }
    const Compute* x = state;
    index_t x_row = Step::kPitch;
    if (!is_in_place(from)) {
      for (index_t n = 0; n < from.rows; ++n) {
        load_run(state + n * Step::kPitch, from.data + n * from.row, from.column, depth);
      }
    } else if constexpr (detail::is_same<Element, Compute>) {
      x = from.data, x_row = from.row;
    }
    Compute* y = results;
    index_t y_row = kRow;
    if constexpr (Step::kDirect) {
      if (is_direct(to, patch)) y = to.sink.y, y_row = to.y_row;
    }
    const auto tiles = [&](auto vectors, auto past, index_t j) __attribute__((always_inline)) {
      constexpr int kVectors = decltype(vectors)::value;
      constexpr bool kPast = decltype(past)::value != 0;
      const Compute* panel = panels + j * Step::kC + k * kVectors * Step::kWidth;
      in_tiles<Step::kTile>(from.rows, [&](auto height, index_t n) __attribute__((always_inline)) {
        constexpr int kHeight = decltype(height)::value;
        ahead.some();
        if (!kPast) expect_rows<kHeight>(y + n * y_row + j, y_row);
        register_tile<kHeight, kVectors, Step::kWidth, kUnroll, kPast>(
            x + n * x_row, x_row, 1, panel, kVectors * Step::kWidth, y + n * y_row + j, y_row,
            depth, k > 0);
      });
    };
    const auto all = [&](auto past) __attribute__((always_inline)) {
      index_t j = 0;
      for (; j + kSpan <= patch.outputs; j += kSpan) tiles(Constant<Step::kVectors>{}, past, j);
      if constexpr (Step::kB % kSpan != 0 || Step::kOutputs % kSpan != 0) {
        for (; j < patch.outputs; j += Step::kWidth) tiles(Constant<1>{}, past, j);
      }
    };
    if constexpr (Step::kStreams) {
      if (is_direct(to, patch) && fits_lines<Step>(to.sink, y, y_row)) return all(Constant<1>{});
    }
    all(Constant<0>{});
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to,
                     const Patch& patch) {
    if (is_direct(to, patch)) return;
    for (index_t n = 0; n < from.rows; ++n) {
      store_run<Step::kWidth>(to.sink.at(n * to.y_row, n * to.z_row), results + n * kRow,
                              to.y_column, to.z_column, patch.outputs);
    }
  }
};

}  // namespace kronop::ksparse
