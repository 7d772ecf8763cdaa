// Kronecker-sparse products of bf16 and int8 on AMX tiles: two more ways beside those of ksparse_ways.hpp.
//
// Along the outputs, where there is one slice and X is contiguous along the features: rows of X are the left operand
// and read where they are, weights lie in lines. Along the batch everything else: weights are the left operand, X lies
// in lines of *units*, which are kPack numbers that are neighbours along k. Tiles leave their sums in Y or in scratch,
// where AlongBatch takes them up.
//
// What fills up k to whole steps is 0 in weights and in X: in one alone, an infinity in the other would become a NaN.
#pragma once

#include "kronop_x86/amx_results.hpp"
#include "kronop_x86/ksparse.hpp"
#include "kronop_x86/units.hpp"

namespace kronop {
namespace ksparse {

// What both ways have in common.
template <class Step>
struct Tiles {
  using Compute = typename Step::Compute;
  using Element = typename Step::Element;
  static_assert(detail::is_same<Compute, packed::SumOf<Element>> && sizeof(Compute) == packed::kUnitBytes);
  static constexpr packed::DepthOf<Element> kDepth{Step::kC};
  static constexpr int kPack = packed::kPackOf<Element>;
  // Of the weights of one i and l, in units.
  static constexpr index_t kPanel = packed::factor_numbers<Element>(Step::kC, Step::kOutputs) / kPack;
  // Whether results without an epilogue are rounded sums.
  static constexpr bool kRounds =
      Step::kDirect && detail::is_same<Compute, float> && detail::is_same<typename Step::Output, bfloat16_t>;

  // action(outputs of the patch as a type): there are but two sizes of patches.
  template <class Action>
  static KRONOP_INLINE void sized(const Patch& patch, const Action& action) {
    constexpr int kRest = Step::kB % Step::kOutputs;
    if constexpr (kRest > 0) {
      if (patch.outputs == kRest) return action(Constant<kRest>{});
    }
    action(Constant<Step::kOutputs>{});
  }

  // Weights number by number, whatever their strides.
  template <bool kLeft, int kOutputs>
  static void pack_any(Element* to, const Weights<Element>& weights) {
    for (index_t l = 0; l < Step::kSlices; ++l) {
      packed::pack_factor<kLeft, Step::kC, kOutputs>(to + l * kPanel * kPack, [&](index_t k, index_t j) {
        return weights.data[j * weights.j + k * weights.k + l * weights.l];
      });
    }
  }

  // action(tile of one step, its first output, its first k) for the tiles of a packed factor, filled with zeros.
  template <int kOutputs, class Action>
  static KRONOP_INLINE void each_tile(Element* to, const Action& action) {
    constexpr packed::Cut kCut = packed::cut(kOutputs);
    __builtin_memset(to, 0, kPanel * Step::kSlices * packed::kUnitBytes);
    for (index_t block = 0; block < kCut.blocks(kOutputs); ++block) {
      for (int tile = 0; tile < kCut.tiles(); ++tile) {
        const index_t j = kCut.start(block, kOutputs) + tile * kCut.second;
        for (index_t k = 0; k < kDepth.steps() * kDepth.numbers(); k += kDepth.numbers(), to += packed::kTile * kLine) {
          action(to, j, k);
        }
      }
    }
  }
  static constexpr int kLine = packed::kLineBytes / sizeof(Element);
  // Numbers of the step that begins at k.
  static KRONOP_INLINE index_t count(index_t k) {
    return Step::kC - k < kDepth.numbers() ? Step::kC - k : kDepth.numbers();
  }

  // What takes sums as rows of results without an epilogue.
  using PlainRows = typename packed::RowsOf<Compute, kRounds>::Type;
};

// Lines of tiles are rows; X in scratch are rows that are no whole steps where they are, results a block of rows on its
// way past the caches.
template <class Step>
struct TilesAlongOutputs : Tiles<Step> {
  using Common = Tiles<Step>;
  using typename Common::Compute;
  using typename Common::Element;
  static constexpr index_t kPanels = Common::kPanel;
  static_assert(Step::kD == 1);

  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    auto* tiles = reinterpret_cast<Element*>(panels);
    Common::sized(patch, [&](auto outputs) {
      constexpr int kOutputs = decltype(outputs)::value;
      if constexpr (kOutputs >= packed::kTile && Step::kC % Common::kPack == 0) {
        if (weights.k == 1) return pack_rows<kOutputs>(tiles, weights);
        if (weights.j == 1) return pack_columns<kOutputs>(tiles, weights);
      }
      Common::template pack_any<false, kOutputs>(tiles, weights);
    });
  }

