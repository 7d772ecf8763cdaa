// A pass of a Kronecker matmul on the tensor cores: a contiguous group of digits of a tile.
//
// A tile is [kRows][group of digits][kColumns]. Columns are the free index that is contiguous in
// memory, rows are the other free indices. Each phase contracts one digit of all fibers along it:
// a warp takes 16 or 32 fibers, multiplies them by the factor and puts the results where the fibers
// were. The tile is in shared memory, with strides that are padded against bank conflicts; a phase
// whose fibers are contiguous in memory may read X or write Y itself.
#pragma once

#include "kron_parameters.cuh"
#include "mma.cuh"

namespace kronop {
namespace kron {

// Where a fiber lies: in the tile, and in memory as row, index of the other digits, and column.
struct Place {
  int shared = 0, row = 0, digits = 0, column = 0;
};

// Mixed radix over the axes that a phase leaves free, last one fastest.
template <class Step, int Phase, int Axis = Step::kPhaseAxis[Phase + 1] - 1>
KRONOP_INLINE void walk(Place& place, int fiber) {
  constexpr bool first = Axis == Step::kPhaseAxis[Phase];
  constexpr int extent = Step::kAxisExtent[Axis];
  const int index = first ? fiber : fiber % extent;
  place.shared += index * Step::kAxisShared[Axis];
  place.row += index * Step::kAxisRow[Axis];
  place.digits += index * Step::kAxisDigits[Axis];
  place.column += index * Step::kAxisColumn[Axis];
  if constexpr (!first) walk<Step, Phase, Axis - 1>(place, fiber / extent);
}

// What a phase is made of, at compile time.
template <class Step, int Phase>
struct PhaseOf {
  using Accumulator = typename Step::Accumulator;
  static constexpr int kDigit = Step::kPhaseDigit[Phase];
  static constexpr int kContracted = Step::kContracted[kDigit], kProduced = Step::kProduced[kDigit];
  static constexpr int kStride = Step::kStride[kDigit];
  static constexpr int kContractedParts = (kContracted + 7) / 8, kProducedParts = (kProduced + 7) / 8;
  // Whether the digit itself is what is contiguous in the tile.
  static constexpr bool kUnit = kStride == 1;
  static constexpr int kGroups = Step::kPhaseGroups[Phase];  // of 16 fibers that a warp takes at once
  static constexpr int kLanes = 2 * kGroups;                 // fibers of a thread
  // Whether a thread's fibers are neighbours in memory, one vector.
  static constexpr bool kNeighbours = Step::kPhaseNeighbours[Phase];
  static constexpr int kPlaces = kNeighbours ? 1 : kLanes;
  static constexpr int kFibers = Step::kPhaseFibers[Phase];
  static constexpr bool kFromMemory = Phase == 0 && !Step::kStageX;
  static constexpr bool kToMemory = Phase + 1 == Step::kPhases && !Step::kStageY;
  // 16-bit inputs are exact in the operand type.
  static constexpr bool kSplitA = Step::kSplitX && !(Phase == 0 && sizeof(typename Step::Input) == 2);
  static constexpr int kInStride = Step::kDigitsIn[kDigit], kOutStride = Step::kDigitsOut[kDigit];
  using A = Split<Accumulator, 4, kSplitA>;
  using B = Split<Accumulator, 2, Step::kSplitFactor>;
  // Held in registers for the whole phase where there are few.
  static constexpr bool kHoldFactor = kContractedParts * kProducedParts * sizeof(B) <= 64;
  static constexpr int kAtOnce = kProducedParts < 4 / kGroups ? kProducedParts : 4 / kGroups;

