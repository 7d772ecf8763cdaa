// One contraction as a tiled product: Y[row, j] = sum over k of X[row, k] W[k, j], in lanes and
// sections.
//
// Sections and lanes are batch indices: X, Y and W have them. A block computes one section, kLanes
// consecutive lanes of it (if there are several, lanes are contiguous in memory), kTileM rows and
// kTileN outputs, kTileK contracted indices at a time. A large Kronecker factor has one lane,
// batches as sections and every free index as a row; a Kronecker-sparse product has l as lane, i as
// section and the batch as rows.
#pragma once

#include "contract_place.cuh"

namespace kronop {
namespace contract {

// Constants that follow from the tile of a thread: its vectors in shared memory, and the unroll
// factor of the contraction.
template <class Decided>
struct SimtStep : Decided {
  static constexpr int kVector = 16 / sizeof(typename Decided::Accumulator);
  static constexpr int kVectorM = kVector < Decided::kThreadM ? kVector : Decided::kThreadM;
  static constexpr int kVectorN = kVector < Decided::kThreadN ? kVector : Decided::kThreadN;
  static constexpr int kMostSteps = 512 / (Decided::kThreadM * Decided::kThreadN);
  static constexpr int kUnroll =
      kMostSteps < Decided::kTileK ? (kMostSteps > 1 ? kMostSteps : 1) : Decided::kTileK;
};

// Chunk `index` of a [lanes][Own][Width] tile: the indices of its first element. Chunks are
// numbered in memory order; the VectorSize elements of a chunk are adjacent.
template <class Step, int Along, int Own, int Width, int VectorSize>
struct TileChunk {
  static constexpr int kCount = Step::kLanes * Own * Width / VectorSize;
  static constexpr int kOwn = Along == kAlongOwn ? Own / VectorSize : Own;
  static constexpr int kWide = Along == kAlongRows ? Width / VectorSize : Width;
  static constexpr int kLane = Along == kAlongLanes ? Step::kLanes / VectorSize : Step::kLanes;
  int lane, own, wide;
  KRONOP_INLINE explicit TileChunk(int index) {
    if constexpr (Along == kAlongOwn) {
      own = index % kOwn * VectorSize, wide = index / kOwn % kWide, lane = index / (kOwn * kWide);
    } else if constexpr (Along == kAlongRows) {
      wide = index % kWide * VectorSize, own = index / kWide % kOwn, lane = index / (kWide * kOwn);
    } else {
      lane = index % kLane * VectorSize, own = index / kLane % kOwn, wide = index / (kLane * kOwn);
    }
  }
  // Element v of the chunk.
  KRONOP_INLINE TileChunk element(int v) const {
    TileChunk result = *this;
    result.own += Along == kAlongOwn ? v : 0;
    result.wide += Along == kAlongRows ? v : 0;
    result.lane += Along == kAlongLanes ? v : 0;
    return result;
  }
};

// A tile that is copied from global memory through registers to shared memory.
template <class Step, class Element, int Along, int Width, int VectorSize>
struct Stage {
  using Accumulator = typename Step::Accumulator;
  using Part = TileChunk<Step, Along, Step::kTileK, Width, VectorSize>;
  static constexpr int kPerThread = (Part::kCount + Step::kThreads - 1) / Step::kThreads;
  Vector<Element, VectorSize> parts[kPerThread];

  // offset(chunk) is in elements; inside(chunk): whether the chunk exists; joined(chunk): whether
  // all of it exists, contiguous and aligned.
  template <class Offset, class Inside, class Joined>
  KRONOP_INLINE void fetch(const Element* from, Offset offset, Inside inside, Joined joined) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int index = threadIdx.x + i * Step::kThreads;
      parts[i] = {};
      if (index < Part::kCount) {
        const Part part(index);
        if (VectorSize > 1 && joined(part)) {
          parts[i] = load<Element, VectorSize>(from + offset(part));
        } else {
#pragma unroll
          for (int v = 0; v < VectorSize; ++v) {
            if (inside(part.element(v))) parts[i].data[v] = from[offset(part.element(v))];
          }
        }
      }
    }
  }

