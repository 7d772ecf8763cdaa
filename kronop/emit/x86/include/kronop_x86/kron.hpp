// Kronecker matmul: a tile of rows goes through passes, each of which applies a group of adjacent
// digits to states that stay in the nearest caches.
//
// In a pass a row's columns are (lead, group, trail). A state holds the whole group for kLanes
// lanes, and lanes are, by kPassKind: 0 the rows times the leading digits (trail is 1), 1 the
// trailing digits of one row, 2 the rows. Between passes the tile lies in scratch: (rows, columns),
// or (columns, rows) where lanes are rows.
#pragma once

#include "kronop_x86/parallel.hpp"
#include "kronop_x86/tile.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {

inline constexpr int kBatchDimensions = 4;

// Strides in elements. Scratch of one thread is `slice` bytes, in whole cache lines: factor panels,
// two states, and one middle, or two from three passes on, of equal size.
template <int kFactors, int kScalars, class Scalar>
struct KronParameters {
  const void* x;
  const void* z;
  void* y;
  void* workspace;
  index_t rows, row_tile, threads;
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

enum Kind { kRowsAndLead = 0, kTrail = 1, kRows = 2 };

// Rows and columns of a tile in memory.
template <class T>
struct View {
  T* data;
  index_t row, column;
};

// The extents of a pass over one row; `group` before the pass and `produced` after it.
struct Extents {
  index_t lead, group, produced, trail;
};

// What follows from the plan, computed by the compiler.
template <class Step>
struct Tables {
  Extents pass[Step::kPasses];
  index_t panel[Step::kDigits];
  index_t panels;

  constexpr Tables() : pass(), panel(), panels() {
    index_t size[Step::kDigits] = {}, offset = 0;
    for (int digit = 0; digit < Step::kDigits; ++digit) {
      size[digit] = Step::kContracted[digit];
      panel[digit] = offset;
      offset += panel_elements(Step::kContracted[digit], Step::kProduced[digit], Step::kTile[digit]);
    }
    panels = offset;
    for (int p = 0, first = 0; p < Step::kPasses; first = Step::kPassEnd[p++]) {
      pass[p] = extents(size, first, Step::kPassEnd[p]);
      for (int i = first; i < Step::kPassEnd[p]; ++i) size[Step::kOrder[i]] = Step::kProduced[Step::kOrder[i]];
    }
  }

