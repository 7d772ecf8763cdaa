// One contraction as a tiled product on the tensor cores: Y[row, j] = sum over k of X[row, k] W[k, j], in
// lanes and groups, as in contract.cuh.
//
// The tiles of kStages steps of kTileK are on their way to shared memory while products go on. A block
// has several lanes where lanes are contiguous in memory, and a warp those that one access brings.
// Several warps may share the contracted index; their sums meet in shared memory, through which results
// go to Y, in parts: in the order of its memory.
#pragma once

#include "contract_products.cuh"

namespace kronop {
namespace contract {

// A part of the block's results, 8 outputs of each warp where Y is contiguous along rows, else 16 rows.
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

  // The sums of a warp's part to their places, or added to what is there.
  template <bool kAdd>
  static KRONOP_INLINE void deposit(Accumulator* results, const Warp<Step>& warp, const Sums<Step>& sums, int index) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    Accumulator* to = results + Tile::at(warp.lane, warp.n + 2 * t, warp.m + g);
#pragma unroll
    for (int m = 0; m < Step::kWarpM; ++m) {
#pragma unroll
      for (int n = 0; n < Step::kWarpN; ++n) {
        if ((kByRows ? n : m) != index) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int output = (kByRows ? 0 : n * 8 * Step::kWarpsN) + e % 2;
          const int row = (kByRows ? m * 16 * Step::kWarpsM : 0) + e / 2 * 8;
#pragma unroll
          for (int l = 0; l < Step::kWarpLanes; ++l) {
            Accumulator& place = to[Tile::at(l, output, row)];
            place = kAdd ? place + sums.of[l][m][n][e] : sums.of[l][m][n][e];
          }
        }
      }
    }
  }
};

// Which of a block's results one is.
struct Result {
  int row, output, lane;
};

// Results of one part -> epilogue -> Y, in the order of Y's memory.
template <class Step, class Parameters>
KRONOP_INLINE void store_part(const typename Step::Accumulator* results, const Parameters& parameters, const Place& place, const RowOffsets& offsets, int index) {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  using Whole = Part<Step>;
  constexpr int vector = Step::kYVector;
  constexpr int at_once = vector * sizeof(Accumulator) > 16 ? 16 / sizeof(Accumulator) : vector;
  using Chunk = Piece<Step::kYOrder, Step::kLanes, Whole::kOutputs, Whole::kRows, vector>;
  const Finish<Step> finish(parameters);
  Output* y = static_cast<Output*>(parameters.y) + place.y;
  const Output* z = parameters.z ? static_cast<const Output*>(parameters.z) + place.z : nullptr;
  const Output* bias = parameters.bias ? static_cast<const Output*>(parameters.bias) + place.bias : nullptr;
#pragma unroll 1
  for (int at = threadIdx.x; at < Chunk::kCount; at += Step::kThreads) {
    const Chunk chunk(at);
    const int row = Whole::row(index) + chunk.wide, output = Whole::output(index) + chunk.own;
    if (row >= place.rows || output >= place.outputs || chunk.lane >= place.lanes) continue;
    Vector<Accumulator, vector> sums;
    const Accumulator* from = results + Whole::Tile::at(chunk.lane, chunk.own, chunk.wide);
#pragma unroll
    for (int v = 0; v < vector; v += at_once) {
      const auto few = load<Accumulator, at_once>(from + v);
#pragma unroll
      for (int u = 0; u < at_once; ++u) sums.data[v + u] = few.data[u];
    }
    // The element v of the chunk: its row, output and lane.
    const auto of = [&](int v) {
      const int lane = chunk.lane + (Step::kYOrder == kAlongLanes ? v : 0), over = lane / Step::kLanes;
      return Result{row + (Whole::kByRows ? v : 0), output + (Step::kYOrder == kAlongOwn ? v : over), lane - over * Step::kLanes};
    };
    const bool whole = !Whole::kByRows || row + vector <= place.rows;
    Vector<Output, vector> source{}, result;
    const bool wide = vector == 1 || (parameters.y_vector && whole);
    if (z && wide) {
      source = load<Output, vector>(z + offsets.z[row] + output * parameters.produced_z + chunk.lane * parameters.lane_z);
    }
#pragma unroll
    for (int v = 0; v < vector; ++v) {
      const auto [m, n, l] = of(v);
      if (!wide && (m >= place.rows || n >= place.outputs || l >= place.lanes)) continue;
      if (z && !wide) source.data[v] = z[offsets.z[m] + n * parameters.produced_z + l * parameters.lane_z];
      Output shift{};
      if (bias) shift = bias[n * parameters.produced_bias + l * parameters.lane_bias];
      result.data[v] = finish(sums.data[v], source.data[v], shift);
      if (!wide) y[offsets.y[m] + n * parameters.produced_y + l * parameters.lane_y] = result.data[v];
    }
    if (wide) {
      store<Output, vector>(y + offsets.y[row] + output * parameters.produced_y + chunk.lane * parameters.lane_y, result);
    }
  }
}