  // Index along the digit of a thread's element r of part s.
  KRONOP_INLINE static int index(int s, int r) {
    const int t = threadIdx.x % 4;
    return 8 * s + (kUnit ? 2 * t + r : t + 4 * r);
  }
  KRONOP_INLINE static int fiber(int first, int lane) {
    const int g = threadIdx.x % 32 / 4;
    return first + (kUnit ? 8 * lane + g : kLanes * g + lane);
  }
};

// Factor `digit` in shared memory, as its phase's threads take it: [part of P][part of Q][32 threads].
template <class Step, int Phase, class Parameters>
KRONOP_INLINE void load_factor(unsigned char* shared, const Parameters& parameters, const long long (&batch)[4]) {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  constexpr int digit = Of::kDigit;
  auto* to = reinterpret_cast<typename Of::B*>(shared + Step::kFactorBytesAt[digit]);
  const auto* source = static_cast<const typename Step::Factor*>(parameters.factor[digit]);
#pragma unroll
  for (int axis = 0; axis < 4; ++axis) source += batch[axis] * parameters.factor_batch[digit * 4 + axis];
#pragma unroll 1
  for (int e = threadIdx.x; e < Of::kContractedParts * Of::kProducedParts * 32; e += Step::kThreads) {
    const int t = e % 4, g = e % 32 / 4, part = e / 32;
    const int q = part % Of::kProducedParts * 8 + (Of::kUnit ? g : g / 2 + g % 2 * 4);
    typename Of::B item{};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int p = part / Of::kProducedParts * 8 + (Of::kUnit ? 2 * t + r : t + 4 * r);
      if (p < Of::kContracted && q < Of::kProduced) {
        item.set(r, convert<Accumulator>(source[p * parameters.factor_row[digit] + q * parameters.factor_column[digit]]));
      }
    }
    to[e] = item;
  }
}

template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void load_factors(unsigned char* shared, const Parameters& parameters, const long long (&batch)[4]) {
  load_factor<Step, Phase>(shared, parameters, batch);
  if constexpr (Phase + 1 < Step::kPhases) load_factors<Step, Phase + 1>(shared, parameters, batch);
}

// An operand in memory: its strides, as constants where the step knows them.
template <bool kWide, int kDigit>
struct Strides {
  long long digit, inner;
  KRONOP_INLINE Strides(long long digit, long long inner)
      : digit(kWide && kDigit ? kDigit : digit), inner(kWide ? 1 : inner) {}
  KRONOP_INLINE long long at(const Place& place) const { return place.digits * digit + place.column * inner; }
};

// Which of a thread's fibers exist; neighbours share a place.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE bool exists(const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces], int lane, const Window& window) {
  const int i = Of::kNeighbours ? 0 : lane, column = Of::kNeighbours && Step::kColumns > 1 ? lane : 0;
  return live[i] && places[i].row < window.rows && places[i].column + column < window.columns;
}

// The fibers of a thread, from X. All loads are issued before the first one is needed.
template <class Step, int Phase, bool kWide, class Of = PhaseOf<Step, Phase>, class Parameters>
KRONOP_INLINE void read_memory(typename Of::A (&a)[Of::kContractedParts][Of::kGroups], const Place (&places)[Of::kPlaces],
                               const bool (&live)[Of::kPlaces], const Parameters& parameters, const Window& window) {
  using Input = typename Step::Input;
  // A thread's elements lie along the digit where that is contiguous, and across its fibers elsewhere.
  constexpr int vector = !kWide ? 1 : Of::kUnit ? 2 : Of::kLanes;
  constexpr int loads = vector > 1 && !Of::kUnit ? 1 : Of::kLanes, pairs = vector > 1 && Of::kUnit ? 1 : 2;
  const Strides<kWide, Step::kXDigit> strides(parameters.digit_x, parameters.inner_x);
  const long long digit = strides.digit * Of::kInStride, neighbour = Step::kColumns > 1 ? strides.inner : strides.digit;
  Input items[Of::kContractedParts][2][Of::kLanes] = {};
#pragma unroll
  for (int lane = 0; lane < loads; ++lane) {
    const Place& place = places[Of::kNeighbours ? 0 : lane];
    if (!exists<Step, Phase>(places, live, lane, window)) continue;
    const Input* from = static_cast<const Input*>(parameters.x) + window.offsets.x[place.row] + strides.at(place) +
                        (Of::kNeighbours ? lane * neighbour : 0) + Of::index(0, 0) * digit;
#pragma unroll
    for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
      for (int r = 0; r < pairs; ++r) {
        if (Of::kContracted % 8 != 0 && Of::index(s, r) >= Of::kContracted) continue;
        const auto part = load<Input, vector>(from + (Of::index(s, r) - Of::index(0, 0)) * digit);
#pragma unroll
        for (int v = 0; v < vector; ++v) items[s][pairs == 1 ? v : r][loads == 1 ? v : lane] = part.data[v];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        a[s][lane / 2].set(lane % 2 + 2 * r, convert<typename Step::Accumulator>(items[s][r][lane]));
      }
    }
  }
}

