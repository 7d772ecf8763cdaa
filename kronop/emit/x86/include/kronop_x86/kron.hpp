// Kronecker matmul: a tile of rows goes through passes, each of which applies a group of adjacent
// digits to blocks that stay in the nearest caches.
//
// In a pass a row's columns are (lead, group, trail). A block holds the whole group for kLanes lanes, and
// lanes are, by kPassKind: 0 the rows times the leading digits (trail is 1), transposed on the way in and
// out; 1 the trailing digits of one row; 2 the rows. In a pass of kind 3 (trail is 1) a block is kLanes
// whole groups as they lie in a row, and nothing is transposed: the last digit is applied along its
// outputs. Between passes the tile lies in scratch: (rows, columns), with kPad unused elements after every
// `trail` columns of the pass that reads it, or (columns, rows) where lanes are rows.
#pragma once

#include "kronop_x86/kron_step.hpp"
#include "kronop_x86/parallel.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {

inline constexpr int kBatchDimensions = 4;

// Strides in elements. Scratch of one thread is `slice` bytes, in whole cache lines: factor panels,
// two states, and one middle, or two from three passes on, of equal size. `together`: threads share the
// blocks of every tile rather than the tiles. `plain`: results are what the epilogue would make of them.
// `stream`: they are too many for the caches. `ahead`: so is X.
template <int kFactors, int kScalars, class Scalar>
struct KronParameters {
  const void* x;
  const void* z;
  void* y;
  void* workspace;
  index_t rows, row_tile, threads, together, plain, stream, ahead;
  index_t batch[kBatchDimensions];
  index_t x_strides[2], x_batch[kBatchDimensions];
  index_t z_strides[2], z_batch[kBatchDimensions];
  index_t y_strides[2], y_batch[kBatchDimensions];
  index_t slice;
  const void* factors[kFactors];
  index_t factor_row[kFactors], factor_column[kFactors], factor_batch[kFactors * kBatchDimensions];
  Scalar scalars[kScalars];
};

namespace kron {

enum Kind { kRowsAndLead = 0, kTrail = 1, kRows = 2, kWhole = 3 };

// Rows and columns of a tile in memory.
template <class T>
struct View {
  T* data;
  index_t row, column;
};

// A pass's lanes as those of a step, for transfers and sinks.
template <class Step, int kPass>
struct Lane : Step {
  static constexpr int kLanes = Step::kLanes[kPass], kVectors = kLanes / Step::kWidth;
};

// Pointers into one thread's slice, and what that thread reads next.
template <class Compute>
struct Scratch {
  Compute* panels;
  Compute* state[2];
  Compute* middle[2];
  Ahead* ahead;
  bool asks;
};

template <class Step, class Parameters>
KRONOP_INLINE Scratch<typename Step::Compute> scratch_of(const Parameters& parameters, index_t share,
                                                         Ahead& ahead) {
  using Compute = typename Step::Compute;
  constexpr index_t kPanelBytes = whole_lines(kTables<Step>.panels * sizeof(Compute));
  constexpr index_t kStateBytes = whole_lines(Step::kState * sizeof(Compute));
  const index_t middle_bytes = (parameters.slice - kPanelBytes - 2 * kStateBytes) / (Step::kPasses > 2 ? 2 : 1);
  char* base = static_cast<char*>(parameters.workspace);
  char* own = base + share * parameters.slice;
  char* middle = (parameters.together ? base : own) + kPanelBytes + 2 * kStateBytes;
  const auto at = [](char* pointer) { return reinterpret_cast<Compute*>(pointer); };
  return {at(own),
          {at(own + kPanelBytes), at(own + kPanelBytes + kStateBytes)},
          {at(middle), at(middle + middle_bytes)},
          &ahead,
          parameters.ahead != 0};
}

// Whether a tile's numbers from P places that are `step` elements apart stay in the nearest cache
// until the next outputs read them again. NOTE: with strides of powers of two they collide: 8 x 8
// factors 4 KiB apart took twice as long, P >= 32 two to four times.
template <class D, class Compute>
constexpr bool stays_near(index_t step) {
  if (D::kProduced <= D::kRows && D::kContracted < 8) return true;
  const index_t bytes = step * index_t(sizeof(Compute)), lines = bytes / 64;
  index_t apart = 1;
  while (apart < 64 && lines % (2 * apart) == 0) apart *= 2;
  const index_t places = bytes % 64 ? 64 : 64 / apart;
  return D::kContracted * D::kVectors * D::kWidth * index_t(sizeof(Compute)) / 64 <= 4 * places;
}

// All products of a pass on a block of `count` lanes (or groups), from `in` to `out` through the states.
template <class Step, int kPass, class Compute>
struct Products {
  static constexpr int kFirst = kPass ? Step::kPassEnd[kPass - 1] : 0, kCount = Step::kPassEnd[kPass] - kFirst;
  static constexpr bool kIsWhole = Step::kPassKind[kPass] == kWhole;

