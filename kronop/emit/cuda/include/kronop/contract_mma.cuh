// One contraction as a tiled product on the tensor cores, in lanes and sections as in contract.cuh:
//
//     Y[row, j] = sum over k of X[row, k] W[k, j].
//
// A multistage pipeline: tiles of kTileK steps are copied asynchronously to kStages stages of
// shared memory while others are multiplied. A block has several lanes where lanes are contiguous,
// and a warp has those of one vectorised access. Several warps may split the contracted index.
// Their sums are reduced in shared memory; results are stored part by part in Y's memory order.
#pragma once

#include "contract_products.cuh"

namespace kronop {
namespace contract {

// A part of the block's results: 8 outputs of each warp where Y is contiguous along rows, else 16
// rows. Each of the warps that split the contracted index has its own copy.
template <class Step>
struct Part {
  using Accumulator = typename Step::Accumulator;
  using Output = typename Step::Output;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows;
  static constexpr int kParts = kByRows ? Step::kWarpN : Step::kWarpM;
  static constexpr int kOutputs = kByRows ? 8 * Step::kWarpsN : Step::kTileN;
  static constexpr int kRows = kByRows ? Step::kTileM : 16 * Step::kWarpsM;
  using Tile = Layout<Step::kYOrder, Step::kLanes, kOutputs, kRows, Step::kYPitch>;

  // The first row and output of part `index`.
  static KRONOP_INLINE int row(int index) { return kByRows ? 0 : index * kRows; }
  static KRONOP_INLINE int output(int index) { return kByRows ? index * kOutputs : 0; }

  // Stores a warp's sums of part `index` to shared memory.
  static KRONOP_INLINE void deposit(Accumulator* results, const Warp<Step>& warp,
                                    const Sums<Step>& sums, int index) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    using Of = Sums<Step>;
    Accumulator* to = results + warp.slab * Tile::kSize +
                      Tile::at(warp.lane, warp.n + 2 * t, warp.m + g * Of::kRow);
#pragma unroll
    for (int m = 0; m < Step::kWarpM; ++m) {
#pragma unroll
      for (int n = 0; n < Step::kWarpN; ++n) {
        if ((kByRows ? n : m) != index) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int l = 0; l < Step::kWarpLanes; ++l) {
            Accumulator* product = to + Tile::at(l, kByRows ? 0 : n * 8 * Step::kWarpsN,
                                                 kByRows ? m * 16 * Step::kWarpsM : 0);
            Accumulator* pair = product + Tile::at(0, 0, Of::kHalf * h);
            const Accumulator(&from)[4] = sums.of[l][m][n];
            if constexpr (Step::kYOrder == kAlongOwn) {
              store<Accumulator, 2>(pair, {from[2 * h], from[2 * h + 1]});
            } else if constexpr (kByRows && Of::kRowsInPairs) {
              store<Accumulator, 2>(product + Tile::at(0, h, 0), {from[h], from[2 + h]});
            } else {
              pair[0] = from[2 * h];
              pair[Tile::kOwn] = from[2 * h + 1];
            }
          }
        }
      }
    }
  }
};

// VectorSize neighbouring results in shared memory, reduced over the warps that split the
// contracted index.
template <class Accumulator, int kCopies, int kApart, int VectorSize>
KRONOP_INLINE Vector<Accumulator, VectorSize> collect(const Accumulator* from) {
  constexpr int at_once =
      VectorSize * sizeof(Accumulator) > 16 ? 16 / sizeof(Accumulator) : VectorSize;
  Vector<Accumulator, VectorSize> sums;
#pragma unroll
  for (int v = 0; v < VectorSize; v += at_once) {
    auto few = load<Accumulator, at_once>(from + v);
#pragma unroll
    for (int k = 1; k < kCopies; ++k) {
      const auto more = load<Accumulator, at_once>(from + k * kApart + v);
#pragma unroll
      for (int u = 0; u < at_once; ++u) few.data[u] += more.data[u];
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) sums.data[v + u] = few.data[u];
  }
  return sums;
}

// Whether all rows of the block exist, at one constant stride.
template <class Step, class Parameters>
KRONOP_INLINE bool has_even_rows(const Parameters& parameters, const Place& place) {
  return parameters.row_extent[1] == 1 && parameters.row_extent[2] == 1 &&
         place.rows == Step::kTileM;
}

// The offsets of rows at one constant stride: no list of offsets is needed.
struct EvenRows {
  Evenly y, z;
};
KRONOP_INLINE Listed rows_from(const long long* list, bool even, long long stride, int first) {
  return {list + first, even, stride};
}
KRONOP_INLINE Evenly rows_from(const Evenly& rows, bool, long long, int) { return rows; }
KRONOP_INLINE long long start_of(const long long*, int) { return 0; }
KRONOP_INLINE long long start_of(const Evenly& rows, int first) { return rows[first]; }

