// A Kronecker-sparse product of one slice on AMX tiles, along the outputs (ksparse_amx.hpp).
#pragma once

#include "ksparse_tiles.hpp"

namespace kronop {
namespace ksparse {

// Rows of tiles are rows of X. Scratch memory has the rows of X that need padding to whole steps,
// and a block of results for streaming stores.
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

  __attribute__((noinline)) static void multiply(Compute* state, Compute* results,
                                                 const Compute* panels, const Input<Element>& from,
                                                 const Output<Step>& to, const Patch& patch,
                                                 index_t, index_t, const Element* next) {
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
      const packed::Finished<Step> finished{to.sink,  to.y_row,    to.y_column,
                                            to.z_row, to.z_column, from.rows};
      if (from.rows <= packed::kTile)
        return sweep_few<kOutputs, packed::kTile>(engine, from, tiles, staged, finished);
      if (from.rows < packed::kPitch)
        return sweep_few<kOutputs, packed::kPitch>(engine, from, tiles, staged, finished);
      const auto sweep = [&](index_t row, index_t rows, const auto& sink) {
        packed::LastSweep<Step::kC, kOutputs, packed::kPitch, Element>::run(
            engine, from.data + row * from.row, from.row, from.column, rows, tiles, staged, sink);
      };
      if constexpr (Step::kDirect) {
        if (to.sink.plain && to.y_column == 1) {
          if (!to.sink.stream)
            return sweep(0, from.rows, typename Common::PlainRows{to.sink.y, to.y_row});
          auto* held = reinterpret_cast<typename Step::Output*>(results);
          for (index_t block = 0; block < block_count(from.rows, packed::kPitch); ++block) {
            const index_t row = block_start(block, from.rows, packed::kPitch);
            sweep(row, packed::kPitch, typename Common::PlainRows{held, kOutputs});
            packed::copy_rows_past(to.sink.y + row * to.y_row, to.y_row, held, packed::kPitch,
                                   kOutputs);
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

  // For weights that are contiguous along k and have whole units: squares of units are transposed.
  template <int kOutputs>
  static void pack_rows(Element* to, const Weights<Element>& weights) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      const Element* row = weights.data + j * weights.j + k;
      typename Units::Type square[packed::kTile];
      if (k + Common::kLine <= Step::kC) {
        // A square may have more lines than the step is deep; products do not read those.
        KRONOP_UNROLL
        for (int i = 0; i < packed::kTile; ++i) {
          square[i] = bit_cast<typename Units::Type>(Units::load_numbers(row + i * weights.j));
        }
      } else {
        const index_t bytes = Common::count(k) * sizeof(Element);
        __builtin_memset(square, 0, sizeof(square));
        for (int i = 0; i < packed::kTile; ++i)
          __builtin_memcpy(&square[i], row + i * weights.j, bytes);
      }
      transpose(square);
      KRONOP_UNROLL
      for (int i = 0; i < packed::kTile; ++i) store(tile + i * Common::kLine, square[i]);
    });
  }

  // For weights that are contiguous along j: a line interleaves kPack runs, one for each number of
  // a unit.
  template <int kOutputs>
  static void pack_columns(Element* to, const Weights<Element>& weights) {
    Common::template each_tile<kOutputs>(to, [&](Element* tile, index_t j, index_t k) {
      const Element* columns = weights.data + j + k * weights.k;
      const index_t units = Common::count(k) / Common::kPack;
      for (index_t i = 0; i < units; ++i) {
        store(tile + i * Common::kLine,
              Units::load_runs(columns + i * Common::kPack * weights.k, weights.k));
      }
    });
  }

  // Multiplies at most kRows rows, padded with rows of zeros, whose results `finished` does not
  // store.
  template <int kOutputs, int kRows>
  static void sweep_few(packed::TileEngine& engine, const Input<Element>& from,
                        const Element* tiles, Element* staged,
                        const packed::Finished<Step>& finished) {
    __builtin_memset(staged, 0, kRows * Common::kDepth.padded() * sizeof(Element));
    packed::stage_rows<Step::kC>(staged, from.data, from.row, from.column, int(from.rows));
    packed::LastSweep<Step::kC, kOutputs, kRows, Element>::run_staged(engine, staged, tiles,
                                                                      finished);
  }
};

}  // namespace ksparse
}  // namespace kronop
