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

// Where a fiber lies: its first element in the tile, and its row.
struct Place {
  int shared = 0, row = 0;
};

// Mixed radix over the axes that a phase leaves free, last one fastest.
template <class Step, int Phase, int Axis = Step::kPhaseAxis[Phase + 1] - 1>
KRONOP_INLINE void walk(Place& place, int fiber) {
  constexpr bool first = Axis == Step::kPhaseAxis[Phase];
  constexpr int extent = Step::kAxisExtent[Axis];
  const int index = first ? fiber : fiber % extent;
  place.shared += index * Step::kAxisShared[Axis];
  place.row += index * Step::kAxisRow[Axis];
  if constexpr (!first) walk<Step, Phase, Axis - 1>(place, fiber / extent);
}

// Whole vectors: the step has them, pointers and strides allow them, and the tile is not cut inside one.
template <class Step>
KRONOP_INLINE bool wide(int vector, long long allowed, const Window<Step>& window) {
  return vector > 1 && allowed && (Step::kColumns == 1 || window.columns == Step::kColumns);
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
  // 16-bit inputs are exact in the operand type.
  static constexpr bool kSplitA = Step::kSplitX && !(Phase == 0 && sizeof(typename Step::Input) == 2);
  using Fibers = Accumulator[kContractedParts][kGroups][4];  // as the tensor cores take them, unsplit
  using A = Split<Accumulator, 4, kSplitA>;
  using B = Split<Accumulator, 2, Step::kSplitFactor>;
  // Held in registers for the whole phase where there are few.
  static constexpr bool kHoldFactor = kContractedParts * kProducedParts * sizeof(B) <= 64;
  // Parts of the produced index whose sums a thread holds at once: independent products hide latency.
  static constexpr int kSums = (kContractedParts > 8 ? 2 : 4) / kGroups;
  static constexpr int kAtOnce = kProducedParts < kSums ? kProducedParts : kSums;

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

// Element (p, q) of a digit's factor: the product of the elements of the factors that it is made of.
template <class Step, int Factor, int First, class Parameters>
KRONOP_INLINE typename Step::Accumulator factor_element(const typename Step::Factor* const (&sources)[Factor - First + 1],
                                                        const Parameters& parameters, int p, int q) {
  constexpr int contracted = Step::kFactorContracted[Factor], produced = Step::kFactorProduced[Factor];
  const int row = Factor == First ? p : p % contracted, column = Factor == First ? q : q % produced;
  const auto value = convert<typename Step::Accumulator>(
      sources[Factor - First][row * parameters.factor_row[Factor] + column * parameters.factor_column[Factor]]);
  if constexpr (Factor == First) {
    return value;
  } else {
    const typename Step::Factor* rest[Factor - First];
#pragma unroll
    for (int i = 0; i < Factor - First; ++i) rest[i] = sources[i];
    return factor_element<Step, Factor - 1, First>(rest, parameters, p / contracted, q / produced) * value;
  }
}

// A digit's factor in shared memory, as its phase's threads take it: [part of P][part of Q][32 threads].
template <class Step, int Phase, class Parameters>
KRONOP_INLINE void load_factor(unsigned char* shared, const Parameters& parameters, long long batch) {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  constexpr int digit = Of::kDigit, pairs = Of::kContractedParts * Of::kProducedParts * 32;
  constexpr int first = Step::kFactorFirst[digit], last = Step::kFactorFirst[digit + 1] - 1;
  // Many loads in flight, but where each element is a product of several.
  constexpr int unroll = first == last ? 8 : 1;
  auto* to = reinterpret_cast<typename Of::B*>(shared + Step::kFactorBytesAt[digit]);
  const typename Step::Factor* sources[last - first + 1];
#pragma unroll
  for (int i = first; i <= last; ++i) {
    sources[i - first] = static_cast<const typename Step::Factor*>(parameters.factor[i]) + factor_offset(parameters, i, batch);
  }
#pragma unroll 1
  for (int start = threadIdx.x; start < pairs; start += Step::kThreads * unroll) {
    Accumulator items[unroll][2] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int e = start + u * Step::kThreads, t = e % 4, g = e % 32 / 4, part = e / 32;
      const int q = part % Of::kProducedParts * 8 + (Of::kUnit ? g : g / 2 + g % 2 * 4);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int p = part / Of::kProducedParts * 8 + (Of::kUnit ? 2 * t + r : t + 4 * r);
        if (p < Of::kContracted && q < Of::kProduced) items[u][r] = factor_element<Step, last, first>(sources, parameters, p, q);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int e = start + u * Step::kThreads;
      if (e < pairs) to[e] = typename Of::B(items[u]);
    }
  }
}