// All products of a block's tile: stages are filled ahead of the one that is multiplied. A single stage is
// for a single step.
template <class Step, class Parameters>
KRONOP_INLINE void multiply(const Parameters& parameters, const Place& place, const RowOffsets& offsets, unsigned char* shared, const Warp<Step>& warp, Sums<Step>& sums) {
  using Operand = typename Step::Factor;
  using X = typename Sums<Step>::X;
  using W = typename Sums<Step>::W;
  constexpr int steps = (Step::kContracted + Step::kTileK - 1) / Step::kTileK;
  constexpr int ahead = Step::kStages - 1, stage_size = X::kSize + W::kSize;
  Operand* stages = reinterpret_cast<Operand*>(shared);
  auto x = make_copies<Step, Operand, Step::kXOrder, Step::kTileM, Step::kXVector, Step::kXPitch>(
      static_cast<const Operand*>(parameters.x) + place.x, parameters.contracted_x, parameters.lane_x, parameters.x_vector,
      place.rows, place.lanes, [&](int row) { return offsets.x[row]; });
  auto w = make_copies<Step, Operand, Step::kWOrder, Step::kTileN, Step::kWVector, Step::kWPitch>(
      static_cast<const Operand*>(parameters.w) + place.w, parameters.contracted_w, parameters.lane_w, parameters.w_vector,
      place.outputs, place.lanes, [&](int output) { return output * parameters.produced_w; });
  int stage = ahead > 0 ? 1 : 0;  // Of step -ahead.
#pragma unroll 1
  for (int step = -ahead; step < steps; ++step) {
    if (ahead > 0 && step >= 0) {
      wait_for_copies_but<(ahead > 0 ? ahead - 1 : 0)>();
      __syncthreads();
    }
    if (step + ahead < steps) {
      Operand* to = stages + (stage == 0 ? ahead : stage - 1) * stage_size;
      x.fill(to, (step + ahead) * Step::kTileK);
      w.fill(to + X::kSize, (step + ahead) * Step::kTileK);
    }
    commit_copies();
    if (ahead == 0) {
      wait_for_copies_but<0>();
      __syncthreads();
    }
    if (step >= 0) {
      const Operand* from = stages + stage * stage_size;
#pragma unroll 1
      for (int k = warp.slab * kSlab; k < Step::kTileK; k += kSlab * Step::kWarpsK) {
        const Operand *at_x = from + X::at(warp.lane, k, warp.m), *at_w = from + X::kSize + W::at(warp.lane, k, warp.n);
        // A batch of few rows has none for the others.
        if (Step::kWarpM == 1 || place.rows <= Sums<Step>::kRowsApart) {
          sums.template add<1>(at_x, at_w);
        } else {
          sums.template add<Step::kWarpM>(at_x, at_w);
        }
      }
    }
    stage = stage + 1 == Step::kStages ? 0 : stage + 1;
  }
  wait_for_copies_but<0>();
}

}  // namespace contract

// Blocks walk over (group, lanes, rows, outputs), outputs fastest so that neighbours share rows of X.
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
    // The operands' tiles have been used up: their place takes the results.
#pragma unroll 1
    for (int part = 0; part < Whole::kParts; ++part) {
      __syncthreads();
      if (warp.slab == 0) Whole::template deposit<false>(results, warp, sums, part);
      __syncthreads();
#pragma unroll
      for (int other = 1; other < Step::kWarpsK; ++other) {
        if (warp.slab == other) Whole::template deposit<true>(results, warp, sums, part);
        __syncthreads();
      }
      contract::store_part<Step>(results, parameters, place, offsets, part);
    }
    __syncthreads();
  }
}

}  // namespace kronop