// The fibers of a thread, from the tile.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void read_tile(typename Of::A (&a)[Of::kContractedParts][Of::kGroups], const Place (&places)[Of::kPlaces],
                             const typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
    if constexpr (Of::kUnit) {
      // The slots of a digit are even, so that a pair stays within them.
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        const int p = Of::index(s, 0);
        const bool inside = Of::kContracted % 8 == 0 || p < Of::kContracted;
        const auto pair = load<Accumulator, 2>(tile + places[lane].shared + (inside ? p : 0));
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          a[s][lane / 2].set(lane % 2 + 2 * r, Of::kContracted % 8 == 0 || p + r < Of::kContracted ? pair.data[r] : Accumulator{});
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int p = Of::index(s, r);
        const bool inside = Of::kContracted % 8 == 0 || p < Of::kContracted;
        const int at = (inside ? p : 0) * Of::kStride;
        if constexpr (Of::kNeighbours) {
          const auto row = load<Accumulator, Of::kLanes>(tile + places[0].shared + at);
#pragma unroll
          for (int lane = 0; lane < Of::kLanes; ++lane) a[s][lane / 2].set(lane % 2 + 2 * r, inside ? row.data[lane] : Accumulator{});
        } else {
#pragma unroll
          for (int lane = 0; lane < Of::kLanes; ++lane) {
            const Accumulator value = tile[places[lane].shared + at];
            a[s][lane / 2].set(lane % 2 + 2 * r, inside ? value : Accumulator{});
          }
        }
      }
    }
  }
}

// Sums of the produced indices of part n, as [r][lane], to the tile.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void write_tile(const typename Step::Accumulator (&values)[2][Of::kLanes], int n, const bool (&live)[Of::kPlaces],
                              const Place (&places)[Of::kPlaces], typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr bool whole = Of::kProduced % 8 == 0;
  if constexpr (Of::kUnit) {
    const int q = Of::index(n, 0);
    if (!whole && q >= Of::kProduced) return;
#pragma unroll
    for (int lane = 0; lane < Of::kLanes; ++lane) {
      if (live[lane]) store<Accumulator, 2>(tile + places[lane].shared + q, {values[0][lane], values[1][lane]});
    }
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int q = Of::index(n, r);
      if (!whole && q >= Of::kProduced) continue;
      if constexpr (Of::kNeighbours) {
        Vector<Accumulator, Of::kLanes> row;
#pragma unroll
        for (int lane = 0; lane < Of::kLanes; ++lane) row.data[lane] = values[r][lane];
        if (live[0]) store<Accumulator, Of::kLanes>(tile + places[0].shared + q * Of::kStride, row);
      } else {
#pragma unroll
        for (int lane = 0; lane < Of::kLanes; ++lane) {
          if (live[lane]) tile[places[lane].shared + q * Of::kStride] = values[r][lane];
        }
      }
    }
  }
}


// The same sums through the epilogue, to Y.
template <class Step, int Phase, bool kWide, class Of = PhaseOf<Step, Phase>, class Parameters>
KRONOP_INLINE void write_memory(const typename Step::Accumulator (&values)[2][Of::kLanes], int n,
                                const bool (&live)[Of::kPlaces], const Place (&places)[Of::kPlaces],
                                const Finish<Step>& finish, const Parameters& parameters, const Window& window) {
  using Output = typename Step::Output;
  constexpr int vector = !kWide ? 1 : Of::kUnit ? 2 : Of::kLanes;
  constexpr int stores = vector > 1 && !Of::kUnit ? 1 : Of::kLanes, pairs = vector > 1 && Of::kUnit ? 1 : 2;
  using Part = Vector<Output, vector>;
  const Strides<kWide, Step::kYDigit> y_strides(parameters.digit_y, parameters.inner_y);
  const Strides<kWide, Step::kYDigit> z_strides(parameters.digit_z, parameters.inner_z);
  const auto start = [&](const auto& strides, const long long* offsets, int lane) {
    const Place& place = places[Of::kNeighbours ? 0 : lane];
    return offsets[place.row] + strides.at(place) + Of::index(0, 0) * Of::kOutStride * strides.digit +
           (Of::kNeighbours ? lane * (Step::kColumns > 1 ? strides.inner : strides.digit) : 0);
  };
  const auto along = [&](const auto& strides, int r) {
    return (Of::index(n, r) - Of::index(0, 0)) * Of::kOutStride * strides.digit;
  };
  const auto skipped = [&](int r) { return Of::kProduced % 8 != 0 && Of::index(n, r) >= Of::kProduced; };
  Part sources[stores][pairs] = {};
  if (parameters.z) {
#pragma unroll
    for (int lane = 0; lane < stores; ++lane) {
      if (!exists<Step, Phase>(places, live, lane, window)) continue;
      const Output* z = static_cast<const Output*>(parameters.z) + start(z_strides, window.offsets.z, lane);
#pragma unroll
      for (int r = 0; r < pairs; ++r) {
        if (!skipped(r)) sources[lane][r] = load<Output, vector>(z + along(z_strides, r));
      }
    }
  }
#pragma unroll
  for (int lane = 0; lane < stores; ++lane) {
    if (!exists<Step, Phase>(places, live, lane, window)) continue;
    Output* y = static_cast<Output*>(parameters.y) + start(y_strides, window.offsets.y, lane);
#pragma unroll
    for (int r = 0; r < pairs; ++r) {
      if (skipped(r)) continue;
      Part result;
#pragma unroll
      for (int v = 0; v < vector; ++v) {
        result.data[v] = finish(values[pairs == 1 ? v : r][stores == 1 ? v : lane], sources[lane][r].data[v], Output{});
      }
      store<Output, vector>(y + along(y_strides, r), result);
    }
  }
}