  __attribute__((noinline)) static void multiply(Compute* state, Compute* results, const Compute* panels,
                                                 const Input<Element>& from, const Output<Step>& to,
                                                 const Patch& patch, index_t, index_t, const Element* next) {
    auto* staged = reinterpret_cast<Element*>(state);
    const auto* tiles = reinterpret_cast<const Element*>(panels);
    packed::TileEngine engine;
    if (next && from.column == 1) {
      constexpr index_t kSize = sizeof(Element);
      const index_t calls = parts(from.rows, packed::kPitch) * parts(patch.outputs, packed::kPitch);
      engine.ahead = Ahead(next, Step::kC * kSize, from.row * kSize, from.rows, calls);
    }
    Common::sized(patch, [&](auto outputs) {
      constexpr int kOutputs = decltype(outputs)::value;
      const packed::Finished<Step> finished{to.sink, to.y_row, to.y_column, to.z_row, to.z_column, from.rows};
      if (from.rows <= packed::kTile) return sweep_few<kOutputs, packed::kTile>(engine, from, tiles, staged, finished);
      if (from.rows < packed::kPitch) return sweep_few<kOutputs, packed::kPitch>(engine, from, tiles, staged, finished);
      const auto sweep = [&](index_t row, index_t rows, const auto& sink) {
        packed::LastSweep<Step::kC, kOutputs, packed::kPitch, Element>::run(
            engine, from.data + row * from.row, from.row, from.column, rows, tiles, staged, sink);
      };
      if constexpr (Step::kDirect) {
        if (to.sink.plain && to.y_column == 1) {
          if (!to.sink.stream) return sweep(0, from.rows, typename Common::PlainRows{to.sink.y, to.y_row});
          auto* held = reinterpret_cast<typename Step::Output*>(results);
          for (index_t block = 0; block < block_count(from.rows, packed::kPitch); ++block) {
            const index_t row = block_start(block, from.rows, packed::kPitch);
            sweep(row, packed::kPitch, typename Common::PlainRows{held, kOutputs});
            packed::copy_rows_past(to.sink.y + row * to.y_row, to.y_row, held, packed::kPitch, kOutputs);
          }
          return;
        }
      }
      sweep(0, from.rows, finished);
    });
  }

  static void finish(const Compute*, const Input<Element>&, const Output<Step>&, const Patch&) {}

 private:
  using Units = packed::Units<Element>;

  // Contiguous along k, of which there are whole units: squares of them are transposed.
  template <int kOutputs>
  static void pack_rows(Element* to, const Weights<Element>& weights) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      const Element* row = weights.data + j * weights.j + k;
      typename Units::Type square[packed::kTile];
      if (k + Common::kLine <= Step::kC) {
        // Lines that are no part of the step are not read.
        KRONOP_UNROLL
        for (int i = 0; i < packed::kTile; ++i) {
          square[i] = bit_cast<typename Units::Type>(Units::load_numbers(row + i * weights.j));
        }
      } else {
        const index_t bytes = Common::count(k) * sizeof(Element);
        __builtin_memset(square, 0, sizeof(square));
        for (int i = 0; i < packed::kTile; ++i) __builtin_memcpy(&square[i], row + i * weights.j, bytes);
      }
      transpose(square);
      KRONOP_UNROLL
      for (int i = 0; i < packed::kTile; ++i) store(tile + i * Common::kLine, square[i]);
    });
  }

  // Contiguous along j: a line is made of as many runs as a unit has numbers.
  template <int kOutputs>
  static void pack_columns(Element* to, const Weights<Element>& weights) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      const Element* columns = weights.data + j + k * weights.k;
      const index_t units = Common::count(k) / Common::kPack;
      for (index_t i = 0; i < units; ++i) {
        store(tile + i * Common::kLine, Units::load_runs(columns + i * Common::kPack * weights.k, weights.k));
      }
    });
  }

  // At most kRows rows; `finished` leaves out those of zeros.
  template <int kOutputs, int kRows>
  static void sweep_few(packed::TileEngine& engine, const Input<Element>& from, const Element* tiles, Element* staged,
                        const packed::Finished<Step>& finished) {
    __builtin_memset(staged, 0, kRows * Common::kDepth.padded() * sizeof(Element));
    packed::stage_rows<Step::kC>(staged, from.data, from.row, from.column, int(from.rows));
    packed::LastSweep<Step::kC, kOutputs, kRows, Element>::run_staged(engine, staged, tiles, finished);
  }
};