// Applies the epilogue to the results of a part, and stores them to Y in memory order.
template <class Step, class Parameters, class Whole = Part<Step>, class Offsets = RowOffsets,
          class Wide = Listed>
struct Outcome {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  static constexpr int kVector = Step::kYVector;
  using Mine =
      Share<Step::kYOrder, Step::kLanes, Whole::kOutputs, Whole::kRows, kVector, Step::kThreads>;
  using Chunk = typename Mine::Part;
  using Ends = Places<Output, Mine, Wide>;
  // 16-bit results whose row starts are not aligned to vectors are stored two at a time if there is
  // no source: neighbours along the outputs (kPairs) or along the rows (kRowPairs).
  static constexpr bool kHalves = Wide::kListed && sizeof(Output) == 2 && Step::kLanes == 1;
  static constexpr bool kPairs =
      kHalves && kVector == 1 && Step::kYOrder == kAlongOwn && Whole::kOutputs % 2 == 0;
  static constexpr bool kRowPairs = kHalves && Whole::kByRows && Whole::kRows % 2 == 0;
  const Parameters& parameters;
  const Place& place;
  const Offsets& offsets;
  Finish<Step> finish;
  const Output *y, *z, *bias;

  KRONOP_INLINE Outcome(const Parameters& with, const Place& here, const Offsets& rows)
      : parameters(with), place(here), offsets(rows), finish(with),
        y(static_cast<const Output*>(with.y) + here.y),
        z(with.z ? static_cast<const Output*>(with.z) + here.z : nullptr),
        bias(with.bias ? static_cast<const Output*>(with.bias) + here.bias : nullptr) {}

  KRONOP_INLINE void store_part(const Accumulator* results, int index) const {
    if constexpr (kPairs) {
      if (parameters.produced_y == 1 && !z && !bias) return store_pairs(results, index);
    }
    if constexpr (kRowPairs) {
      if ((kVector == 1 || !parameters.y_vector) && !z && !bias)
        return store_row_pairs(results, index);
    }
    if (Mine::kRegular && !Whole::kByRows && has_even_rows<Step>(parameters, place)) {
      store_part<true>(results, index);
    } else {
      store_part<false>(results, index);
    }
  }