// All products of one part of the contraction, into the sums of parts n0 ... of the produced index.
template <int kIndex, int kParts, class T, class A, class B, int kGroups, int kAtOnce>
KRONOP_INLINE void add_products(T (&sums)[kAtOnce][kGroups][4], const A (&a)[kGroups], const B (&b)[kAtOnce], int n0) {
#pragma unroll
  for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
    for (int u = 0; u < kGroups; ++u) {
      if (n0 + n < kParts) add_product<kIndex>(sums[n][u], a[u], b[n]);
    }
  }
  if constexpr (kIndex + 1 < products_of<A, B>) add_products<kIndex + 1, kParts>(sums, a, b, n0);
}

template <class Step, int Phase, class Parameters>
KRONOP_INLINE void run_phase(unsigned char* shared, const Parameters& parameters, const Window& window) {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  using B = typename Of::B;
  constexpr int fibers_at_once = 16 * Of::kGroups, parts = Of::kContractedParts * Of::kProducedParts;
  const B* factor = reinterpret_cast<const B*>(shared + Step::kFactorBytesAt[Of::kDigit]) + threadIdx.x % 32;
  Accumulator* tile = reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt);
  const Finish<Step> finish(parameters);
  const bool whole = Step::kColumns == 1 || window.columns == Step::kColumns;
  const bool x_wide = Step::kXVector > 1 && parameters.x_vector && whole;
  const bool y_wide = Step::kYVector > 1 && parameters.y_vector && whole;
  B held[Of::kHoldFactor ? parts : 1];
  if constexpr (Of::kHoldFactor) {
#pragma unroll
    for (int part = 0; part < parts; ++part) held[part] = factor[part * 32];
  }
  constexpr int at_once = Step::kThreads / 32 * fibers_at_once;
  constexpr int unrolled = Step::kRegular && Of::kFibers % (at_once * 2) == 0 ? 2 : 1;