  const Scratch<Compute>& scratch;

  // Lanes (or, of whole groups, outputs) that are contiguous where the last product puts its results.
  static constexpr index_t kRun = !kIsWhole ? index_t(Step::kLanes[kPass])
                                  : Step::kRight[kFirst + kCount - 1] == 1
                                      ? index_t(Step::kProduced[Step::kOrder[kFirst + kCount - 1]])
                                      : index_t(Step::kRight[kFirst + kCount - 1]);

  // Whether results may go past the caches: where a tile's results begin and end, lines do.
  static constexpr index_t kLine = 64 / sizeof(Compute);
  static constexpr int kTileRun = [] {
    using D = DigitOf<Step, kFirst + kCount - 1>;
    return D::kVectors * D::kWidth;
  }();
  static constexpr bool kMayPass = kPass + 1 == Step::kPasses && kRun % kLine == 0 && kTileRun % kLine == 0;
  template <class Place>
  static KRONOP_INLINE bool fits_lines(const Place& out) {
    const index_t step = kIsWhole ? kRun : out.step;
    return step % kLine == 0 && reinterpret_cast<unsigned long long>(out.data) % 64 == 0;
  }

  template <int kIndex, bool kStream>
  KRONOP_INLINE void one(index_t count, const Lined<const Compute>& in, const Lined<Compute>& out) const {
    using D = DigitOf<Step, kIndex>;
    const Compute* panels = scratch.panels + kTables<Step>.panel[Step::kOrder[kIndex]];
    constexpr index_t kLeft = Step::kLeft[kIndex], kRight = Step::kRight[kIndex];
    Ahead& ahead = *scratch.ahead;
    if constexpr (!kIsWhole) {
      lane_product<D, kStream>(kLeft, kRight, Step::kLanes[kPass], in, out, panels, ahead);
    } else if constexpr (kRight == 1) {
      row_product<D, kStream>(count * kLeft, in.data, out.data, panels, ahead);
    } else if constexpr (kRight < D::kWidth) {
      static_assert(2 * kRight == D::kWidth && kLeft % 2 == 0 && !kStream);
      pair_product<D>(count * kLeft, in.data, out.data, panels, ahead);
    } else {
      lane_product<D, kStream>(count * kLeft, 1, kRight, Lined<const Compute>{in.data, kRight},
                               Lined<Compute>{out.data, kRight}, panels, ahead);
    }
  }
  // Register tiles of a product, about.
  template <int kIndex>
  static constexpr index_t tiles() {
    using D = DigitOf<Step, kIndex>;
    constexpr index_t kTile = index_t(D::kRows) * D::kVectors * D::kWidth;
    constexpr index_t kResults =
        index_t(Step::kLeft[kIndex]) * Step::kRight[kIndex] * D::kProduced * Step::kLanes[kPass];
    return (kResults + kTile - 1) / kTile;
  }
  template <int... kIndex>
  static constexpr index_t all_tiles(Indices<kIndex...>) {
    return (tiles<kFirst + kIndex>() + ...);
  }
  static constexpr index_t kTiles = all_tiles(FirstIndices<kCount>{});
  // Elements of a group that a product reads.
  template <int kIndex>
  static constexpr index_t held() {
    return index_t(Step::kLeft[kIndex]) * Step::kRight[kIndex] * DigitOf<Step, kIndex>::kContracted;
  }
  // The state that a product's results go to: the one that its operands are in, or the other one.
  template <int kAt>
  static constexpr int state_after() {
    if constexpr (kAt == 0) {
      return 1;
    } else {
      return Step::kInPlace[kFirst + kAt] ? state_after<kAt - 1>() : 1 - state_after<kAt - 1>();
    }
  }
  template <int... kIndex>
  KRONOP_INLINE void all(index_t count, Lined<const Compute> in, Lined<Compute> out, bool past_caches,
                         Indices<kIndex...>) const {
    const auto next = [&](auto index) __attribute__((always_inline)) {
      constexpr int kAt = decltype(index)::value;
      const Lined<Compute> state{scratch.state[state_after<kAt>()], Step::kLanes[kPass]};
      if constexpr (kAt + 1 < kCount) {
        one<kFirst + kAt, false>(count, in, state);
      } else if constexpr (kIsWhole && kPadAfter<Step, kPass> != 0) {
        // What is between passes always takes results at once: this is no state.
        constexpr index_t kNext = kTables<Step>.pass[kPass].produced + kPadAfter<Step, kPass>;
        for (index_t group = 0; group < count; ++group) {
          one<kFirst + kAt, false>(1, {in.data + group * held<kFirst + kAt>(), 0}, {out.data + group * kNext, 0});
        }
      } else {
        if constexpr (kMayPass) {
          if (past_caches && fits_lines(out)) return one<kFirst + kAt, true>(count, in, out);
        }
        one<kFirst + kAt, false>(count, in, out);
      }
      in = {state.data, state.step};
    };
    (next(Constant<kIndex>{}), ...);
  }
  // Where the results go that do not go to their place at once.
  Lined<Compute> state() const { return {scratch.state[state_after<kCount - 1>()], Step::kLanes[kPass]}; }
};

// One block of a pass in memory: lanes, and the steps from one group element to the next.
template <int kLanes>
struct Place {
  Lanes<kLanes> lanes;
  index_t base, step;
};

// Steps from one group element to the next, and from one leading index to the next.
struct Steps {
  index_t element, lead;
};
template <class T>
KRONOP_INLINE Steps steps_before(const View<T>& view, const Extents& extents) {
  const index_t element = extents.trail * view.column + extents.pad;
  return {element, extents.group * element};
}
template <class T>
KRONOP_INLINE Steps steps_after(const View<T>& view, const Extents& extents, index_t pad) {
  const index_t element = extents.trail * view.column;
  return {element, extents.produced * element + pad};
}

template <int kLanes, class T>
KRONOP_INLINE void place_block(Place<kLanes>& place, const View<T>& view, int kind, const Extents& extents,
                               const Steps& steps, index_t outer, const Block& block) {
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

// What a block of `lanes` different lanes reads: runs along its lanes, or along the group.
template <index_t kTiles, int kLanes, class T>
KRONOP_INLINE Ahead ahead_of(const T* base, const Place<kLanes>& place, index_t group, index_t lanes) {
  const index_t size = sizeof(T);
  if (place.lanes.contiguous) {
    return Ahead(base + place.lanes.offset[0], kLanes * size, place.step * size, group, kTiles);
  }
  if (place.step != 1) return Ahead();
  const index_t apart = place.lanes.offset[1] - place.lanes.offset[0];
  return Ahead(base + place.lanes.offset[0], group * size, apart * size, lanes, kTiles);
}

// A block of lanes: source -> products -> sink. Where lanes are contiguous, the first product may
// read the source itself, and the last one write to the sink.
template <class Step, int kPass, class Source, class Sink, class PlaceType>
KRONOP_INLINE void run_lanes(const Source* source, const PlaceType& from, const Sink& sink, const PlaceType& to,
                             const PlaceType& other, const Block& block,
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
  if (!loaded) load_block<Own>(scratch.state[0], source + from.base, from.lanes, from.step, extents.group);
  Lined<Compute> out = products.state();
  bool stored = false;
  if constexpr (Sink::template kTakes<Compute>) {
    stored = sink.direct() && to.lanes.contiguous && block.begin == 0;
    if (stored) out = {sink.place() + to.base + to.lanes.offset[0], to.step};
  }
  products.all(Own::kLanes, in, out, stored && sink.past_caches(), FirstIndices<All::kCount>{});
  if (stored) return;
  store_block<Own>(sink.at(to.base, other.base), out.data, to.lanes, to.step, other.lanes, other.step,
                   extents.produced, block);
}

// `count` whole groups, contiguous in a row: source -> products -> sink.
template <class Step, int kPass, class Source, class Sink>
KRONOP_INLINE void run_whole(index_t count, const Source* source, index_t from_column, const Sink& sink, index_t base,
                             index_t to_column, index_t other_base, index_t other_column,
                             const Scratch<typename Step::Compute>& scratch) {
  using Compute = typename Step::Compute;
  using All = Products<Step, kPass, Compute>;
  constexpr Extents extents = kTables<Step>.pass[kPass];
  const All products{scratch};
  const Compute* in = scratch.state[0];
  bool loaded = false;
  if constexpr (detail::is_same<Source, Compute>) {
    using D = DigitOf<Step, All::kFirst>;
    loaded = from_column == 1 && (Step::kRight[All::kFirst] == 1 || stays_near<D, Compute>(Step::kRight[All::kFirst]));
    if (loaded) in = source;
  }
  if (!loaded) load_run(scratch.state[0], source, from_column, count * extents.group);
  Compute* out = products.state().data;
  bool stored = false;
  if constexpr (Sink::template kTakes<Compute>) {
    stored = sink.direct() && to_column == 1;
    if (stored) out = sink.place() + base;
  }
  products.all(count, {in, 0}, {out, 0}, stored && sink.past_caches(), FirstIndices<All::kCount>{});
  if (!stored) store_run<Step::kWidth>(sink.at(base, other_base), out, to_column, other_column, count * extents.produced);
}

// One of `shares` parts of a pass over a tile. X is asked for ahead; what is between passes is near.
template <class Step, int kPass, class Source, class Sink, class Target>
void run_pass(index_t rows, const View<const Source>& source, const Sink& sink, const View<Target>& target,
              const View<const Target>& other, const Scratch<typename Step::Compute>& scratch, index_t share,
              index_t shares) {
  constexpr int kLanes = Step::kLanes[kPass], kind = Step::kPassKind[kPass];
  constexpr Extents extents = kTables<Step>.pass[kPass];
  const index_t count = kind == kWhole         ? extents.lead
                        : kind == kRowsAndLead ? rows * extents.lead
                        : kind == kTrail       ? extents.trail
                                               : rows;
  const index_t outers = kind == kWhole         ? rows
                         : kind == kRowsAndLead ? 1
                                                : extents.lead * (kind == kTrail ? rows : extents.trail);
  const index_t blocks = (count + kLanes - 1) / kLanes, all = outers * blocks;
  constexpr index_t kTiles = Products<Step, kPass, typename Step::Compute>::kTiles;
  const Steps before = steps_before(source, extents);
  const Steps after = steps_after(target, extents, kPadAfter<Step, kPass>);
  const Steps beside = steps_after(other, extents, kPadAfter<Step, kPass>);
  for (index_t item = all * share / shares; item < all * (share + 1) / shares; ++item) {
    const index_t outer = item / blocks, index = item % blocks;
    if constexpr (kind == kWhole) {
      const index_t first = index * kLanes, groups = first + kLanes <= count ? kLanes : count - first;
      if constexpr (kPass == 0) {
        if (scratch.asks && source.column == 1) {
          const index_t following = (item + 1) % blocks * kLanes * extents.group;
          const auto* next = source.data + (item + 1) / blocks * source.row + following;
          *scratch.ahead = Ahead(next, kLanes * extents.group * index_t(sizeof(*next)), 0, 1, kTiles);
        }
      }
      run_whole<Step, kPass>(groups, source.data + outer * source.row + first * before.lead, source.column, sink,
                             outer * target.row + first * after.lead, target.column,
                             outer * other.row + first * beside.lead, other.column, scratch);
    } else {
      Place<kLanes> from, to, also;
      const Block block = lane_block(index, count, kLanes);
      if constexpr (kPass == 0) {
        if (scratch.asks && item + 1 < all) {
          const Block following = lane_block((item + 1) % blocks, count, kLanes);
          place_block(from, source, kind, extents, before, (item + 1) / blocks, following);
          *scratch.ahead = ahead_of<kTiles>(source.data + from.base, from, extents.group, following.end);
        }
      }
      place_block(from, source, kind, extents, before, outer, block);
      place_block(to, target, kind, extents, after, outer, block);
      place_block(also, other, kind, extents, beside, outer, block);
      run_lanes<Step, kPass>(source.data, from, sink, to, also, block, scratch);
    }
  }
}

// The scratch between pass - 1 and `pass`.
template <class Step>
KRONOP_INLINE View<typename Step::Compute> middle_view(const Scratch<typename Step::Compute>& scratch, int pass) {
  const Extents& extents = kTables<Step>.pass[pass];
  typename Step::Compute* data = scratch.middle[(pass - 1) % 2];
  if (Step::kPassKind[0] == kRows) return {data, 1, Step::kRowTile};
  return {data, extents.lead * extents.group * (extents.trail + extents.pad), 1};
}

template <class T>
KRONOP_INLINE View<const T> constant(const View<T>& view) {
  return {view.data, view.row, view.column};
}

// The passes from kPass on over a tile of `rows` rows, or one of `shares` parts of each.
template <class Step, int kPass = 0, class Source, class Y>
void run_tile(index_t rows, const View<const Source>& source, const OutputSink<Step>& sink, const View<Y>& y,
              const View<const Y>& z, const Scratch<typename Step::Compute>& scratch, index_t share, index_t shares) {
  using Compute = typename Step::Compute;
  if constexpr (kPass == Step::kPasses - 1) {
    run_pass<Step, kPass>(rows, source, sink, y, z, scratch, share, shares);
  } else {
    const View<Compute> middle = middle_view<Step>(scratch, kPass + 1);
    run_pass<Step, kPass>(rows, source, MiddleSink<Compute>{middle.data}, middle, constant(middle), scratch, share,
                          shares);
    if (shares > 1) wait_for_team();
    run_tile<Step, kPass + 1>(rows, constant(middle), sink, y, z, scratch, share, shares);
  }
}

// Where one batch item's operands are, relative to the parameters' pointers.
template <int kFactors>
struct Item {
  index_t x, z, y, factors[kFactors];
};

// Returns whether the factors are other ones than before.
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

// Tiles [first, end), counted over all batch items: run(rows, x, y, z) for each, after pack(offsets of the
// factors) where these are other ones than before.
template <class Step, class Parameters, class Pack, class Run>
KRONOP_INLINE void each_tile(const Parameters& parameters, index_t first, index_t end, const Pack& pack,
                             const Run& run) {
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
    const index_t rows = row + parameters.row_tile < parameters.rows ? parameters.row_tile : parameters.rows - row;
    const auto* source = static_cast<const Output*>(parameters.z);
    run(rows, View<const Element>{static_cast<const Element*>(parameters.x) + item.x + row * xs[0], xs[0], xs[1]},
        View<Output>{static_cast<Output*>(parameters.y) + item.y + row * ys[0], ys[0], ys[1]},
        View<const Output>{source ? source + item.z + row * zs[0] : nullptr, zs[0], zs[1]});
  }
}

// Those tiles: all of each, or one of `shares` parts.
template <class Step, class Parameters>
void run_tiles(const Parameters& parameters, index_t share, index_t shares, index_t first, index_t end) {
  Ahead ahead;
  const auto scratch = scratch_of<Step>(parameters, share, ahead);
  const bool together = parameters.together != 0;
  const auto pack = [&](const index_t* offsets) { pack_factors<Step>(parameters, offsets, scratch.panels); };
  each_tile<Step>(parameters, first, end, pack, [&](index_t rows, const auto& x, const auto& y, const auto& z) {
    const OutputSink<Step> sink{typename Step::Epilogue(parameters.scalars), y.data, z.data, nullptr,
                                parameters.plain != 0, parameters.stream != 0};
    run_tile<Step>(rows, x, sink, y, z, scratch, together ? share : 0, together ? shares : 1);
    // The next tile's first pass writes what others may still read.
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