 private:
  template <int VectorSize>
  KRONOP_INLINE static Vector<Accumulator, VectorSize> gathered(const Accumulator* from) {
    return collect<Accumulator, Step::kWarpsK, Whole::Tile::kSize, VectorSize>(from);
  }
  template <bool kEven>
  KRONOP_INLINE void store_part(const Accumulator* results, int index) const {
    const Mine mine;
    const int row = Whole::row(index), output = Whole::output(index);
    const bool even = has_even_rows<Step>(parameters, place);
    const Ends to(y + (output * parameters.produced_y + start_of(offsets.y, row)),
                  parameters.produced_y, parameters.lane_y,
                  rows_from(offsets.y, even, parameters.row_y[0], row), mine);
    const Ends from(z + (output * parameters.produced_z + start_of(offsets.z, row)),
                    parameters.produced_z, parameters.lane_z,
                    rows_from(offsets.z, even, parameters.row_z[0], row), mine);
#pragma unroll(Mine::kEach < 4 ? Mine::kEach : 4)
    for (int i = 0; i < Mine::kEach; ++i) {
      if (!mine.has(i)) break;
      const Chunk chunk = mine[i];
      const int rows = place.rows - row - chunk.wide;
      if (rows <= 0 || chunk.own + output >= place.outputs || chunk.lane >= place.lanes) continue;
      const Accumulator* sums = results + Whole::Tile::at(chunk.lane, chunk.own, chunk.wide);
      if (kVector == 1 || (parameters.y_vector && (!Whole::kByRows || rows >= kVector))) {
        store_whole<Output, kVector>(
            const_cast<Output*>(to.template at<kEven>(mine, i)),
            finished<kEven>(gathered<kVector>(sums), from, mine, i, output));
      } else {
        store_each(sums, chunk, row, output);
      }
    }
  }
  // Element v of a chunk, relative to the first output and row of the part.
  static KRONOP_INLINE Chunk element(const Chunk& chunk, int v) {
    const int lane = chunk.lane + (Step::kYOrder == kAlongLanes ? v : 0),
              over = lane / Step::kLanes;
    return Chunk(lane - over * Step::kLanes, chunk.own + (Step::kYOrder == kAlongOwn ? v : over),
                 chunk.wide + (Whole::kByRows ? v : 0));
  }
  KRONOP_INLINE Output shift(const Chunk& one, int output) const {
    return bias[(output + one.own) * parameters.produced_bias + one.lane * parameters.lane_bias];
  }
  template <bool kEven>
  KRONOP_INLINE Vector<Output, kVector> finished(const Vector<Accumulator, kVector>& sums,
                                                 const Ends& from, const Mine& mine, int i,
                                                 int output) const {
    Vector<Output, kVector> result;
    if (!z && !bias) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) result.data[v] = finish(sums.data[v]);
    } else {
      Vector<Output, kVector> source{}, shifts{};
      if (z) source = load<Output, kVector>(from.template at<kEven>(mine, i));
      if (bias) {
#pragma unroll
        for (int v = 0; v < kVector; ++v) shifts.data[v] = shift(element(mine[i], v), output);
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        result.data[v] = finish(sums.data[v], source.data[v], shifts.data[v]);
    }
    return result;
  }
  // Stores a chunk element by element: where Y allows no vectors, and for the last rows.
  KRONOP_INLINE void store_each(const Accumulator* sums, const Chunk& chunk, int row,
                                int output) const {
#pragma unroll 1
    for (int v = 0; v < kVector; ++v) {
      const Chunk one = element(chunk, v);
      if (row + one.wide >= place.rows || output + one.own >= place.outputs ||
          one.lane >= place.lanes)
        continue;
      Output source{}, moved{};
      if (z)
        source = z[offsets.z[row + one.wide] + (output + one.own) * parameters.produced_z +
                   one.lane * parameters.lane_z];
      if (bias) moved = shift(one, output);
      const long long to = offsets.y[row + one.wide] + (output + one.own) * parameters.produced_y +
                           one.lane * parameters.lane_y;
      const_cast<Output*>(y)[to] = finish(gathered<1>(sums + v).data[0], source, moved);
    }
  }
  // Stores pairs of results in one 4-byte word of Y. The first result of a row that starts in the
  // middle of a word, and the last one, share a word with another tile or with nothing: these are
  // stored alone.
  KRONOP_INLINE void store_pairs(const Accumulator* results, int index) const {
    using Pairs = Share<kAlongOwn, Step::kLanes, Whole::kOutputs, Whole::kRows, 2, Step::kThreads>;
    const Pairs pairs;
    const int row = Whole::row(index), output = Whole::output(index),
              outputs = place.outputs - output < Whole::kOutputs ? place.outputs - output
                                                                 : Whole::kOutputs;
#pragma unroll(Pairs::kEach < 4 ? Pairs::kEach : 4)
    for (int i = 0; i < Pairs::kEach; ++i) {
      if (!pairs.has(i)) break;
      const auto pair = pairs[i];
      if (row + pair.wide >= place.rows || pair.lane >= place.lanes) continue;
      auto* line = const_cast<Output*>(y) +
                   (offsets.y[row + pair.wide] + output + pair.lane * parameters.lane_y);
      const int odd = reinterpret_cast<unsigned long long>(line) / 2 % 2, own = pair.own + odd;
      const auto result = [&](int of) {
        return finish(gathered<1>(results + Whole::Tile::at(pair.lane, of, pair.wide)).data[0]);
      };
      if (own + 1 < outputs) {
        store_whole<Output, 2>(line + own, {result(own), result(own + 1)});
      } else if (own < outputs) {
        line[own] = result(own);
      }
      if (odd && pair.own == 0) line[0] = result(0);
    }
  }
  // The same for pairs of results in two neighbouring rows.
  KRONOP_INLINE void store_row_pairs(const Accumulator* results, int index) const {
    using Pairs = Share<kAlongRows, Step::kLanes, Whole::kOutputs, Whole::kRows, 2, Step::kThreads>;
    const Pairs pairs;
    const int row = Whole::row(index), output = Whole::output(index);
#pragma unroll(Pairs::kEach < 4 ? Pairs::kEach : 4)
    for (int i = 0; i < Pairs::kEach; ++i) {
      if (!pairs.has(i)) break;
      const auto pair = pairs[i];
      const int rows = place.rows - row - pair.wide;
      if (rows <= 0 || output + pair.own >= place.outputs || pair.lane >= place.lanes) continue;
      const auto sums = gathered<2>(results + Whole::Tile::at(pair.lane, pair.own, pair.wide));
      const long long first = offsets.y[row + pair.wide],
                      apart = offsets.y[row + pair.wide + 1] - first;
      auto* to = const_cast<Output*>(y) + (first + (output + pair.own) * parameters.produced_y +
                                           pair.lane * parameters.lane_y);
      const Vector<Output, 2> values{finish(sums.data[0]), finish(sums.data[1])};
      if (rows > 1 && apart == 1 && reinterpret_cast<unsigned long long>(to) % 4 == 0) {
        store_whole<Output, 2>(to, values);
      } else {
        to[0] = values.data[0];
        if (rows > 1) to[apart] = values.data[1];
      }
    }
  }
};