#pragma unroll 1
  for (int start = threadIdx.x / 32 * fibers_at_once; start < Of::kFibers; start += at_once * unrolled) {
    Place bases[Of::kPlaces];
    bool live[Of::kPlaces];
#pragma unroll
    for (int i = 0; i < Of::kPlaces; ++i) {
      const int fiber = Of::fiber(start, i);
      live[i] = Of::kFibers % fibers_at_once == 0 || fiber < Of::kFibers;
      walk<Step, Phase>(bases[i], live[i] ? fiber : 0);
    }
#pragma unroll
    for (int again = 0; again < unrolled; ++again) {
    Place places[Of::kPlaces];
#pragma unroll
    for (int i = 0; i < Of::kPlaces; ++i) {
      places[i] = bases[i];
      walk<Step, Phase>(places[i], again * at_once);
    }
    typename Of::A a[Of::kContractedParts][Of::kGroups];
    if constexpr (Of::kFromMemory) {
      if (x_wide) {
        read_memory<Step, Phase, true>(a, places, live, parameters, window);
      } else {
        read_memory<Step, Phase, false>(a, places, live, parameters, window);
      }
    } else {
      read_tile<Step, Phase>(a, places, tile);
    }
#pragma unroll
    for (int n0 = 0; n0 < Of::kProducedParts; n0 += Of::kAtOnce) {
      Accumulator sums[Of::kAtOnce][Of::kGroups][4] = {};
#pragma unroll
      for (int s = 0; s < Of::kContractedParts; ++s) {
        B b[Of::kAtOnce];
#pragma unroll
        for (int n = 0; n < Of::kAtOnce; ++n) {
          const int part = s * Of::kProducedParts + n0 + n;
          if (n0 + n < Of::kProducedParts) b[n] = Of::kHoldFactor ? held[Of::kHoldFactor ? part : 0] : factor[part * 32];
        }
        add_products<0, Of::kProducedParts>(sums, a[s], b, n0);
      }
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
        if (n0 + n < Of::kProducedParts) {
          Accumulator values[2][Of::kLanes];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int lane = 0; lane < Of::kLanes; ++lane) values[r][lane] = sums[n][lane / 2][lane % 2 * 2 + r];
          }
          if constexpr (Of::kToMemory) {
            if (y_wide) {
              write_memory<Step, Phase, true>(values, n0 + n, live, places, finish, parameters, window);
            } else {
              write_memory<Step, Phase, false>(values, n0 + n, live, places, finish, parameters, window);
            }
          } else {
            write_tile<Step, Phase>(values, n0 + n, live, places, tile);
          }
        }
      }
    }
    }
  }
}

// Calls visit(offset of the row, row, k, step of k, column, place in the tile) for a thread's chunks.
// Where all sizes are powers of two, no carry links a thread's first chunk with the steps to its next
// ones: steps are constants then.
template <class Step, bool Produced, int kVector, class Visit>
KRONOP_INLINE void for_each_chunk(const Window& window, const long long* offsets, Visit visit) {
  using Part = Chunk<Step, Produced ? Step::kGroupOut : Step::kGroupIn, kVector>;
  if constexpr (Step::kRegular && Part::kCount % Step::kThreads == 0) {
    constexpr int unrolled = Part::kCount / Step::kThreads < 16 ? Part::kCount / Step::kThreads : 16;
    const Part first(threadIdx.x);
#pragma unroll 1
    for (int start = 0; start < Part::kCount; start += unrolled * Step::kThreads) {
      const Part outer(start);
      const int row = first.row + outer.row, k = first.k + outer.k, column = first.column + outer.column;
      const int at = row * Step::kRowStride + spread<Step, Produced>(k) + column;
      long long offset[unrolled];
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const int before = u > 0 ? Part((u - 1) * Step::kThreads).row : -1, now = Part(u * Step::kThreads).row;
        offset[u] = now == before ? offset[u > 0 ? u - 1 : 0] : offsets[row + now];
      }
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const Part step(u * Step::kThreads);
        if (row + step.row >= window.rows || column + step.column >= window.columns) continue;
        visit(offset[u], row + step.row, k, step.k, column + step.column,
              at + step.row * Step::kRowStride + spread<Step, Produced>(step.k) + step.column);
      }
    }
  } else {
#pragma unroll 1
    for (int index = threadIdx.x; index < Part::kCount; index += Step::kThreads) {
      const Part part(index);
      if (part.row >= window.rows || part.column >= window.columns) continue;
      visit(offsets[part.row], part.row, part.k, 0, part.column,
            part.row * Step::kRowStride + spread<Step, Produced>(part.k) + part.column);
    }
  }
}

// X into the tile.
template <class Step, bool kWide, class Parameters>
KRONOP_INLINE void stage_in(typename Step::Accumulator* tile, const Parameters& parameters, const Window& window) {
  using Input = typename Step::Input;
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = kWide ? Step::kXVector : 1, piece = vector < 4 ? vector : 4;
  const Strides<kWide, Step::kXDigit> strides(parameters.digit_x, parameters.inner_x);
  const Input* x = static_cast<const Input*>(parameters.x);
  for_each_chunk<Step, false, vector>(window, window.offsets.x, [&](long long offset, int, int k, int step, int column, int at) {
    const Input* from = x + (offset + k * strides.digit + column * strides.inner) + step * strides.digit;
    if constexpr (detail::same<Input, Accumulator>) {
      copy_asynchronously<vector * sizeof(Input)>(tile + at, from);
    } else {
      const auto items = load<Input, vector>(from);
#pragma unroll
      for (int first = 0; first < vector; first += piece) {
        Vector<Accumulator, piece> values;
#pragma unroll
        for (int v = 0; v < piece; ++v) values.data[v] = convert<Accumulator>(items.data[first + v]);
        store<Accumulator, piece>(tile + at + first, values);
      }
    }
  });
  if constexpr (detail::same<Input, Accumulator>) wait_for_copies();
}

