// Kronecker matmul: passes over a tile of rows, each of which contracts adjacent digits in blocks
// that stay in the nearest caches.
//
// In a pass, the columns of a row are (lead, contracted, trail). A block has whole fibers (all
// contracted elements) of kLanes lanes. What a lane is depends on kPassKind:
//   0  a row and a leading index (trail is 1); blocks are transposed when loaded and stored
//   1  a trailing index of one row
//   2  a row
//   3  no lanes (trail is 1): a block is kLanes contiguous fibers of a row. Nothing is transposed,
//      and the last digit is contracted with vectors along its outputs.
// Between passes the tile is in scratch memory: as (rows, columns), padded by kPad elements after
// every `trail` columns of the pass that reads it, or as (columns, rows) if lanes are rows.
#pragma once

#include "kron_parameters.hpp"
#include "kron_products.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop {
namespace kron {

// A block of a pass in memory: the addresses of its lanes, and the stride of a fiber's elements.
template <int kLanes>
struct Place {
  Lanes<kLanes> lanes;
  index_t base, step;
};

// Strides from one element of a fiber to the next, and from one leading index to the next.
struct Steps {
  index_t element, lead;
};
template <class T>
KRONOP_INLINE Steps steps_before(const View<T>& view, const Extents& extents) {
  const index_t element = extents.trail * view.column + extents.pad;
  return {element, extents.contracted * element};
}
template <class T>
KRONOP_INLINE Steps steps_after(const View<T>& view, const Extents& extents, index_t pad) {
  const index_t element = extents.trail * view.column;
  return {element, extents.produced * element + pad};
}

template <int kLanes, class T>
KRONOP_INLINE void place_block(Place<kLanes>& place, const View<T>& view, int kind,
                               const Extents& extents, const Steps& steps, index_t outer,
                               const Block& block) {
  const index_t span = steps.lead;
  place.step = steps.element;
  if (kind == kRowsAndLead) {
    place.base = 0;
    place_lanes(place.lanes, block, extents.lead, view.row, span);
  } else if (kind == kTrail) {
    place.base = outer / extents.lead * view.row + outer % extents.lead * span;
    place_lanes(place.lanes, block, 1, view.column, 0);
  } else {
    place.base = outer / extents.trail * span + outer % extents.trail * view.column;
    place_lanes(place.lanes, block, 1, view.row, 0);
  }
}

// Prefetches what a block of `lanes` different lanes reads: contiguous runs along the lanes, or
// along the fibers. Nothing is prefetched if neither of them is contiguous.
template <index_t kTiles, int kLanes, class T>
KRONOP_INLINE Ahead ahead_of(const T* base, const Place<kLanes>& place, index_t elements,
                             index_t lanes) {
  const index_t size = sizeof(T);
  if (place.lanes.contiguous) {
    return Ahead(base + place.lanes.offset[0], kLanes * size, place.step * size, elements, kTiles);
  }
  if (place.step != 1) return Ahead();
  const index_t apart = place.lanes.offset[1] - place.lanes.offset[0];
  return Ahead(base + place.lanes.offset[0], elements * size, apart * size, lanes, kTiles);
}

// From source to sink: the products of a block of lanes. If lanes are contiguous, the first product
// may read the source in place, and the last one may store to the sink directly.
template <class Step, int kPass, class Source, class Sink, class PlaceType>
KRONOP_INLINE void run_lanes(const Source* source, const PlaceType& from, const Sink& sink,
                             const PlaceType& to, const PlaceType& other, const Block& block,
                             const Scratch<typename Step::Compute>& scratch) {
  using Compute = typename Step::Compute;
  using Own = Lane<Step, kPass>;
  using All = Products<Step, kPass, Compute>;
  constexpr Extents extents = kTables<Step>.pass[kPass];
  const All products{scratch};
  Lined<const Compute> in{scratch.state[0], Own::kLanes};
  bool loaded = false;
  if constexpr (detail::is_same<Source, Compute>) {
    loaded = from.lanes.contiguous &&
             stays_near<DigitOf<Step, All::kFirst>, Compute>(Step::kRight[All::kFirst] * from.step);
    if (loaded) in = {source + from.base + from.lanes.offset[0], from.step};
  }
  if (!loaded)
    load_block<Own>(scratch.state[0], source + from.base, from.lanes, from.step,
                    extents.contracted);
  Lined<Compute> out = products.state();
  bool stored = false;
  if constexpr (Sink::template kTakes<Compute>) {
    stored = sink.direct() && to.lanes.contiguous && block.begin == 0;
    if (stored) out = {sink.place() + to.base + to.lanes.offset[0], to.step};
  }
  products.all(Own::kLanes, in, out, stored && sink.past_caches(), FirstIndices<All::kCount>{});
  if (stored) return;
  store_block<Own>(sink.at(to.base, other.base), out.data, to.lanes, to.step, other.lanes,
                   other.step, extents.produced, block);
}

// The same for `count` whole fibers, which are contiguous in a row.
template <class Step, int kPass, class Source, class Sink>
KRONOP_INLINE void run_whole(index_t count, const Source* source, index_t from_column,
                             const Sink& sink, index_t base, index_t to_column, index_t other_base,
                             index_t other_column, const Scratch<typename Step::Compute>& scratch) {
  using Compute = typename Step::Compute;
  using All = Products<Step, kPass, Compute>;
  constexpr Extents extents = kTables<Step>.pass[kPass];
  const All products{scratch};
  const Compute* in = scratch.state[0];
  bool loaded = false;
  if constexpr (detail::is_same<Source, Compute>) {
    using D = DigitOf<Step, All::kFirst>;
    loaded = from_column == 1 &&
             (Step::kRight[All::kFirst] == 1 || stays_near<D, Compute>(Step::kRight[All::kFirst]));
    if (loaded) in = source;
  }
  if (!loaded) load_run(scratch.state[0], source, from_column, count * extents.contracted);
  Compute* out = products.state().data;
  bool stored = false;
  if constexpr (Sink::template kTakes<Compute>) {
    stored = sink.direct() && to_column == 1;
    if (stored) out = sink.place() + base;
  }
  products.all(count, {in, 0}, {out, 0}, stored && sink.past_caches(), FirstIndices<All::kCount>{});
  if (!stored)
    store_run<Step::kWidth>(sink.at(base, other_base), out, to_column, other_column,
                            count * extents.produced);
}

// Runs one of `shares` parts of a pass over a tile. Only the first pass prefetches: it reads X,
// later ones read scratch memory, which is in the caches.
template <class Step, int kPass, class Source, class Sink, class Target>
void run_pass(index_t rows, const View<const Source>& source, const Sink& sink,
              const View<Target>& target, const View<const Target>& other,
              const Scratch<typename Step::Compute>& scratch, index_t share, index_t shares) {
  constexpr int kLanes = Step::kLanes[kPass], kind = Step::kPassKind[kPass];
  constexpr Extents extents = kTables<Step>.pass[kPass];
  const index_t count = kind == kWhole         ? extents.lead
                        : kind == kRowsAndLead ? rows * extents.lead
                        : kind == kTrail       ? extents.trail
                                               : rows;
  const index_t outers = kind == kWhole ? rows
                         : kind == kRowsAndLead
                             ? 1
                             : extents.lead * (kind == kTrail ? rows : extents.trail);
  const index_t blocks = (count + kLanes - 1) / kLanes, all = outers * blocks;
  constexpr index_t kTiles = Products<Step, kPass, typename Step::Compute>::kTiles;
  const Steps before = steps_before(source, extents);
  const Steps after = steps_after(target, extents, kPadAfter<Step, kPass>);
  const Steps beside = steps_after(other, extents, kPadAfter<Step, kPass>);
  for (index_t item = all * share / shares; item < all * (share + 1) / shares; ++item) {
    const index_t outer = item / blocks, index = item % blocks;
    if constexpr (kind == kWhole) {
      const index_t first = index * kLanes,
                    fibers = first + kLanes <= count ? kLanes : count - first;
      if constexpr (kPass == 0) {
        if (scratch.asks && source.column == 1) {
          const index_t following = (item + 1) % blocks * kLanes * extents.contracted;
          const auto* next = source.data + (item + 1) / blocks * source.row + following;
          *scratch.ahead =
              Ahead(next, kLanes * extents.contracted * index_t(sizeof(*next)), 0, 1, kTiles);
        }
      }
      run_whole<Step, kPass>(fibers, source.data + outer * source.row + first * before.lead,
                             source.column, sink, outer * target.row + first * after.lead,
                             target.column, outer * other.row + first * beside.lead, other.column,
                             scratch);
    } else {
      Place<kLanes> from, to, also;
      const Block block = lane_block(index, count, kLanes);
      if constexpr (kPass == 0) {
        if (scratch.asks && item + 1 < all) {
          const Block following = lane_block((item + 1) % blocks, count, kLanes);
          place_block(from, source, kind, extents, before, (item + 1) / blocks, following);
          *scratch.ahead =
              ahead_of<kTiles>(source.data + from.base, from, extents.contracted, following.end);
        }
      }
      place_block(from, source, kind, extents, before, outer, block);
      place_block(to, target, kind, extents, after, outer, block);
      place_block(also, other, kind, extents, beside, outer, block);
      run_lanes<Step, kPass>(source.data, from, sink, to, also, block, scratch);
    }
  }
}

// The buffer between pass - 1 and `pass`.
template <class Step>
KRONOP_INLINE View<typename Step::Compute> middle_view(
    const Scratch<typename Step::Compute>& scratch, int pass) {
  const Extents& extents = kTables<Step>.pass[pass];
  typename Step::Compute* data = scratch.middle[(pass - 1) % 2];
  if (Step::kPassKind[0] == kRows) return {data, 1, Step::kRowTile};
  return {data, extents.lead * extents.contracted * (extents.trail + extents.pad), 1};
}

template <class T>
KRONOP_INLINE View<const T> constant(const View<T>& view) {
  return {view.data, view.row, view.column};
}

// Runs the passes from kPass on over a tile of `rows` rows, or one of `shares` parts of each pass.
template <class Step, int kPass = 0, class Source, class Y>
void run_tile(index_t rows, const View<const Source>& source, const OutputSink<Step>& sink,
              const View<Y>& y, const View<const Y>& z,
              const Scratch<typename Step::Compute>& scratch, index_t share, index_t shares) {
  using Compute = typename Step::Compute;
  if constexpr (kPass == Step::kPasses - 1) {
    run_pass<Step, kPass>(rows, source, sink, y, z, scratch, share, shares);
  } else {
    const View<Compute> middle = middle_view<Step>(scratch, kPass + 1);
    run_pass<Step, kPass>(rows, source, MiddleSink<Compute>{middle.data}, middle, constant(middle),
                          scratch, share, shares);
    if (shares > 1) wait_for_team();
    run_tile<Step, kPass + 1>(rows, constant(middle), sink, y, z, scratch, share, shares);
  }
}

// The addresses of one batch item's operands, relative to the parameters' pointers.
template <int kFactors>
struct Item {
  index_t x, z, y, factors[kFactors];
};

// Returns whether the factors differ from those of the previous item.
template <int kFactors, class Parameters>
KRONOP_INLINE bool find_item(Item<kFactors>& item, const Parameters& parameters, index_t index) {
  Item<kFactors> found{};
  for (int d = kBatchDimensions - 1; d >= 0; --d) {
    const index_t i = index % parameters.batch[d];
    index /= parameters.batch[d];
    found.x += i * parameters.x_batch[d];
    found.z += i * parameters.z_batch[d];
    found.y += i * parameters.y_batch[d];
    for (int f = 0; f < kFactors; ++f) {
      found.factors[f] += i * parameters.factor_batch[f * kBatchDimensions + d];
    }
  }
  bool changed = false;
  for (int f = 0; f < kFactors; ++f) changed |= found.factors[f] != item.factors[f];
  item = found;
  return changed;
}

template <class Parameters>
KRONOP_INLINE index_t tile_count(const Parameters& parameters) {
  index_t items = (parameters.rows + parameters.row_tile - 1) / parameters.row_tile;
  for (index_t extent : parameters.batch) items *= extent;
  return items;
}

// Calls run(rows, x, y, z) for tiles [first, end), numbered over all batch items, and before it
// pack(offsets of the factors) if the factors differ from those of the previous tile.
template <class Step, class Parameters, class Pack, class Run>
KRONOP_INLINE void each_tile(const Parameters& parameters, index_t first, index_t end,
                             const Pack& pack, const Run& run) {
  using Element = typename Step::Element;
  using Output = typename Step::Output;
  const index_t tiles = (parameters.rows + parameters.row_tile - 1) / parameters.row_tile;
  const index_t* xs = parameters.x_strides;
  const index_t* ys = parameters.y_strides;
  const index_t* zs = parameters.z_strides;
  Item<Step::kFactors> item{};
  index_t current = -1;
  for (index_t index = first; index < end; ++index) {
    if (index / tiles != current) {
      const bool changed = find_item(item, parameters, index / tiles);
      if (changed || current < 0) pack(item.factors);
      current = index / tiles;
    }
    const index_t row = index % tiles * parameters.row_tile;
    const index_t rows =
        row + parameters.row_tile < parameters.rows ? parameters.row_tile : parameters.rows - row;
    const auto* source = static_cast<const Output*>(parameters.z);
    run(rows,
        View<const Element>{static_cast<const Element*>(parameters.x) + item.x + row * xs[0], xs[0],
                            xs[1]},
        View<Output>{static_cast<Output*>(parameters.y) + item.y + row * ys[0], ys[0], ys[1]},
        View<const Output>{source ? source + item.z + row * zs[0] : nullptr, zs[0], zs[1]});
  }
}

// Runs tiles [first, end): each as a whole, or one of `shares` parts of each.
template <class Step, class Parameters>
void run_tiles(const Parameters& parameters, index_t share, index_t shares, index_t first,
               index_t end) {
  Ahead ahead;
  const auto scratch = scratch_of<Step>(parameters, share, ahead);
  const bool together = parameters.together != 0;
  const auto pack = [&](const index_t* offsets) {
    if (!together) return pack_factors<Step>(parameters, offsets, scratch.panels, 0, 1);
    if (shares > 1) wait_for_team();  // Others may still read the panels of the previous factors.
    pack_factors<Step>(parameters, offsets, scratch.panels, share, shares);
    if (shares > 1) wait_for_team();
  };
  each_tile<Step>(
      parameters, first, end, pack, [&](index_t rows, const auto& x, const auto& y, const auto& z) {
        const OutputSink<Step> sink{typename Step::Epilogue(parameters.scalars),
                                    y.data,
                                    z.data,
                                    nullptr,
                                    parameters.plain != 0,
                                    parameters.stream != 0};
        run_tile<Step>(rows, x, sink, y, z, scratch, together ? share : 0, together ? shares : 1);
        // The first pass of the next tile overwrites buffers that other threads may still read.
        if (together && shares > 1 && Step::kPasses > 1) wait_for_team();
      });
  if (parameters.stream) stream_end();
}

}  // namespace kron

template <class Decided, class Parameters>
int kron_matmul(const Parameters& parameters, bool alone) {
  using Step = kron::PassStep<Decided>;
  const index_t items = kron::tile_count(parameters);
  if (parameters.together) {
    as_team(parameters.threads, alone, [&](index_t share, index_t shares) {
      kron::run_tiles<Step>(parameters, share, shares, 0, items);
    });
  } else {
    share_out(items, parameters.threads, alone, [&](index_t share, index_t first, index_t end) {
      kron::run_tiles<Step>(parameters, share, 1, first, end);
    });
  }
  return 0;
}

}  // namespace kronop