template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void load_factors(unsigned char* shared, const Parameters& parameters, long long batch) {
  load_factor<Step, Phase>(shared, parameters, batch);
  if constexpr (Phase + 1 < Step::kPhases) load_factors<Step, Phase + 1>(shared, parameters, batch);
}

// An operand in memory: its strides, as constants where the step knows them.
template <bool kWide, int kDigit>
struct Strides {
  long long digit, inner;
  KRONOP_INLINE Strides(long long digit, long long inner)
      : digit(kWide && kDigit ? kDigit : digit), inner(kWide ? 1 : inner) {}
};

// The fibers of a thread along a contiguous digit, from X. All loads are issued before one is needed.
template <class Step, int Phase, bool kWide, class Of = PhaseOf<Step, Phase>, class Parameters>
KRONOP_INLINE void read_memory(typename Of::Fibers& a, const Place (&places)[Of::kPlaces],
                               const bool (&live)[Of::kPlaces], const Parameters& parameters, const Window<Step>& window) {
  using Input = typename Step::Input;
  constexpr int vector = kWide ? 2 : 1;
  const Strides<kWide, Step::kXDigit> strides(parameters.digit_x, parameters.inner_x);
  Input items[Of::kContractedParts][2][Of::kLanes] = {};
#pragma unroll
  for (int lane = 0; lane < Of::kLanes; ++lane) {
    if (!live[lane] || places[lane].row >= window.rows) continue;
    const Input* from = static_cast<const Input*>(parameters.x) + window.x(places[lane].row) + Of::index(0, 0) * strides.digit;
#pragma unroll
    for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
      for (int r = 0; r < 2; r += vector) {
        if (Of::kContracted % 8 != 0 && Of::index(s, r) >= Of::kContracted) continue;
        const auto part = load<Input, vector>(from + (8 * s + r) * strides.digit);
#pragma unroll
        for (int v = 0; v < vector; ++v) items[s][r + v][lane] = part.data[v];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        a[s][lane / 2][lane % 2 + 2 * r] = convert<typename Step::Accumulator>(items[s][r][lane]);
      }
    }
  }
}

// N elements of the tile, or zeros where there are none to read: their places may be another warp's.
template <class Accumulator, int N>
KRONOP_INLINE Vector<Accumulator, N> load_if(bool there, const Accumulator* from) {
  Vector<Accumulator, N> values{};
  if (there) values = load<Accumulator, N>(from);
  return values;
}

