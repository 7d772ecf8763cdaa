// A Kronecker-sparse product on AMX tiles, along the batch (ksparse_amx.hpp).
#pragma once

#include "ksparse_tiles.hpp"

namespace kronop {
namespace ksparse {

// Columns of tiles are rows of X. X in scratch memory is units [block of lanes][k /
// kPack][l][lanes]; results are as those of AlongBatch.
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
          return pack_slices<kOutputs>(tiles, weights, patch.slice);
        }
      }
      Common::template pack_any<true, kOutputs>(tiles, weights);
    });
  }

  __attribute__((noinline)) static void multiply(Compute* state, Compute* results,
                                                 const Compute* panels, const Input<Element>& from,
                                                 const Output<Step>& to, const Patch& patch,
                                                 index_t, index_t, const Element*) {
    stage(state, from);
    const index_t whole = from.rows / kLanes, rest = from.rows % kLanes,
                  end = whole + (rest > kTile);
    packed::TileEngine engine;
    Common::sized(patch, [&](auto outputs) {
      constexpr int kOutputs = decltype(outputs)::value;
      blocks<kOutputs, kLanes>(engine, {state, results, panels}, from, to, 0, end);
      // The remaining rows, at most one tile of them.
      if (end * kLanes < from.rows)
        blocks<kOutputs, kTile>(engine, {state, results, panels}, from, to, end, end + 1);
    });
  }

  static void finish(const Compute* results, const Input<Element>& from, const Output<Step>& to,
                     const Patch& patch) {
    Way::finish(results, from, to, patch);
  }

 private:
  using Units = packed::Units<Element>;
  // Units along k that need no padding.
  static constexpr index_t kFull = Step::kC / kPack;
  // Numbers of one k in a vector of kPack x kTile numbers, if the features of a row are contiguous.
  static constexpr int kRun = Step::kD < kTile ? Step::kD : kTile;
  // Whether contiguous features fill such vectors: with all slices of several k (kSmall), or with
  // some slices of one k (kLarge).
  static constexpr bool kSmall = Way::kWhole && kTile % Step::kD == 0 && kFull * Step::kD >= kTile;
  static constexpr bool kLarge = Step::kSlices >= kTile && kFull > 0;

  struct Buffers {
    const Compute* state;
    Compute* results;
    const Compute* panels;
  };

  // ---- Weights ----

  // For contiguous weights [k][l] with few l: a vector of them is transposed to [l][k]; it is a
  // part of the line of every l.
  template <int kOutputs>
  static void pack_slices(Element* to, const Weights<Element>& weights, index_t slice) {
    constexpr index_t kEach = Units::kNumbers / Step::kD;
    each_line<kOutputs>(to, [&](Element* line, index_t j, index_t k, index_t count) {
      const Element* row = weights.data - slice + j * weights.j + k * Step::kD;
      index_t done = 0;
      for (; done + kEach <= count; done += kEach) {
        const auto turned =
            Units::template turned<Step::kD>(Units::load_numbers(row + done * Step::kD));
        const auto* parts =
            reinterpret_cast<const char*>(&turned) + slice * kEach * sizeof(Element);
        for (index_t l = 0; l < Step::kSlices; ++l) {
          __builtin_memcpy(line + l * kPanel + done, parts + l * kEach * sizeof(Element),
                           kEach * sizeof(Element));
        }
      }
      pack_numbers(line, row + slice, Step::kD, done, count);
    });
  }

  // For weights that are contiguous along many l: squares of units are transposed.
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
          if (i < full)
            square[i] = Units::load_runs(row + i * kPack * weights.k + start, weights.k);
        }
        transpose(square);
        KRONOP_UNROLL
        for (int i = 0; i < kTile; ++i) store(line + (start + i) * kPanel, square[i]);
      }
      pack_numbers(line, row, weights.k, full * kPack, count);
    });
  }

  // Calls action(line of the first l, its output, its first k, how many k there are) for every
  // line.
  template <int kOutputs, class Action>
  static KRONOP_INLINE void each_line(Element* to, const Action& action) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      for (int q = 0; q < packed::cut(kOutputs).size; ++q)
        action(tile + q * Common::kLine, j + q, k, Common::count(k));
    });
  }

  static KRONOP_INLINE void pack_numbers(Element* line, const Element* row, index_t step,
                                         index_t first, index_t end) {
    for (index_t k = first; k < end; ++k) {
      for (index_t l = 0; l < Step::kSlices; ++l) line[l * kPanel + k] = row[k * step + l];
    }
  }
  // The stride between the weights of neighbouring l.
  static constexpr index_t kPanel = Common::kPanel * kPack;

  // ---- X ----

  static constexpr index_t place(index_t unit, index_t l) {
    return unit * Step::kPitch + l * kLanes;
  }
  static index_t lane(index_t n) { return n / kLanes * kBlock + n % kLanes; }

  // Copies numbers k in [first, end) of the rows from `row` on, one by one.
  static void stage_numbers(Compute* state, const Input<Element>& from, index_t first, index_t end,
                            index_t row) {
    for (index_t n = row; n < from.rows; ++n) {
      for (index_t k = first; k < end; ++k) {
        for (index_t l = 0; l < Step::kSlices; ++l) {
          auto* unit = reinterpret_cast<Element*>(state + lane(n) + place(k / kPack, l));
          unit[k % kPack] = from.data[n * from.row + (k * Step::kD + l) * from.column];
        }
      }
    }
  }

  // For an X that is contiguous along the batch: copies whole vectors, and returns for how many
  // rows.
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

  // For an X that is contiguous along the features: squares of units are transposed.
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
            store_square(to, unit * Step::kSlices + start,
                         [&](int i) __attribute__((always_inline)) {
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

  // Transposes kTile units of kTile lanes, units_of(i) being those of lane i, and stores them as
  // units `start` and following.
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
        __builtin_memset(state + lane(n) + place(kFull, 0), 0,
                         (kBlock - place(kFull, 0)) * sizeof(Compute));
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

  // Multiplies blocks [first, end) of kColumns lanes each.
  template <int kOutputs, int kColumns>
  static void blocks(packed::TileEngine& engine, const Buffers& at, const Input<Element>& from,
                     const Output<Step>& to, index_t first, index_t end) {
    if (first == end) return;
    constexpr packed::Shape kShape{packed::cut(kOutputs), packed::cut(kColumns), kDepth.depth()};
    constexpr index_t kLine = Step::kPitch * packed::kUnitBytes, kRow = Step::kSlices * kLanes;
    engine.template begin<kShape>();
    for (index_t l = 0; l < Step::kSlices; ++l) {
      const auto* tiles = reinterpret_cast<const Element*>(at.panels + l * Common::kPanel);
      for (index_t block = first; block < end; ++block) {
        const packed::Operand lines{at.state + block * kBlock + l * kLanes, kLine,
                                    packed::kLineBytes, kDepth.depth() * kLine};
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
        into_memory<kShape, kOutputs>(
            tiles, lines, at.results + block * Step::kOutputs * kRow + l * kLanes, kRow);
      }
    }
  }

  template <packed::Shape kShape, int kOutputs>
  static KRONOP_INLINE void into_memory(const Element* tiles, const packed::Operand& lines,
                                        Compute* y, index_t row) {
    for (index_t q = 0; q < kShape.rows.blocks(kOutputs); ++q) {
      packed::TileEngine::block<kShape>(packed::factor_operand<Step::kC, kOutputs>(tiles, q), lines,
                                        kDepth.steps(), y + kShape.rows.start(q, kOutputs) * row,
                                        row);
    }
  }

  template <packed::Shape kShape, int kOutputs>
  static KRONOP_INLINE void into_rows(packed::TileEngine& engine, const Element* tiles,
                                      const packed::Operand& lines, const packed::Rows& rows) {
    for (index_t q = 0; q < kShape.rows.blocks(kOutputs); ++q) {
      packed::one_block<kShape, Compute>(
          engine, packed::factor_operand<Step::kC, kOutputs>(tiles, q), lines, kDepth.steps(),
          {kShape.rows.start(q, kOutputs), 0, 0, 0}, rows);
    }
  }
};

}  // namespace ksparse
}  // namespace kronop
