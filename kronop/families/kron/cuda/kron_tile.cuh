// A pass of a Kronecker matmul: adjacent digits, contracted in a tile in shared memory.
//
// A tile is [kRows][digits][kColumns] in the accumulator type. Columns are the free index that is
// contiguous in memory, rows are the other free indices. Digits are contracted in phases; a phase
// contracts a few consecutive digits, and each thread owns whole fibers along them: it loads them
// to registers, contracts, and stores the results in the same places. So one buffer is enough, and
// a phase needs one barrier. A digit that grows or shrinks has max(P, Q) slots.
#pragma once

#include "kron_parameters.cuh"

namespace kronop {

namespace kron {

// The address of element `index` of the tile: one element of padding after every 2^kPadShift.
template <class Step>
KRONOP_INLINE constexpr int place(int index) {
  if constexpr (Step::kPadShift == 0) {
    return index;
  } else {
    return index + (index >> Step::kPadShift);
  }
}

// The address of base + offset, where offset is known at compile time. If no carry can reach the
// padding, both addresses add up.
template <class Step>
KRONOP_INLINE int place(int base, int placed_base, int offset) {
  if constexpr (Step::kPadAdds) {
    return placed_base + place<Step>(offset);
  } else {
    return place<Step>(base + offset);
  }
}

// Offset in the tile of a phase's fiber: mixed radix over the axes that the phase leaves free.
template <class Step, int Axis, int First>
KRONOP_INLINE int fiber_offset(int fiber) {
  if constexpr (Axis == First) {
    constexpr int stride = Step::kAxisStride[Axis];
    return fiber * stride;
  } else {
    constexpr int extent = Step::kAxisExtent[Axis];
    constexpr int stride = Step::kAxisStride[Axis];
    return fiber % extent * stride + fiber_offset<Step, Axis - 1, First>(fiber / extent);
  }
}

// Contracts one digit of a thread's block of Before x slots x After elements.
template <class Step, int Digit, int Before, int After, int Block>
KRONOP_INLINE void contract_registers(typename Step::Accumulator (&block)[Block],
                                      const typename Step::Accumulator* factors) {
  using Accumulator = typename Step::Accumulator;
  constexpr int contracted = Step::kContracted[Digit], produced = Step::kProduced[Digit];
  constexpr int slots = contracted > produced ? contracted : produced;
  constexpr int pitch = Step::kFactorPitch[Digit], vector = Step::kVector;
  constexpr int together = Step::kVector;
  const Accumulator* factor = factors + Step::factor_at(Digit);
#pragma unroll
  for (int first = 0; first < Before * After; first += together) {
    Accumulator sums[together][pitch] = {};
#pragma unroll
    for (int p = 0; p < contracted; ++p) {
      Accumulator row[pitch];
#pragma unroll
      for (int q = 0; q < pitch; q += vector) {
        const auto part = load<Accumulator, vector>(factor + p * pitch + q);
#pragma unroll
        for (int v = 0; v < vector; ++v) row[q + v] = part.data[v];
      }
#pragma unroll
      for (int g = 0; g < together; ++g) {
        const int fiber = first + g;
        if (fiber < Before * After) {
          const int at = (fiber / After * slots + p) * After + fiber % After;
#pragma unroll
          for (int q = 0; q < produced; ++q)
            sums[g][q] = multiply_add(block[at], row[q], sums[g][q]);
        }
      }
    }
#pragma unroll
    for (int g = 0; g < together; ++g) {
      const int fiber = first + g;
      if (fiber < Before * After) {
#pragma unroll
        for (int q = 0; q < produced; ++q) {
          block[(fiber / After * slots + q) * After + fiber % After] = sums[g][q];
        }
      }
    }
  }
}

// Contracts all digits of a phase in a thread's block, first digit first.
template <class Step, int Digit, int End, int Before, int Block>
KRONOP_INLINE void contract_block(typename Step::Accumulator (&block)[Block],
                                  const typename Step::Accumulator* factors) {
  if constexpr (Digit < End) {
    constexpr int contracted = Step::kContracted[Digit], produced = Step::kProduced[Digit];
    constexpr int slots = contracted > produced ? contracted : produced;
    contract_registers<Step, Digit, Before, Block / Before / slots>(block, factors);
    contract_block<Step, Digit + 1, End, Before * slots>(block, factors);
  }
}

// A phase of one or more small digits: a thread has all their slots of a fiber in registers.
template <class Step, int Phase>
KRONOP_INLINE void small_phase(typename Step::Accumulator* tile,
                               const typename Step::Accumulator* factors) {
  using Accumulator = typename Step::Accumulator;
  constexpr int block_size = Step::kPhaseBlock[Phase];
  constexpr int stride = Step::kStride[Step::kPhaseEnd[Phase] - 1], fibers = fibers_of<Step>(Phase);
#pragma unroll 1
  for (int fiber = threadIdx.x; fiber < fibers; fiber += Step::kThreads) {
    const int base =
        fiber_offset<Step, Step::kPhaseAxis[Phase + 1] - 1, Step::kPhaseAxis[Phase]>(fiber);
    const int placed = place<Step>(base);
    Accumulator block[block_size];
#pragma unroll
    for (int e = 0; e < block_size; ++e) block[e] = tile[place<Step>(base, placed, e * stride)];
    contract_block<Step, Step::kPhaseFirst[Phase], Step::kPhaseEnd[Phase], 1>(block, factors);
#pragma unroll
    for (int e = 0; e < block_size; ++e) tile[place<Step>(base, placed, e * stride)] = block[e];
  }
}

// Computes Count outputs of a large digit, from q0 on, for the fibers in x.
template <class Step, int Digit, int Stride, int Count, int Together, int Contracted>
KRONOP_INLINE void produce_chunk(typename Step::Accumulator* tile,
                                 const typename Step::Accumulator* factor,
                                 const typename Step::Accumulator (&x)[Together][Contracted],
                                 const int (&base)[Together], int live, int q0) {
  using Accumulator = typename Step::Accumulator;
  constexpr int pitch = Step::kFactorPitch[Digit], vector = Step::kVector;
  constexpr int width = (Count + vector - 1) / vector * vector;
  Accumulator sums[Together][width] = {};
#pragma unroll
  for (int p = 0; p < Contracted; ++p) {
#pragma unroll
    for (int q = 0; q < width; q += vector) {
      const auto part = load<Accumulator, vector>(factor + p * pitch + q0 + q);
#pragma unroll
      for (int g = 0; g < Together; ++g) {
#pragma unroll
        for (int v = 0; v < vector; ++v)
          sums[g][q + v] = multiply_add(x[g][p], part.data[v], sums[g][q + v]);
      }
    }
  }
#pragma unroll
  for (int g = 0; g < Together; ++g) {
    if (g < live) {
#pragma unroll
      for (int q = 0; q < Count; ++q) tile[place<Step>(base[g] + (q0 + q) * Stride)] = sums[g][q];
    }
  }
}

// A phase of one large digit: a thread has kPhaseTogether fibers and computes a few outputs at a
// time.
template <class Step, int Phase>
KRONOP_INLINE void large_phase(typename Step::Accumulator* tile,
                               const typename Step::Accumulator* factors) {
  using Accumulator = typename Step::Accumulator;
  constexpr int digit = Step::kPhaseFirst[Phase],
                stride = Step::kStride[Step::kPhaseEnd[Phase] - 1];
  constexpr int contracted = Step::kContracted[digit], produced = Step::kProduced[digit];
  constexpr int chunk = Step::kChunk, together = Step::kPhaseTogether[Phase],
                fibers = fibers_of<Step>(Phase);
  constexpr int whole = produced / chunk * chunk;
  const Accumulator* factor = factors + Step::factor_at(digit);
#pragma unroll 1
  for (int first = threadIdx.x; first < fibers; first += Step::kThreads * together) {
    Accumulator x[together][contracted];
    int base[together], live = 0;
#pragma unroll
    for (int g = 0; g < together; ++g) {
      const int fiber = first + g * Step::kThreads;
      // Out of bounds, the first fiber is computed again and not stored.
      const bool exists = fiber < fibers;
      live += exists;
      base[g] = fiber_offset<Step, Step::kPhaseAxis[Phase + 1] - 1, Step::kPhaseAxis[Phase]>(
          exists ? fiber : first);
#pragma unroll
      for (int p = 0; p < contracted; ++p)
        x[g][p] = tile[place<Step>(base[g], place<Step>(base[g]), p * stride)];
    }
#pragma unroll 1
    for (int q0 = 0; q0 < whole; q0 += chunk) {
      produce_chunk<Step, digit, stride, chunk>(tile, factor, x, base, live, q0);
    }
    if constexpr (produced > whole) {
      produce_chunk<Step, digit, stride, produced - whole>(tile, factor, x, base, live, whole);
    }
  }
}

template <class Step, int Phase = 0>
KRONOP_INLINE void all_phases(typename Step::Accumulator* tile,
                              const typename Step::Accumulator* factors) {
  if constexpr (Phase < Step::kPhases) {
    if constexpr (Step::kPhaseTogether[Phase] == 0) {
      small_phase<Step, Phase>(tile, factors);
    } else {
      large_phase<Step, Phase>(tile, factors);
    }
    __syncthreads();
    all_phases<Step, Phase + 1>(tile, factors);
  }
}

// Loads one factor, converted, as [P][pitch] with zero padding.
template <class Step, int Contracted, int Produced, int Pitch, class Parameters>
KRONOP_INLINE void load_factor(typename Step::Accumulator* to, int digit,
                               const Parameters& parameters, long long batch) {
  using Accumulator = typename Step::Accumulator;
  const auto* source = static_cast<const typename Step::Factor*>(parameters.factor[digit]);
  long long offset[1];
  factor_offsets(offset, parameters, digit, batch);
  source += offset[0];
#pragma unroll 1
  for (int e = threadIdx.x; e < Contracted * Pitch; e += Step::kThreads) {
    const int p = e / Pitch, q = e % Pitch;
    Accumulator value{};
    if (q < Produced) {
      value = convert<Accumulator>(
          source[p * parameters.factor_row[digit] + q * parameters.factor_column[digit]]);
    }
    to[e] = value;
  }
}

// Loads all factors of the pass. Factors of equal shapes share one loop, which keeps compile times
// of long products low.
template <class Step, int Digit = 0, class Parameters>
KRONOP_INLINE void load_factors(typename Step::Accumulator* factors, const Parameters& parameters,
                                long long batch) {
  constexpr int contracted = Step::kContracted[Digit], produced = Step::kProduced[Digit];
  constexpr int pitch = Step::kFactorPitch[Digit];
  if constexpr (Step::kEqualFactors) {
#pragma unroll 1
    for (int digit = 0; digit < Step::kDigits; ++digit) {
      load_factor<Step, contracted, produced, pitch>(factors + digit * contracted * pitch, digit,
                                                     parameters, batch);
    }
  } else {
    load_factor<Step, contracted, produced, pitch>(factors + Step::factor_at(Digit), Digit,
                                                   parameters, batch);
    if constexpr (Digit + 1 < Step::kDigits)
      load_factors<Step, Digit + 1>(factors, parameters, batch);
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void load_tile(typename Step::Accumulator* tile, const Parameters& parameters,
                             const Window<Step>& window) {
  using Input = typename Step::Input;
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = Step::kXVector;
  using Part = Chunk<Step, Step::kSizeIn, vector>;
  constexpr int unroll = Step::kUnroll;
  const Input* x = static_cast<const Input*>(parameters.x);
#pragma unroll 1
  for (int start = threadIdx.x; start < Part::kCount; start += Step::kThreads * unroll) {
    Vector<Input, vector> parts[unroll] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int index = start + u * Step::kThreads;
      const Part part(index);
      if (index < Part::kCount && part.row < window.rows && part.column < window.columns) {
        const Input* from =
            x + window.x(part.row) + part.k * parameters.digit_x + part.column * parameters.inner_x;
        if (vector == 1 || (parameters.x_vector && part.column_of(vector - 1) < window.columns)) {
          parts[u] = load<Input, vector>(from);
        } else {
          const long long step = Part::kAlongDigits ? parameters.digit_x : parameters.inner_x;
#pragma unroll
          for (int v = 0; v < vector; ++v) {
            if (part.column_of(v) < window.columns) parts[u].data[v] = from[v * step];
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int index = start + u * Step::kThreads;
      const Part part(index);
      if (index < Part::kCount) {
#pragma unroll
        for (int v = 0; v < vector; ++v) {
          const int at =
              part.row * Step::kRowStride + spread<Step, false>(part.digit(v)) + part.column_of(v);
          tile[place<Step>(at)] = convert<Accumulator>(parts[u].data[v]);
        }
      }
    }
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void store_tile(const typename Step::Accumulator* tile, const Parameters& parameters,
                              const Window<Step>& window) {
  using Output = typename Step::Output;
  constexpr int vector = Step::kYVector;
  using Part = Chunk<Step, Step::kSizeOut, vector>;
  const Finish<Step> finish(parameters);
  Output* y = static_cast<Output*>(parameters.y);
  const Output* z = static_cast<const Output*>(parameters.z);
#pragma unroll 2
  for (int index = threadIdx.x; index < Part::kCount; index += Step::kThreads) {
    const Part part(index);
    if (part.row >= window.rows || part.column >= window.columns) continue;
    const long long from =
        window.z(part.row) + part.k * parameters.digit_z + part.column * parameters.inner_z;
    const long long to =
        window.y(part.row) + part.k * parameters.digit_y + part.column * parameters.inner_y;
    const long long from_step = Part::kAlongDigits ? parameters.digit_z : parameters.inner_z;
    const long long to_step = Part::kAlongDigits ? parameters.digit_y : parameters.inner_y;
    const bool wide =
        vector == 1 || (parameters.y_vector && part.column_of(vector - 1) < window.columns);
    Vector<Output, vector> source{}, result;
    if (z && wide) source = load<Output, vector>(z + from);
#pragma unroll
    for (int v = 0; v < vector; ++v) {
      if (z && !wide && part.column_of(v) < window.columns)
        source.data[v] = z[from + v * from_step];
      const int at =
          part.row * Step::kRowStride + spread<Step, true>(part.digit(v)) + part.column_of(v);
      result.data[v] = finish(tile[place<Step>(at)], source.data[v]);
    }
    if (wide) {
      store<Output, vector>(y + to, result);
    } else {
#pragma unroll
      for (int v = 0; v < vector; ++v) {
        if (part.column_of(v) < window.columns) y[to + v * to_step] = result.data[v];
      }
    }
  }
}

}  // namespace kron

template <class Decided, class Parameters>
KRONOP_INLINE void kron_tile(const Parameters& parameters) {
  using Step = kron::SimtStep<Decided>;
  using Accumulator = typename Step::Accumulator;
  unsigned char* shared = shared_memory();
  Accumulator* factors = reinterpret_cast<Accumulator*>(shared + Step::kFactorBytesAt);
  Accumulator* tile = reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt);
  const kron::Tiles<Step, Parameters> tiles(parameters);
#pragma unroll 1
  for (long long index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
    const kron::Window<Step> window = tiles.open(index, 0);
    kron::load_factors<Step>(factors, parameters, window.batch);
    __syncthreads();
    kron::load_tile<Step>(tile, parameters, window);
    __syncthreads();
    kron::all_phases<Step>(tile, factors);
    kron::store_tile<Step>(tile, parameters, window);
    // The next round overwrites the tile and the factors, which other threads may still read.
    __syncthreads();
  }
}

}  // namespace kronop