// The fibers of a thread, from the tile.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void read_tile(typename Of::Fibers& a, const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces],
                             const typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr bool whole = Of::kContracted % 8 == 0;
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
    if constexpr (Of::kUnit) {
      const int p = Of::index(s, 0);
      // The slots of a digit are even, so that a pair stays within them.
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        const bool there = live[lane] && (whole || p < Of::kContracted);
        const auto pair = load_if<Accumulator, 2>(there, tile + places[lane].shared + p);
#pragma unroll
        for (int r = 0; r < 2; ++r) a[s][lane / 2][lane % 2 + 2 * r] = whole || p + r < Of::kContracted ? pair.data[r] : Accumulator{};
      }
    } else {
      constexpr int vector = Of::kNeighbours ? Of::kLanes : 1;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int p = Of::index(s, r);
#pragma unroll
        for (int first = 0; first < Of::kLanes; first += vector) {
          const bool there = live[first / vector] && (whole || p < Of::kContracted);
          const auto row = load_if<Accumulator, vector>(there, tile + places[first / vector].shared + p * Of::kStride);
#pragma unroll
          for (int v = 0; v < vector; ++v) a[s][(first + v) / 2][(first + v) % 2 + 2 * r] = row.data[v];
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
                                const Finish<Step>& finish, const Parameters& parameters, const Window<Step>& window) {
  using Output = typename Step::Output;
  constexpr int vector = kWide ? 2 : 1;
  const Strides<kWide, Step::kYDigit> y_strides(parameters.digit_y, parameters.inner_y);
  const Strides<kWide, Step::kYDigit> z_strides(parameters.digit_z, parameters.inner_z);
#pragma unroll
  for (int lane = 0; lane < Of::kLanes; ++lane) {
    if (!live[lane] || places[lane].row >= window.rows) continue;
    Output* y = static_cast<Output*>(parameters.y) + window.y(places[lane].row) + Of::index(0, 0) * y_strides.digit;
    const Output* z = static_cast<const Output*>(parameters.z) + window.z(places[lane].row) + Of::index(0, 0) * z_strides.digit;
#pragma unroll
    for (int r = 0; r < 2; r += vector) {
      if (Of::kProduced % 8 != 0 && Of::index(n, r) >= Of::kProduced) continue;
      Vector<Output, vector> source{}, result;
      if (parameters.z) source = load<Output, vector>(z + (8 * n + r) * z_strides.digit);
#pragma unroll
      for (int v = 0; v < vector; ++v) result.data[v] = finish(values[r + v][lane], source.data[v], Output{});
      store<Output, vector>(y + (8 * n + r) * y_strides.digit, result);
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

// The sums of parts n0 ... of the produced index.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>, class Factor>
KRONOP_INLINE void multiply(typename Step::Accumulator (&sums)[Of::kAtOnce][Of::kGroups][4], const typename Of::Fibers& fibers, int n0,
                            const Factor& factor) {
  // NOTE: the tensor cores truncate each sum. Where float32 accuracy is wanted, the ordinary cores, which
  // round, add up short sums: measured at P = 64 and 128, errors of 8e-7 and 1.7e-6 become 2e-7.
  using Accumulator = typename Step::Accumulator;
  constexpr int together = Step::kSplitFactor ? 2 : Of::kContractedParts;
#pragma unroll
  for (int first = 0; first < Of::kContractedParts; first += together) {
    Accumulator part[Of::kAtOnce][Of::kGroups][4] = {};
#pragma unroll
    for (int s = first; s < Of::kContractedParts && s < first + together; ++s) {
      typename Of::B b[Of::kAtOnce];
      typename Of::A a[Of::kGroups];
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
        if (n0 + n < Of::kProducedParts) b[n] = factor(s * Of::kProducedParts + n0 + n);
      }
#pragma unroll
      for (int u = 0; u < Of::kGroups; ++u) {
        Accumulator fiber[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) fiber[e] = Of::kContractedParts > 8 ? renewed(fibers[s][u][e]) : fibers[s][u][e];
        a[u] = typename Of::A(fiber);
      }
      add_products<0, Of::kProducedParts>(part, a, b, n0);
    }
#pragma unroll
    for (int n = 0; n < Of::kAtOnce; ++n) {
#pragma unroll
      for (int u = 0; u < Of::kGroups; ++u) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][u][e] = first == 0 ? part[n][u][e] : sums[n][u][e] + part[n][u][e];
      }
    }
  }
}

template <class Step, int Phase, class Parameters>
KRONOP_INLINE void run_phase(unsigned char* shared, const Parameters& parameters, const Window<Step>& window) {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  using B = typename Of::B;
  constexpr int fibers_at_once = 16 * Of::kGroups, parts = Of::kContractedParts * Of::kProducedParts;
  const B* factor = reinterpret_cast<const B*>(shared + Step::kFactorBytesAt[Of::kDigit]) + threadIdx.x % 32;
  Accumulator* tile = reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt);
  const Finish<Step> finish(parameters);
  const bool x_wide = wide<Step>(Step::kXVector, parameters.x_vector, window);
  const bool y_wide = wide<Step>(Step::kYVector, parameters.y_vector, window);
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
    typename Of::Fibers a;
    if constexpr (!Step::kStaged) {
      if (x_wide) {
        read_memory<Step, Phase, true>(a, places, live, parameters, window);
      } else {
        read_memory<Step, Phase, false>(a, places, live, parameters, window);
      }
    } else {
      read_tile<Step, Phase>(a, places, live, tile);
    }
    // Held factors need constant indices; elsewhere a rolled loop keeps split fibers from staying alive.
#pragma unroll(Of::kHoldFactor ? Of::kProducedParts : 1)
    for (int n0 = 0; n0 < Of::kProducedParts; n0 += Of::kAtOnce) {
      Accumulator sums[Of::kAtOnce][Of::kGroups][4];
      multiply<Step, Phase>(sums, a, n0, [&](int part) { return Of::kHoldFactor ? held[Of::kHoldFactor ? part : 0] : factor[part * 32]; });
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
        if (n0 + n < Of::kProducedParts) {
          Accumulator values[2][Of::kLanes];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int lane = 0; lane < Of::kLanes; ++lane) values[r][lane] = sums[n][lane / 2][lane % 2 * 2 + r];
          }
          if constexpr (!Step::kStaged) {
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

// A chunk of the window: its row, the column, the index k of its digits as a thread's own part and a
// step that is known at compile time, and its place in the tile.
struct Piece {
  int row, column, k, step, at;
  template <class Step>
  KRONOP_INLINE bool in(const Window<Step>& window) const {
    return row < window.rows && column < window.columns;
  }
  template <class T, class Strides>
  KRONOP_INLINE T* of(T* base, long long row_offset, const Strides& strides) const {
    return base + (row_offset + k * strides.digit + column * strides.inner) + step * strides.digit;
  }
};

// Calls visit(piece, offset of its row) for a thread's chunks. Where all sizes are powers of two, no
// carry links a thread's first chunk with the steps to its next ones: steps are constants then.
template <class Step, bool Produced, int kVector, class Visit>
KRONOP_INLINE void for_each_piece(const Window<Step>& window, const long long* offsets, Visit visit) {
  using Part = Chunk<Step, Produced ? Step::kGroupOut : Step::kGroupIn, kVector>;
  if constexpr (Step::kRegular && Part::kCount % Step::kThreads == 0) {
    constexpr int unrolled = Part::kCount / Step::kThreads < 8 ? Part::kCount / Step::kThreads : 8;
    const Part first(threadIdx.x);
#pragma unroll 1
    for (int start = 0; start < Part::kCount; start += unrolled * Step::kThreads) {
      const Part outer(start);
      const int row = first.row + outer.row, k = first.k + outer.k, column = first.column + outer.column;
      const int at = row * Step::kRowStride + spread<Step, Produced>(k) + column;
      // Read ahead of the stores, which the compiler takes for changes of the offsets.
      long long offset[unrolled];
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const int before = u > 0 ? Part((u - 1) * Step::kThreads).row : -1, now = Part(u * Step::kThreads).row;
        offset[u] = now == before ? offset[u > 0 ? u - 1 : 0] : offsets[row + now];
      }
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const Part step(u * Step::kThreads);
        visit(Piece{row + step.row, column + step.column, k, step.k,
                    at + step.row * Step::kRowStride + spread<Step, Produced>(step.k) + step.column}, offset[u]);
      }
    }
  } else {
#pragma unroll 1
    for (int index = threadIdx.x; index < Part::kCount; index += Step::kThreads) {
      const Part part(index);
      visit(Piece{part.row, part.column, part.k, 0, part.row * Step::kRowStride + spread<Step, Produced>(part.k) + part.column},
            part.row < window.rows ? offsets[part.row] : 0);
    }
  }
}