// Columns of tiles are rows of X, which in scratch are units [block of lanes][k / kPack][l][lanes]; results are
// AlongBatch's.
template <class Step>
struct TilesAlongBatch : Tiles<Step> {
  using Common = Tiles<Step>;
  using typename Common::Compute;
  using typename Common::Element;
  using Common::kDepth;
  using Common::kPack;
  using Way = AlongBatch<Step>;
  static constexpr int kLanes = Way::kLanes, kTile = packed::kTile;
  static constexpr index_t kPanels = Common::kPanel * Step::kSlices;
  static constexpr index_t kBlock = kDepth.lines() * index_t(Step::kPitch);
  static_assert(kLanes == packed::kPitch && Step::kWidth == kTile && Step::kDepth == Step::kC);

  static void pack(Compute* panels, const Weights<Element>& weights, const Patch& patch) {
    auto* tiles = reinterpret_cast<Element*>(panels);
    Common::sized(patch, [&](auto outputs) {
      constexpr int kOutputs = decltype(outputs)::value;
      if constexpr (Step::kSlices >= kTile) {
        if (weights.l == 1) return pack_stretches<kOutputs>(tiles, weights);
      } else if constexpr (kTile % Step::kD == 0) {
        if (weights.k == Step::kD && (weights.l == 1 || Step::kD == 1)) {
          return pack_groups<kOutputs>(tiles, weights, patch.slice);
        }
      }
      Common::template pack_any<true, kOutputs>(tiles, weights);
    });
  }

  __attribute__((noinline)) static void multiply(Compute* state, Compute* results, const Compute* panels,
                                                 const Input<Element>& from, const Output<Step>& to,
                                                 const Patch& patch, index_t, index_t, const Element*) {
    stage(state, from);
    const index_t whole = from.rows / kLanes, rest = from.rows % kLanes, end = whole + (rest > kTile);
    packed::TileEngine engine;
    Common::sized(patch, [&](auto outputs) {
      constexpr int kOutputs = decltype(outputs)::value;
      blocks<kOutputs, kLanes>(engine, {state, results, panels}, from, to, 0, end);
      // A tile's worth of rows at the end.
      if (end * kLanes < from.rows) blocks<kOutputs, kTile>(engine, {state, results, panels}, from, to, end, end + 1);
    });
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to, const Patch& patch) {
    Way::finish(results, from, to, patch);
  }

 private:
  using Units = packed::Units<Element>;
  // Units of which every number is there.
  static constexpr index_t kFull = Step::kC / kPack;
  // Numbers of one k in a vector that holds kPack of them, where rows are contiguous.
  static constexpr int kRun = Step::kD < kTile ? Step::kD : kTile;
  // Whether such rows fill vectors: whole groups of slices, or stretches of one.
  static constexpr bool kSmall = Way::kWhole && kTile % Step::kD == 0 && kFull * Step::kD >= kTile;
  static constexpr bool kLarge = Step::kSlices >= kTile && kFull > 0;

  struct Buffers {
    const Compute* state;
    Compute* results;
    const Compute* panels;
  };

  // ---- Weights ----

  // Numbers [k][l] in a row, few l: vectors of them are parts of the lines of all l.
  template <int kOutputs>
  static void pack_groups(Element* to, const Weights<Element>& weights, index_t slice) {
    constexpr index_t kEach = Units::kNumbers / Step::kD;
    each_line<kOutputs>(to, [&](Element* line, index_t j, index_t k, index_t count) {
      const Element* row = weights.data - slice + j * weights.j + k * Step::kD;
      index_t done = 0;
      for (; done + kEach <= count; done += kEach) {
        const auto turned = Units::template turned<Step::kD>(Units::load_numbers(row + done * Step::kD));
        const auto* parts = reinterpret_cast<const char*>(&turned) + slice * kEach * sizeof(Element);
        for (index_t l = 0; l < Step::kSlices; ++l) {
          __builtin_memcpy(line + l * kPanel + done, parts + l * kEach * sizeof(Element), kEach * sizeof(Element));
        }
      }
      pack_numbers(line, row + slice, Step::kD, done, count);
    });
  }