  KRONOP_INLINE void deposit(Accumulator* tile) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int index = threadIdx.x + i * Step::kThreads;
      if (index < Part::kCount) {
#pragma unroll
        for (int v = 0; v < VectorSize; ++v) {
          const Part part = Part(index).element(v);
          constexpr int pitch = Width + Step::kPad;
          tile[part.lane * (Step::kTileK * pitch + Step::kPad) + part.own * pitch + part.wide] =
              convert<Accumulator>(parts[i].data[v]);
        }
      }
    }
  }
};

// Elements of a tile of this width in shared memory.
template <class Step>
KRONOP_INLINE constexpr int tile_size(int width) {
  return Step::kLanes * (Step::kTileK * (width + Step::kPad) + Step::kPad);
}

// The lane, the rows and the outputs of this thread.
template <class Step>
struct Thread {
  static constexpr int kM = Step::kTileM / Step::kThreadM, kN = Step::kTileN / Step::kThreadN;
  int lane, m, n;
  KRONOP_INLINE Thread()
      : lane(threadIdx.x / (kM * kN)), m(threadIdx.x / kN % kM), n(threadIdx.x % kN) {}
  // Row and output, within the tile, of element i of this thread. A thread's vectors are
  // interleaved with those of other threads, so that a warp accesses adjacent vectors.
  KRONOP_INLINE int row(int i) const {
    return (i / Step::kVectorM * kM + m) * Step::kVectorM + i % Step::kVectorM;
  }
  KRONOP_INLINE int output(int i) const {
    return (i / Step::kVectorN * kN + n) * Step::kVectorN + i % Step::kVectorN;
  }
};

// Accumulates kTileK steps of the contraction.
template <class Step>
KRONOP_INLINE void multiply_tiles(
    const typename Step::Accumulator* x, const typename Step::Accumulator* w,
    const Thread<Step>& thread,
    typename Step::Accumulator (&sums)[Step::kThreadM][Step::kThreadN]) {
  using Accumulator = typename Step::Accumulator;
  constexpr int pitch_m = Step::kTileM + Step::kPad, pitch_n = Step::kTileN + Step::kPad;
  x += thread.lane * (Step::kTileK * pitch_m + Step::kPad);
  w += thread.lane * (Step::kTileK * pitch_n + Step::kPad);
#pragma unroll(Step::kUnroll)
  for (int k = 0; k < Step::kTileK; ++k) {
    Accumulator a[Step::kThreadM], b[Step::kThreadN];
#pragma unroll
    for (int i = 0; i < Step::kThreadM; i += Step::kVectorM) {
      const auto part = load<Accumulator, Step::kVectorM>(x + k * pitch_m + thread.row(i));
#pragma unroll
      for (int v = 0; v < Step::kVectorM; ++v) a[i + v] = part.data[v];
    }
#pragma unroll
    for (int i = 0; i < Step::kThreadN; i += Step::kVectorN) {
      const auto part = load<Accumulator, Step::kVectorN>(w + k * pitch_n + thread.output(i));
#pragma unroll
      for (int v = 0; v < Step::kVectorN; ++v) b[i + v] = part.data[v];
    }
#pragma unroll
    for (int i = 0; i < Step::kThreadM; ++i) {
#pragma unroll
      for (int j = 0; j < Step::kThreadN; ++j) sums[i][j] = multiply_add(a[i], b[j], sums[i][j]);
    }
  }
}

// The tiles of both operands: fetched from memory, and deposited in shared memory.
template <class Step, class Parameters>
struct Operands {
  using Input = typename Step::Input;
  using Factor = typename Step::Factor;
  using Accumulator = typename Step::Accumulator;
  Stage<Step, Input, Step::kXOrder, Step::kTileM, Step::kXVector> x;
  Stage<Step, Factor, Step::kWOrder, Step::kTileN, Step::kWVector> w;