// The tile through the epilogue to Y, with a source Z or without.
template <class Step, bool kWide, bool kSource, class Parameters>
KRONOP_INLINE void stage_out(const typename Step::Accumulator* tile, const Parameters& parameters, const Window& window) {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = kWide ? Step::kYVector : 1, piece = vector < 4 ? vector : 4;
  const Strides<kWide, Step::kYDigit> y_strides(parameters.digit_y, parameters.inner_y);
  const Strides<kWide, Step::kYDigit> z_strides(parameters.digit_z, parameters.inner_z);
  const Finish<Step> finish(parameters);
  Output* y = static_cast<Output*>(parameters.y);
  const Output* z = static_cast<const Output*>(parameters.z);
  for_each_chunk<Step, true, vector>(window, window.offsets.y, [&](long long offset, int row, int k, int step, int column, int at) {
    Vector<Output, vector> source{}, result;
    if constexpr (kSource) {
      source = load<Output, vector>(z + (window.offsets.z[row] + k * z_strides.digit + column * z_strides.inner) + step * z_strides.digit);
    }
#pragma unroll
    for (int first = 0; first < vector; first += piece) {
      const auto values = load<Accumulator, piece>(tile + at + first);
#pragma unroll
      for (int v = 0; v < piece; ++v) result.data[first + v] = finish(values.data[v], source.data[first + v], Output{});
    }
    store<Output, vector>(y + (offset + k * y_strides.digit + column * y_strides.inner) + step * y_strides.digit, result);
  });
}

template <class Step, bool kWide, class Parameters>
KRONOP_INLINE void stage_out(const typename Step::Accumulator* tile, const Parameters& parameters, const Window& window) {
  if (parameters.z) {
    stage_out<Step, kWide, true>(tile, parameters, window);
  } else {
    stage_out<Step, kWide, false>(tile, parameters, window);
  }
}

template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void run_phases(unsigned char* shared, const Parameters& parameters, const Window& window) {
  run_phase<Step, Phase>(shared, parameters, window);
  if constexpr (Phase + 1 < Step::kPhases) {
    __syncthreads();
    run_phases<Step, Phase + 1>(shared, parameters, window);
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void run_tile(unsigned char* shared, const Parameters& parameters, const Window& window) {
  auto* tile = reinterpret_cast<typename Step::Accumulator*>(shared + Step::kTileBytesAt);
  // Whole vectors: the step has them, pointers and strides allow them, and the tile is not cut inside one.
  const bool whole = Step::kColumns == 1 || window.columns == Step::kColumns;
  if constexpr (Step::kStageX) {
    if (Step::kXVector > 1 && parameters.x_vector && whole) {
      stage_in<Step, true>(tile, parameters, window);
    } else {
      stage_in<Step, false>(tile, parameters, window);
    }
    __syncthreads();
  }
  run_phases<Step>(shared, parameters, window);
  if constexpr (Step::kStageY) {
    __syncthreads();
    if (Step::kYVector > 1 && parameters.y_vector && whole) {
      stage_out<Step, true>(tile, parameters, window);
    } else {
      stage_out<Step, false>(tile, parameters, window);
    }
  }
}

}  // namespace kron

// Blocks walk over (batch, tile of rows, tile of columns), columns fastest.
template <class Step, class Parameters>
KRONOP_INLINE void kron_mma(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  bool batched = false;
#pragma unroll 1
  for (int i = 0; i < Step::kDigits * 4; ++i) batched = batched || parameters.factor_batch[i] != 0;
  long long loaded = -1;
  kron::for_each_tile<Step>(parameters, RowOffsets(shared, Step::kRows), [&](const kron::Window& window, const long long (&batch)[4], long long index) {
    if (loaded < 0 || (batched && index != loaded)) {
      kron::load_factors<Step>(shared, parameters, batch);
      loaded = index;
    }
    __syncthreads();
    kron::run_tile<Step>(shared, parameters, window);
    // The next round overwrites what is read here.
    __syncthreads();
  });
}

}  // namespace kronop