// X into the tile, chunk by chunk.
template <class Step, bool kWide, class Parameters>
struct StageIn {
  using Input = typename Step::Input;
  using Accumulator = typename Step::Accumulator;
  static constexpr int kVector = kWide ? Step::kXVector : 1, kPiece = kVector < 4 ? kVector : 4;
  const Input* x;
  Strides<kWide, Step::kXDigit> strides;
  Accumulator* tile;
  const Window<Step>& window;

  KRONOP_INLINE StageIn(Accumulator* to, const Parameters& parameters, const Window<Step>& where)
      : x(static_cast<const Input*>(parameters.x)), strides(parameters.digit_x, parameters.inner_x), tile(to), window(where) {}

  KRONOP_INLINE void operator()(const Piece& piece, long long row_offset) const {
    if (!piece.in(window)) return;
    const Input* from = piece.of(x, row_offset, strides);
    if constexpr (detail::same<Input, Accumulator>) {
      copy_asynchronously<kVector * sizeof(Input)>(tile + piece.at, from);
    } else {
      const auto items = load<Input, kVector>(from);
#pragma unroll
      for (int first = 0; first < kVector; first += kPiece) {
        Vector<Accumulator, kPiece> values;
#pragma unroll
        for (int v = 0; v < kPiece; ++v) values.data[v] = convert<Accumulator>(items.data[first + v]);
        store<Accumulator, kPiece>(tile + piece.at + first, values);
      }
    }
  }
};