  KRONOP_INLINE void fetch(const Parameters& parameters, const Place& place,
                           const RowOffsets& offsets, int k0) {
    const auto exists = [&](const auto& part, int wide) {
      return part.own + k0 < Step::kContracted && part.wide < wide && part.lane < place.lanes;
    };
    x.fetch(
        static_cast<const Input*>(parameters.x) + place.x,
        [&](const auto& part) {
          return offsets.x[part.wide] + (k0 + part.own) * parameters.contracted_x +
                 part.lane * parameters.lane_x;
        },
        [&](const auto& part) { return exists(part, place.rows); },
        [&](const auto& part) {
          const auto last = part.element(Step::kXVector - 1);
          if (!parameters.x_vector || !exists(last, place.rows)) return false;
          if constexpr (Step::kXOrder != kAlongRows) return true;
          // Rows are contiguous along one axis, but a chunk may cross the end of that axis, and a
          // row may start anywhere.
          const long long start = offsets.x[part.wide];
          return start % Step::kXVector == 0 && offsets.x[last.wide] - start == Step::kXVector - 1;
        });
    w.fetch(
        static_cast<const Factor*>(parameters.w) + place.w,
        [&](const auto& part) {
          return (k0 + part.own) * parameters.contracted_w + part.wide * parameters.produced_w +
                 part.lane * parameters.lane_w;
        },
        [&](const auto& part) { return exists(part, place.outputs); },
        [&](const auto& part) {
          return parameters.w_vector && exists(part.element(Step::kWVector - 1), place.outputs);
        });
  }

  KRONOP_INLINE void deposit(Accumulator* tile) const {
    x.deposit(tile);
    w.deposit(tile + tile_size<Step>(Step::kTileM));
  }
};

// The block's results in shared memory, on their way from registers to Y: contiguous along rows
// where Y is, else along outputs.
template <class Step>
struct Results {
  using Accumulator = typename Step::Accumulator;
  static constexpr bool kByRows = Step::kYOrder == kAlongRows;
  static constexpr int kPitch = (kByRows ? Step::kTileM : Step::kTileN) + Step::kPad;
  static constexpr int kLanePitch = (kByRows ? Step::kTileN : Step::kTileM) * kPitch + Step::kPad;

  static KRONOP_INLINE int at(int lane, int row, int output) {
    return lane * kLanePitch + (kByRows ? output * kPitch + row : row * kPitch + output);
  }

  static KRONOP_INLINE void deposit(Accumulator* results, const Thread<Step>& thread,
                                    const Accumulator (&sums)[Step::kThreadM][Step::kThreadN]) {
    constexpr int vector = kByRows ? Step::kVectorM : Step::kVectorN;
#pragma unroll
    for (int i = 0; i < Step::kThreadM; i += kByRows ? vector : 1) {
#pragma unroll
      for (int j = 0; j < Step::kThreadN; j += kByRows ? 1 : vector) {
        Vector<Accumulator, vector> part;
#pragma unroll
        for (int v = 0; v < vector; ++v) part.data[v] = kByRows ? sums[i + v][j] : sums[i][j + v];
        store<Accumulator, vector>(results + at(thread.lane, thread.row(i), thread.output(j)),
                                   part);
      }
    }
  }
};