// Computes the products of a block's tile. Stages ahead of the current one are being filled; a
// contraction of one step needs a single stage.
template <class Step, class Parameters>
KRONOP_INLINE void multiply(const Parameters& parameters, const Place& place,
                            const RowOffsets& offsets, unsigned char* shared,
                            const Warp<Step>& warp, Sums<Step>& sums) {
  using Operand = typename Step::Factor;
  using X = typename Sums<Step>::X;
  using W = typename Sums<Step>::W;
  constexpr int steps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK;
  constexpr int ahead = Step::kStages - 1, stage_size = X::kSize + W::kSize;
  // NOTE: with fewer than 128 registers for a thread, or several lanes, NVRTC 13.5 spilled 32 to 72
  // bytes of the pairs in flight.
  constexpr bool paired = Step::kLanes == 1 && Step::kThreads * Step::kBlocks <= 512;
  using OfX = Copies<Step, Operand, X, Step::kXOrder, Step::kTileM, Step::kXVector, 0, Listed,
                     paired && Step::kXPairs>;
  using OfW = Copies<Step, Operand, W, Step::kWOrder, Step::kTileN, Step::kWVector, Step::kProduced,
                     Evenly, paired && Step::kWPairs>;
  constexpr bool x_later = ahead > 0 && OfX::kLater, w_later = ahead > 0 && OfW::kLater;
  Operand* stages = reinterpret_cast<Operand*>(shared);
  OfX x(static_cast<const Operand*>(parameters.x) + place.x, parameters.contracted_x,
        parameters.lane_x, parameters.x_vector, place.rows, place.lanes,
        Listed{offsets.x, has_even_rows<Step>(parameters, place), parameters.row_x[0]});
  OfW w(static_cast<const Operand*>(parameters.w) + place.w, parameters.contracted_w,
        parameters.lane_w, parameters.w_vector, place.outputs, place.lanes,
        Evenly{parameters.produced_w});
  const Operand* at_x = stages + X::at(warp.lane, warp.slab * kSlab, warp.m);
  const Operand* at_w = stages + X::kSize + W::at(warp.lane, warp.slab * kSlab, warp.n);
  int stage = ahead > 0 ? 1 : 0;  // of step -ahead
#pragma unroll 1
  for (int step = -ahead; step < steps; ++step) {
    if (ahead > 0 && step >= 0) {
      wait_for_older_copies<(ahead > 0 ? ahead - 1 : 0)>();
      __syncthreads();
    }
    const bool more = step + ahead < steps;
    Operand* to = stages + (stage == 0 ? ahead : stage - 1) * stage_size;
    if (more) {
      w.begin();
      x.begin();
      if (!x_later) x.fill(to);
      if (!w_later) w.fill(to + X::kSize);
    }
    commit_copies();
    if (ahead == 0) {
      wait_for_older_copies<0>();
      __syncthreads();
    }
    if (step >= 0) sums.add(at_x + stage * stage_size, at_w + stage * stage_size);
    // Elements that were loaded to registers during the products are stored now; the next barrier
    // makes them visible.
    if (more && w_later) w.fill(to + X::kSize);
    if (more && x_later) x.fill(to);
    stage = stage + 1 == Step::kStages ? 0 : stage + 1;
  }
  wait_for_older_copies<0>();
}

}  // namespace contract

// Blocks are ordered by (section, lanes, rows, outputs), outputs fastest so that neighbouring
// blocks share rows of X.
template <class Step, class Parameters>
KRONOP_INLINE void contract_mma(const Parameters& parameters) {
  using Whole = contract::Part<Step>;
  unsigned char* shared = shared_memory();
  const RowOffsets offsets(shared, Step::kTileM);
  auto* results = reinterpret_cast<typename Step::Accumulator*>(shared + Step::kTileBytesAt);
  const contract::Warp<Step> warp;
  const long long blocks = contract::count_blocks<Step>(parameters);
#pragma unroll 1
  for (long long block = blockIdx.x; block < blocks; block += gridDim.x) {
    const contract::Place place = contract::locate<Step>(parameters, offsets, block);
    __syncthreads();
    contract::Sums<Step> sums;
    contract::multiply<Step>(parameters, place, offsets, shared + Step::kTileBytesAt, warp, sums);
    // The operands' tiles are no longer needed: results reuse their shared memory.
    const contract::Outcome<Step, Parameters> outcome(parameters, place, offsets);
#pragma unroll 1
    for (int part = 0; part < Whole::kParts; ++part) {
      __syncthreads();
      Whole::deposit(results, warp, sums, part);
      __syncthreads();
      outcome.store_part(results, part);
    }
    __syncthreads();
  }
}

}  // namespace kronop