  // Contiguous along many l: squares of units are transposed.
  template <int kOutputs>
  static void pack_stretches(Element* to, const Weights<Element>& weights) {
    each_line<kOutputs>(to, [&](Element* line, index_t j, index_t k, index_t count) {
      const Element* row = weights.data + j * weights.j + k * weights.k;
      const index_t full = count / kPack;
      for (index_t l = 0; l < Step::kSlices; l += kTile) {
        const index_t start = l + kTile <= Step::kSlices ? l : Step::kSlices - kTile;
        typename Units::Type square[kTile] = {};
        KRONOP_UNROLL
        for (int i = 0; i < kTile; ++i) {
          if (i < full) square[i] = Units::load_runs(row + i * kPack * weights.k + start, weights.k);
        }
        transpose(square);
        KRONOP_UNROLL
        for (int i = 0; i < kTile; ++i) store(line + (start + i) * kPanel, square[i]);
      }
      pack_numbers(line, row, weights.k, full * kPack, count);
    });
  }

  // action(line of the first l, its output, its first k, how many there are).
  template <int kOutputs, class Action>
  static KRONOP_INLINE void each_line(Element* to, const Action& action) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      for (int q = 0; q < packed::cut(kOutputs).size; ++q) action(tile + q * Common::kLine, j + q, k, Common::count(k));
    });
  }

  static KRONOP_INLINE void pack_numbers(Element* line, const Element* row, index_t step, index_t first, index_t end) {
    for (index_t k = first; k < end; ++k) {
      for (index_t l = 0; l < Step::kSlices; ++l) line[l * kPanel + k] = row[k * step + l];
    }
  }
  // Numbers from one l's weights to the next.
  static constexpr index_t kPanel = Common::kPanel * kPack;

  // ---- X ----

  static constexpr index_t place(index_t unit, index_t l) { return unit * Step::kPitch + l * kLanes; }
  static index_t lane(index_t n) { return n / kLanes * kBlock + n % kLanes; }

  // Numbers k in [first, end) of rows from `row` on, one by one.
  static void stage_numbers(Compute* state, const Input<Element>& from, index_t first, index_t end, index_t row) {
    for (index_t n = row; n < from.rows; ++n) {
      for (index_t k = first; k < end; ++k) {
        for (index_t l = 0; l < Step::kSlices; ++l) {
          auto* unit = reinterpret_cast<Element*>(state + lane(n) + place(k / kPack, l));
          unit[k % kPack] = from.data[n * from.row + (k * Step::kD + l) * from.column];
        }
      }
    }
  }

  // Contiguous along the batch; returns how many rows are done.
  static index_t stage_contiguous(Compute* state, const Input<Element>& from) {
    const index_t step = Step::kD * from.column, end = from.rows / kTile * kTile;
    for (index_t unit = 0; unit < kFull; ++unit) {
      for (index_t l = 0; l < Step::kSlices; ++l) {
        const Element* x = from.data + unit * kPack * step + l * from.column;
        for (index_t n = 0; n < end; n += kTile) {
          store(state + lane(n) + place(unit, l), Units::load_runs(x + n, step));
        }
      }
    }
    return end;
  }

  // Contiguous along the features: squares of units are transposed.
  static void stage_transposed(Compute* state, const Input<Element>& from) {
    for (index_t n = 0; n < from.rows; n += kTile) {
      const Element* rows[kTile];
      for (index_t i = 0; i < kTile; ++i) {
        rows[i] = from.data + (n + i < from.rows ? n + i : from.rows - 1) * from.row;
      }
      Compute* to = state + lane(n);
      if constexpr (kLarge) {
        for (index_t unit = 0; unit < kFull; ++unit) {
          for (index_t l = 0; l < Step::kSlices; l += kTile) {
            const index_t start = l + kTile <= Step::kSlices ? l : Step::kSlices - kTile;
            const index_t at = unit * kPack * Step::kD + start;
            store_square(to, unit * Step::kSlices + start, [&](int i) __attribute__((always_inline)) {
              return Units::load_runs(rows[i] + at, Step::kD);
            });
          }
        }
      } else {
        constexpr index_t kCount = kFull * Step::kD;
        for (index_t g = 0; g < kCount; g += kTile) {
          const index_t start = g + kTile <= kCount ? g : kCount - kTile;
          store_square(to, start, [&](int i) __attribute__((always_inline)) {
            return Units::template of<kRun>(Units::load_numbers(rows[i] + start * kPack));
          });
        }
      }
    }
  }

  // Units from number `start` of a row's on: units_of(i) are those of lane i.
  template <class UnitsOf>
  static KRONOP_INLINE void store_square(Compute* to, index_t start, const UnitsOf& units_of) {
    typename Units::Type square[kTile];
    KRONOP_UNROLL
    for (int i = 0; i < kTile; ++i) square[i] = units_of(i);
    transpose(square);
    KRONOP_UNROLL
    for (int i = 0; i < kTile; ++i) {
      store(to + place((start + i) / Step::kSlices, (start + i) % Step::kSlices), square[i]);
    }
  }

  static void stage(Compute* state, const Input<Element>& from) {
    constexpr index_t kWhole = kFull * kPack;
    if constexpr (kFull < kDepth.lines()) {
      for (index_t n = 0; n < from.rows; n += kLanes) {
        __builtin_memset(state + lane(n) + place(kFull, 0), 0, (kBlock - place(kFull, 0)) * sizeof(Compute));
      }
      stage_numbers(state, from, kWhole, Step::kC, 0);
    }
    index_t done = 0;
    if (from.row == 1) {
      done = stage_contiguous(state, from);
    } else if constexpr (kSmall || kLarge) {
      if (from.column == 1) {
        stage_transposed(state, from);
        return;
      }
    }
    stage_numbers(state, from, 0, kWhole, done);
  }

  // ---- Products ----

  // Blocks [first, end) of kColumns lanes.
  template <int kOutputs, int kColumns>
  static void blocks(packed::TileEngine& engine, const Buffers& at, const Input<Element>& from, const Output<Step>& to,
                     index_t first, index_t end) {
    if (first == end) return;
    constexpr packed::Shape kShape{packed::cut(kOutputs), packed::cut(kColumns), kDepth.depth()};
    constexpr index_t kLine = Step::kPitch * packed::kUnitBytes, kRow = Step::kSlices * kLanes;
    engine.template begin<kShape>();
    for (index_t l = 0; l < Step::kSlices; ++l) {
      const auto* tiles = reinterpret_cast<const Element*>(at.panels + l * Common::kPanel);
      for (index_t block = first; block < end; ++block) {
        const packed::Operand lines{at.state + block * kBlock + l * kLanes, kLine, packed::kLineBytes,
                                    kDepth.depth() * kLine};
        if constexpr (Step::kDirect && kColumns == kLanes) {
          if (Way::is_direct(to, from, block)) {
            auto* y = to.sink.y + block * kLanes + l * to.y_column;
            const index_t row = Step::kD * to.y_column;
            if constexpr (Common::kRounds) {
              into_rows<kShape, kOutputs>(engine, tiles, lines, packed::Rows{y, row});
            } else {
              into_memory<kShape, kOutputs>(tiles, lines, y, row);
            }
            continue;
          }
        }
        into_memory<kShape, kOutputs>(tiles, lines, at.results + block * Step::kOutputs * kRow + l * kLanes, kRow);
      }
    }
  }

  template <packed::Shape kShape, int kOutputs>
  static KRONOP_INLINE void into_memory(const Element* tiles, const packed::Operand& lines, Compute* y, index_t row) {
    for (index_t q = 0; q < kShape.rows.blocks(kOutputs); ++q) {
      packed::TileEngine::block<kShape>(packed::factor_operand<Step::kC, kOutputs>(tiles, q), lines, kDepth.steps(),
                                        y + kShape.rows.start(q, kOutputs) * row, row);
    }
  }

  template <packed::Shape kShape, int kOutputs>
  static KRONOP_INLINE void into_rows(packed::TileEngine& engine, const Element* tiles, const packed::Operand& lines,
                                      const packed::Rows& rows) {
    for (index_t q = 0; q < kShape.rows.blocks(kOutputs); ++q) {
      packed::one_block<kShape, Compute>(engine, packed::factor_operand<Step::kC, kOutputs>(tiles, q), lines,
                                         kDepth.steps(), {kShape.rows.start(q, kOutputs), 0, 0, 0}, rows);
    }
  }
};

}  // namespace ksparse

template <class Step, class Parameters>
int ksparse_tiles_along_batch(const Parameters& parameters, bool alone) {
  return packed::allow_tiles() ? ksparse::matmul<ksparse::TilesAlongBatch<Step>, Step>(parameters, alone) : 1;
}

template <class Step, class Parameters>
int ksparse_tiles_along_outputs(const Parameters& parameters, bool alone) {
  return packed::allow_tiles() ? ksparse::matmul<ksparse::TilesAlongOutputs<Step>, Step>(parameters, alone) : 1;
}

}  // namespace kronop