// Applies the epilogue to results and stores them to Y in memory order, so that stores are
// coalesced.
template <class Step, class Parameters>
KRONOP_INLINE void store_results(const typename Step::Accumulator* results,
                                 const Parameters& parameters, const Place& place,
                                 const RowOffsets& offsets) {
  using Output = typename Step::Output;
  constexpr int vector = Step::kYVector;
  using Part = TileChunk<Step, Step::kYOrder, Step::kTileN, Step::kTileM, vector>;
  const Finish<Step> finish(parameters);
  Output* y = static_cast<Output*>(parameters.y) + place.y;
  const Output* z = parameters.z ? static_cast<const Output*>(parameters.z) + place.z : nullptr;
  const Output* bias =
      parameters.bias ? static_cast<const Output*>(parameters.bias) + place.bias : nullptr;
  const auto inside = [&](const Part& part) {
    return part.wide < place.rows && part.own < place.outputs && part.lane < place.lanes;
  };
  const auto to = [&](const Part& part) {
    return offsets.y[part.wide] + part.own * parameters.produced_y + part.lane * parameters.lane_y;
  };
  const auto from = [&](const Part& part) {
    return offsets.z[part.wide] + part.own * parameters.produced_z + part.lane * parameters.lane_z;
  };
#pragma unroll 1
  for (int index = threadIdx.x; index < Part::kCount; index += Step::kThreads) {
    const Part part(index), last = part.element(vector - 1);
    if (!inside(part)) continue;
    bool wide = vector > 1 && parameters.y_vector && inside(last);
    if (vector > 1 && Step::kYOrder == kAlongRows && wide) {
      const long long y_at = offsets.y[part.wide], z_at = offsets.z[part.wide];
      wide = y_at % vector == 0 && offsets.y[last.wide] - y_at == vector - 1;
      wide = wide && (!z || (z_at % vector == 0 && offsets.z[last.wide] - z_at == vector - 1));
    }
    Vector<Output, vector> source{}, result;
    if (z && wide) source = load<Output, vector>(z + from(part));
#pragma unroll
    for (int v = 0; v < vector; ++v) {
      const Part one = part.element(v);
      if (!inside(one)) continue;
      if (z && !wide) source.data[v] = z[from(one)];
      Output shift{};
      if (bias) shift = bias[one.own * parameters.produced_bias + one.lane * parameters.lane_bias];
      result.data[v] =
          finish(results[Results<Step>::at(one.lane, one.wide, one.own)], source.data[v], shift);
      if (!wide) y[to(one)] = result.data[v];
    }
    if (wide) store<Output, vector>(y + to(part), result);
  }
}

}  // namespace contract

// Blocks are ordered by (section, lanes, rows, outputs), outputs fastest so that neighbouring
// blocks share rows of X.
template <class Decided, class Parameters>
KRONOP_INLINE void contract_tiles(const Parameters& parameters) {
  using Step = contract::SimtStep<Decided>;
  using Accumulator = typename Step::Accumulator;
  constexpr int buffer =
      contract::tile_size<Step>(Step::kTileM) + contract::tile_size<Step>(Step::kTileN);
  unsigned char* shared = shared_memory();
  const RowOffsets offsets(shared, Step::kTileM);
  Accumulator* tiles = reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt);
  const contract::Thread<Step> thread;
  const long long blocks = contract::count_blocks<Step>(parameters);
#pragma unroll 1
  for (long long block = blockIdx.x; block < blocks; block += gridDim.x) {
    const contract::Place place = contract::locate<Step>(parameters, offsets, block);
    __syncthreads();
    contract::Operands<Step, Parameters> operands;
    Accumulator sums[Step::kThreadM][Step::kThreadN] = {};
    operands.fetch(parameters, place, offsets, 0);
    operands.deposit(tiles);
    __syncthreads();
    int current = 0;
#pragma unroll 1
    for (int k0 = 0; k0 < Step::kContracted; k0 += Step::kTileK) {
      const bool more = k0 + Step::kTileK < Step::kContracted;
      if (more) operands.fetch(parameters, place, offsets, k0 + Step::kTileK);
      const Accumulator* x = tiles + current * buffer;
      contract::multiply_tiles<Step>(x, x + contract::tile_size<Step>(Step::kTileM), thread, sums);
      if (Step::kStages == 1) __syncthreads();
      current = Step::kStages == 1 ? 0 : 1 - current;
      if (more) operands.deposit(tiles + current * buffer);
      __syncthreads();
    }
    // The operands' tiles are no longer needed: results reuse their shared memory.
    contract::Results<Step>::deposit(tiles, thread, sums);
    __syncthreads();
    contract::store_results<Step>(tiles, parameters, place, offsets);
    __syncthreads();
  }
}

}  // namespace kronop