// The tile through the epilogue to Y, with a source Z or without.
template <class Step, bool kWide, bool kSource, class Parameters>
struct StageOut {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  static constexpr int kVector = kWide ? Step::kYVector : 1, kPiece = kVector < 4 ? kVector : 4;
  Output* y;
  const Output* z;
  Strides<kWide, Step::kYDigit> y_strides, z_strides;
  const Accumulator* tile;
  const Window<Step>& window;
  Finish<Step> finish;

  KRONOP_INLINE StageOut(const Accumulator* from, const Parameters& parameters, const Window<Step>& where)
      : y(static_cast<Output*>(parameters.y)),
        z(static_cast<const Output*>(parameters.z)),
        y_strides(parameters.digit_y, parameters.inner_y),
        z_strides(parameters.digit_z, parameters.inner_z),
        tile(from),
        window(where),
        finish(parameters) {}

  KRONOP_INLINE void operator()(const Piece& piece, long long row_offset) const {
    if (!piece.in(window)) return;
    Vector<Output, kVector> source{}, result;
    if constexpr (kSource) source = load<Output, kVector>(piece.of(z, window.z(piece.row), z_strides));
#pragma unroll
    for (int first = 0; first < kVector; first += kPiece) {
      const auto values = load<Accumulator, kPiece>(tile + piece.at + first);
#pragma unroll
      for (int v = 0; v < kPiece; ++v) result.data[first + v] = finish(values.data[v], source.data[first + v], Output{});
    }
    store<Output, kVector>(piece.of(y, row_offset, y_strides), result);
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void stage_in(typename Step::Accumulator* tile, const Parameters& parameters, const Window<Step>& window) {
  if (wide<Step>(Step::kXVector, parameters.x_vector, window)) {
    using Stage = StageIn<Step, true, Parameters>;
    for_each_piece<Step, false, Stage::kVector>(window, window.offsets(0), Stage(tile, parameters, window));
  } else {
    using Stage = StageIn<Step, false, Parameters>;
    for_each_piece<Step, false, Stage::kVector>(window, window.offsets(0), Stage(tile, parameters, window));
  }
}

template <class Step, bool kSource, class Parameters>
KRONOP_INLINE void stage_out(const typename Step::Accumulator* tile, const Parameters& parameters, const Window<Step>& window) {
  if (wide<Step>(Step::kYVector, parameters.y_vector, window)) {
    using Stage = StageOut<Step, true, kSource, Parameters>;
    for_each_piece<Step, true, Stage::kVector>(window, window.offsets(1), Stage(tile, parameters, window));
  } else {
    using Stage = StageOut<Step, false, kSource, Parameters>;
    for_each_piece<Step, true, Stage::kVector>(window, window.offsets(1), Stage(tile, parameters, window));
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void finish_tile(const typename Step::Accumulator* tile, const Parameters& parameters, const Window<Step>& window) {
  if (parameters.z) {
    stage_out<Step, true>(tile, parameters, window);
  } else {
    stage_out<Step, false>(tile, parameters, window);
  }
}

// Results leave the tile and the next tile's X comes right behind them, where both have the same
// chunks: a thread overwrites what it has just read. False where they have not, and nothing is done.
template <class Step, class Parameters>
KRONOP_INLINE bool exchange(typename Step::Accumulator* tile, const Parameters& parameters, const Window<Step>& now, const Window<Step>& next) {
  if constexpr (Step::kSquare && Step::kXVector == Step::kYVector) {
    if (!parameters.z && wide<Step>(Step::kXVector, parameters.x_vector, next) && wide<Step>(Step::kYVector, parameters.y_vector, now)) {
      const StageOut<Step, true, false, Parameters> out(tile, parameters, now);
      const StageIn<Step, true, Parameters> in(tile, parameters, next);
      for_each_piece<Step, true, Step::kXVector>(now, now.offsets(1), [&](const Piece& piece, long long row_offset) {
        out(piece, row_offset);
        if (piece.in(next)) in(piece, next.x(piece.row));
      });
      return true;
    }
  }
  return false;
}

template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void run_phases(unsigned char* shared, const Parameters& parameters, const Window<Step>& window) {
  run_phase<Step, Phase>(shared, parameters, window);
  if constexpr (Phase + 1 < Step::kPhases) {
    __syncthreads();
    run_phases<Step, Phase + 1>(shared, parameters, window);
  }
}

// Whether factors differ from batch to batch.
template <class Step, class Parameters>
KRONOP_INLINE bool batched_factors(const Parameters& parameters) {
  bool batched = false;
#pragma unroll 1
  for (int i = 0; i < Step::kFactors * 4; ++i) batched = batched || parameters.factor_batch[i] != 0;
  return batched;
}

}  // namespace kron

// A block walks over its tiles. The next tile's X is on its way while results leave, where it can be.
template <class Step, class Parameters>
KRONOP_INLINE void kron_mma(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  auto* tile = reinterpret_cast<typename Step::Accumulator*>(shared + Step::kTileBytesAt);
  const kron::Tiles<Step, Parameters> tiles(parameters);
  const bool batched = kron::batched_factors<Step>(parameters);
  long long index = blockIdx.x, loaded = -1;
  if (index >= tiles.count()) return;
  kron::Window<Step> now = tiles.open(index, 0);
  bool staged = !Step::kStaged;
#pragma unroll 1
  while (true) {
    if (!staged) {
      __syncthreads();
      kron::stage_in<Step>(tile, parameters, now);
    }
    if (loaded < 0 || (batched && now.batch != loaded)) {
      loaded = now.batch;
      kron::load_factors<Step>(shared, parameters, loaded);
    }
    wait_for_copies();
    __syncthreads();
    index += gridDim.x;
    const bool more = index < tiles.count();
    // The offsets of the tile before this one are done with since the barrier.
    kron::Window<Step> next = now;
    if (more) next = tiles.open(index, Step::kOffsetBytes - now.at);
    kron::run_phases<Step>(shared, parameters, now);
    __syncthreads();
    if constexpr (Step::kStaged) {
      staged = more && kron::exchange<Step>(tile, parameters, now, next);
      if (!staged) kron::finish_tile<Step>(tile, parameters, now);
    }
    if (!more) return;
    now = next;
  }
}

}  // namespace kronop