 private:
  static constexpr Extents extents(const index_t* size, int first, int end) {
    int least = Step::kOrder[first], most = least;
    for (int i = first; i < end; ++i) {
      least = Step::kOrder[i] < least ? Step::kOrder[i] : least;
      most = Step::kOrder[i] > most ? Step::kOrder[i] : most;
    }
    Extents result{1, 1, 1, 1};
    for (int digit = 0; digit < least; ++digit) result.lead *= size[digit];
    for (int digit = least; digit <= most; ++digit) {
      result.group *= size[digit];
      result.produced *= Step::kProduced[digit];
    }
    for (int digit = most + 1; digit < Step::kDigits; ++digit) result.trail *= size[digit];
    return result;
  }
};

template <class Step>
inline constexpr Tables<Step> kTables{};

// A digit is the Kronecker product of one or more neighbouring factors; its (p, q) entry.
template <class Step, class Parameters>
KRONOP_INLINE typename Step::Compute digit_entry(const Parameters& parameters, const index_t* offsets, int digit,
                                                 index_t p, index_t q) {
  using Compute = typename Step::Compute;
  Compute product = Compute(1);
  for (int f = Step::kDigitFactor[digit + 1] - 1; f >= Step::kDigitFactor[digit]; --f) {
    const index_t row = p % Step::kFactorRows[f], column = q % Step::kFactorColumns[f];
    p /= Step::kFactorRows[f];
    q /= Step::kFactorColumns[f];
    const auto* data = static_cast<const typename Step::Element*>(parameters.factors[f]) + offsets[f];
    const auto entry =
        convert<Compute>(data[row * parameters.factor_row[f] + column * parameters.factor_column[f]]);
    product = f == Step::kDigitFactor[digit + 1] - 1 ? entry : product * entry;
  }
  return product;
}

template <class Step, class Parameters>
void pack_factors(const Parameters& parameters, const index_t* offsets, typename Step::Compute* panels) {
  using Compute = typename Step::Compute;
  for (int digit = 0; digit < Step::kDigits; ++digit) {
    Compute* to = panels + kTables<Step>.panel[digit];
    const int first = Step::kDigitFactor[digit];
    if (Step::kDigitFactor[digit + 1] - first == 1) {
      const auto* data = static_cast<const typename Step::Element*>(parameters.factors[first]) + offsets[first];
      const index_t row = parameters.factor_row[first], column = parameters.factor_column[first];
      pack_panels(to, Step::kContracted[digit], Step::kProduced[digit], Step::kTile[digit],
                  [&](index_t p, index_t q) { return convert<Compute>(data[p * row + q * column]); });
    } else {
      pack_panels(to, Step::kContracted[digit], Step::kProduced[digit], Step::kTile[digit],
                  [&](index_t p, index_t q) { return digit_entry<Step>(parameters, offsets, digit, p, q); });
    }
  }
}

// Pointers into one thread's slice.
template <class Compute>
struct Scratch {
  Compute* panels;
  Compute* state[2];
  Compute* middle[2];
};

template <class Step, class Parameters>
KRONOP_INLINE Scratch<typename Step::Compute> scratch_of(const Parameters& parameters, index_t share) {
  using Compute = typename Step::Compute;
  constexpr index_t kPanelBytes = whole_lines(kTables<Step>.panels * sizeof(Compute));
  constexpr index_t kStateBytes =
      whole_lines(index_t(Step::kPeak) * Step::kWidth * Step::kVectors * sizeof(Compute));
  const index_t middle_bytes = (parameters.slice - kPanelBytes - 2 * kStateBytes) / (Step::kPasses > 2 ? 2 : 1);
  char* base = static_cast<char*>(parameters.workspace) + share * parameters.slice;
  char* middle = base + kPanelBytes + 2 * kStateBytes;
  const auto at = [](char* pointer) { return reinterpret_cast<Compute*>(pointer); };
  return {at(base),
          {at(base + kPanelBytes), at(base + kPanelBytes + kStateBytes)},
          {at(middle), at(middle + middle_bytes)}};
}

// One block of a pass in memory: lanes, and the steps from one group element to the next.
template <int kLanes>
struct Place {
  Lanes<kLanes> lanes;
  index_t base, step;
};

template <int kLanes, class T>
KRONOP_INLINE void place_block(Place<kLanes>& place, const View<T>& view, int kind, const Extents& extents,
                               index_t group, index_t outer, const Block& block) {
  const index_t span = group * extents.trail * view.column;
  place.step = extents.trail * view.column;
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

// Applies the digits of a pass to one block: source -> states -> sink. Where lanes are contiguous, a
// first digit that reads everything once reads the source itself, and a last digit writes a middle
// itself. NOTE: reading the source once per block of outputs instead of a copy of it took 2 to 4
// times as long for P >= 32 in double: its strides are powers of two and collide in the cache.
template <class Step, class Source, class Sink, class PlaceType>
KRONOP_INLINE void run_block(int pass, const Source* source, const PlaceType& from, const Sink& sink,
                             const PlaceType& to, const PlaceType& other, const Block& block,
                             const Scratch<typename Step::Compute>& scratch) {
  using Compute = typename Step::Compute;
  constexpr int kLanes = Step::kWidth * Step::kVectors;
  const int first = pass ? Step::kPassEnd[pass - 1] : 0, last = Step::kPassEnd[pass] - 1;
  const Compute* in = scratch.state[0];
  index_t pitch = kLanes;
  bool loaded = false;
  if constexpr (detail::is_same<Source, Compute>) {
    const int digit = Step::kOrder[first];
    loaded = from.lanes.contiguous && Step::kProduced[digit] <= Step::kTile[digit];
    if (loaded) in = source + from.base + from.lanes.offset[0], pitch = from.step;
  }
  if (!loaded) {
    load_block<Step>(scratch.state[0], source + from.base, from.lanes, from.step, kTables<Step>.pass[pass].group);
  }
  for (int i = first; i <= last; ++i) {
    const int digit = Step::kOrder[i];
    Compute* out = scratch.state[(i - first + 1) % 2];
    index_t out_pitch = kLanes;
    if constexpr (Sink::kDirect) {
      if (i == last && to.lanes.contiguous) out = sink.to + to.base + to.lanes.offset[0], out_pitch = to.step;
    }
    const ModeShape shape{Step::kLeft[i], Step::kContracted[digit], Step::kProduced[digit], Step::kRight[i]};
    with_tile<Step>(Step::kTile[digit], [&](auto tile) {
      mode_product<decltype(tile)::value, Step>(shape, in, pitch, out, out_pitch,
                                                scratch.panels + kTables<Step>.panel[digit]);
    });
    in = out;
    pitch = kLanes;
  }
  if (Sink::kDirect && to.lanes.contiguous) return;
  store_block<Step>(sink.at(to.base, other.base), in, to.lanes, to.step, other.lanes, other.step,
                    kTables<Step>.pass[pass].produced, block);
}

template <class Step, class Source, class Sink, class Target>
void run_pass(int pass, index_t rows, const View<const Source>& source, const Sink& sink,
              const View<Target>& target, const View<const Target>& other,
              const Scratch<typename Step::Compute>& scratch) {
  constexpr int kLanes = Step::kWidth * Step::kVectors;
  const int kind = Step::kPassKind[pass];
  const Extents& extents = kTables<Step>.pass[pass];
  const index_t count = kind == kRowsAndLead ? rows * extents.lead : kind == kTrail ? extents.trail : rows;
  const index_t outers = kind == kRowsAndLead ? 1 : extents.lead * (kind == kTrail ? rows : extents.trail);
  Place<kLanes> from, to, before;
  for (index_t outer = 0; outer < outers; ++outer) {
    for (index_t index = 0; index * kLanes < count; ++index) {
      const Block block = lane_block(index, count, kLanes);
      place_block(from, source, kind, extents, extents.group, outer, block);
      place_block(to, target, kind, extents, extents.produced, outer, block);
      place_block(before, other, kind, extents, extents.produced, outer, block);
      run_block<Step>(pass, source.data, from, sink, to, before, block, scratch);
    }
  }
}

// The scratch between pass - 1 and `pass`.
template <class Step>
KRONOP_INLINE View<typename Step::Compute> middle_view(const Scratch<typename Step::Compute>& scratch, int pass) {
  const Extents& extents = kTables<Step>.pass[pass];
  typename Step::Compute* data = scratch.middle[(pass - 1) % 2];
  if (Step::kPassKind[0] == kRows) return {data, 1, Step::kRowTile};
  return {data, extents.lead * extents.group * extents.trail, 1};
}

template <class T>
KRONOP_INLINE View<const T> constant(const View<T>& view) {
  return {view.data, view.row, view.column};
}

// All passes over a tile of `rows` rows.
template <class Step, class X, class Y>
void run_tile(index_t rows, const View<const X>& x, const OutputSink<Step>& sink, const View<Y>& y,
              const View<const Y>& z, const Scratch<typename Step::Compute>& scratch) {
  using Compute = typename Step::Compute;
  constexpr int kLast = Step::kPasses - 1;
  if constexpr (kLast == 0) {
    run_pass<Step>(0, rows, x, sink, y, z, scratch);
  } else {
    View<Compute> middle = middle_view<Step>(scratch, 1);
    run_pass<Step>(0, rows, x, MiddleSink<Compute>{middle.data}, middle, constant(middle), scratch);
    for (int pass = 1; pass < kLast; ++pass) {
      const View<Compute> next = middle_view<Step>(scratch, pass + 1);
      run_pass<Step>(pass, rows, constant(middle), MiddleSink<Compute>{next.data}, next, constant(next), scratch);
      middle = next;
    }
    run_pass<Step>(kLast, rows, constant(middle), sink, y, z, scratch);
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

// One thread's part: tiles [first, end), counted over all batch items.
template <class Step, class Parameters>
void run_share(const Parameters& parameters, index_t share, index_t first, index_t end) {
  using Element = typename Step::Element;
  using Output = typename Step::Output;
  const auto scratch = scratch_of<Step>(parameters, share);
  const index_t tiles = (parameters.rows + parameters.row_tile - 1) / parameters.row_tile;
  const index_t* xs = parameters.x_strides;
  const index_t* ys = parameters.y_strides;
  const index_t* zs = parameters.z_strides;
  Item<Step::kFactors> item{};
  index_t current = -1;
  for (index_t index = first; index < end; ++index) {
    if (index / tiles != current) {
      const bool changed = find_item(item, parameters, index / tiles);
      if (changed || current < 0) pack_factors<Step>(parameters, item.factors, scratch.panels);
      current = index / tiles;
    }
    const index_t row = index % tiles * parameters.row_tile;
    const index_t rows = row + parameters.row_tile < parameters.rows ? parameters.row_tile : parameters.rows - row;
    const View<const Element> x{static_cast<const Element*>(parameters.x) + item.x + row * xs[0], xs[0], xs[1]};
    const View<Output> y{static_cast<Output*>(parameters.y) + item.y + row * ys[0], ys[0], ys[1]};
    const auto* source = static_cast<const Output*>(parameters.z);
    const View<const Output> z{source ? source + item.z + row * zs[0] : nullptr, zs[0], zs[1]};
    const OutputSink<Step> sink{typename Step::Epilogue(parameters.scalars), y.data, z.data, nullptr};
    run_tile<Step>(rows, x, sink, y, z, scratch);
  }
}

}  // namespace kron

template <class Step, class Parameters>
int kron_matmul(const Parameters& parameters, bool alone) {
  index_t items = (parameters.rows + parameters.row_tile - 1) / parameters.row_tile;
  for (index_t extent : parameters.batch) items *= extent;
  share_out(items, parameters.threads, alone, [&](index_t share, index_t first, index_t end) {
    kron::run_share<Step>(parameters, share, first, end);
  });
  return 0;
}

}  // namespace kronop
