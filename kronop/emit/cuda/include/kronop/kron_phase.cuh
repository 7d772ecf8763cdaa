// One phase of a pass on the tensor cores: which fibers a thread has, and the factor as it takes it.
#pragma once

#include "kron_parameters.cuh"
#include "group_mma.cuh"

namespace kronop {
namespace kron {

// Where a fiber lies: its first element in the tile; and in memory its row, the index along the group
// of digits, and its column.
struct Place {
  int shared = 0, row = 0, k = 0, column = 0;
};

// Mixed radix over the axes that a phase leaves free, last one fastest.
template <class Step, int Phase, int Axis = Step::kPhaseAxis[Phase + 1] - 1>
KRONOP_INLINE void walk(Place& place, int fiber) {
  constexpr bool first = Axis == Step::kPhaseAxis[Phase];
  constexpr int extent = Step::kAxisExtent[Axis];
  const int index = first ? fiber : fiber % extent;
  place.shared += index * Step::kAxisShared[Axis];
  place.row += index * Step::kAxisRow[Axis];
  place.k += index * Step::kAxisGroup[Axis];
  place.column += index * Step::kAxisColumn[Axis];
  if constexpr (!first) walk<Step, Phase, Axis - 1>(place, fiber / extent);
}

// Places of fibers start + offset, start + offset + kStep, ... below `count`, which kAll of them are. Where all sizes are
// powers of two, no carry links `start` with the steps, which are constants then.
template <class Step, int Phase, int kStep, bool kAll, int N>
KRONOP_INLINE void places_of(Place (&places)[N], bool (&live)[N], int start, int offset, int count) {
  Place base;
  if constexpr (Step::kRegular) walk<Step, Phase>(base, start);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int step = offset + i * kStep;
    live[i] = kAll || start + step < count;
    places[i] = base;
    walk<Step, Phase>(places[i], Step::kRegular ? step : live[i] ? start + step : 0);
  }
}

// Takes pieces `start`, `start` + kStep, ... below kEnd. Where kAhead, a piece is on its way while the one before it is in use;
// elsewhere two small ones share the arithmetic of their indices, where they can.
template <class Step, class Piece, int kEnd, int kStep, bool kAhead, class Fetch, class Use>
KRONOP_INLINE void for_each_piece_of_phase(int start, Fetch fetch, Use use) {
  Piece now;
  if constexpr (kAhead) {
    if (start < kEnd) fetch(now, start, 0);
#pragma unroll 1
    for (; start < kEnd; start += kStep) {
      Piece next;
      if (start + kStep < kEnd) fetch(next, start + kStep, 0);
      use(now);
      now = next;
    }
  } else {
    constexpr int times = Step::kRegular && kEnd % (2 * kStep) == 0 && sizeof(now.elements) <= 64 ? 2 : 1;
#pragma unroll 1
    for (; start < kEnd; start += times * kStep) {
#pragma unroll
      for (int again = 0; again < times; ++again) {
        fetch(now, start, again * kStep);
        use(now);
      }
    }
  }
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
  static constexpr int kLanes = Step::kPhaseLanes[Phase];  // fibers of a thread
  static constexpr int kGroups = kLanes / 2;               // of 16 fibers that a warp takes at once
  // Whether a thread's fibers are neighbours in memory, one vector.
  static constexpr bool kNeighbours = Step::kPhaseNeighbours[Phase];
  static constexpr int kPlaces = kNeighbours ? 1 : kLanes;
  static constexpr int kFibers = Step::kPhaseFibers[Phase];
  // Whether four warps multiply together, by so many produced indices at a time of all that there are.
  static constexpr bool kGrouped = Step::kPhaseGrouped[Phase];
  static constexpr int kChunk = kProduced > 32 ? 64 : 32, kColumns = (kProduced + kChunk - 1) / kChunk * kChunk;
  // Parts of the contraction whose products are one chain of sums in the tensor cores.
  static constexpr int kTogether = Step::kSplit ? (kGrouped ? 4 : 2) : kContractedParts;
  using Fibers = Accumulator[kContractedParts][kGroups][4];  // as the tensor cores take them, unsplit
  using A = Split<Accumulator, 4, Step::kSplit>;
  using B = Split<Accumulator, 2, Step::kSplit>;
  // Held in registers for the whole phase where there are few.
  static constexpr bool kHoldFactor = !kGrouped && kContractedParts * kProducedParts * sizeof(B) <= 64;
  // Parts of the produced index whose sums a thread holds at once: independent products hide latency.
  static constexpr int kSums = (kContractedParts > 8 ? 2 : 4) / kGroups;
  static constexpr int kAtOnce = kGrouped ? kChunk / 8 : kProducedParts < kSums ? kProducedParts : kSums;

  // Index along the digit of a thread's element r of part s.
  KRONOP_INLINE static int index(int s, int r) {
    const int t = threadIdx.x % 4;
    return 8 * s + (kUnit ? 2 * t + r : t + 4 * r);
  }
  // A thread's first fiber of those from `first` on, and the steps to its next places.
  KRONOP_INLINE static int fiber(int first) { return first + (kUnit ? 1 : kLanes) * (threadIdx.x % 32 / 4); }
  static constexpr int kNext = kUnit ? 8 : 1;

  // The factor: [part of P][part of Q].
  struct Fragments {
    using Operand = B;
    static constexpr int kDigit = PhaseOf::kDigit, kCount = kContractedParts * kProducedParts, kElements = 2;
    KRONOP_INLINE static int contracted(int part, int thread, int r) {
      const int t = thread % 4;
      return part / kProducedParts * 8 + (kUnit ? 2 * t + r : t + 4 * r);
    }
    KRONOP_INLINE static int produced(int part, int thread, int) {
      const int g = thread / 4;
      return part % kProducedParts * 8 + (kUnit ? g : g / 2 + g % 2 * 4);
    }
    KRONOP_INLINE static void put(Accumulator* to, int e, const Accumulator (&items)[2]) {
      reinterpret_cast<Operand*>(to)[e] = Operand(items);
    }
  };

  // The factor for warp groups: its values, and then what rounding left, 8 contracted indices after the
  // other, as the tensor cores read them. An element is one of 4 contracted indices of a core's column.
  struct GroupFragments {
    static constexpr int kDigit = PhaseOf::kDigit, kCount = kContractedParts * kColumns / 32 * 8, kElements = 1;
    KRONOP_INLINE static int row(int e) { return e / (8 * kColumns) * 8 + e / (4 * kColumns) % 2 * 4 + e % 4; }
    KRONOP_INLINE static int column(int e) { return e / 4 % kColumns; }
    KRONOP_INLINE static int contracted(int part, int thread, int) {
      const int i = row(part * 32 + thread);
      return i / 8 * 8 + (kUnit ? i % 4 * 2 + i % 8 / 4 : i % 8);
    }
    KRONOP_INLINE static int produced(int part, int thread, int) {
      const int n = column(part * 32 + thread), g = n % 8;
      return n / 8 * 8 + (kUnit ? g : g / 2 + g % 2 * 4);
    }
    KRONOP_INLINE static void put(Accumulator* to, int e, const Accumulator (&items)[1]) {
      const Split<Accumulator, 1, Step::kSplit> item(items);
      const int at = row(e) / 8 * 8 * kColumns + place_in_cores(row(e) % 8, column(e), kColumns);
      to[at] = item.value[0];
      if constexpr (Step::kSplit) to[kContractedParts * 8 * kColumns + at] = item.rest[0];
    }
  };
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

// A digit's factor in shared memory, as a phase's threads take it: [fragment][32 threads], each made of
// kElements elements of the factor. `Fragments` says which ones.
template <class Step, class Fragments, class Parameters>
KRONOP_INLINE void load_fragments(unsigned char* shared, const Parameters& parameters, long long batch) {
  using Accumulator = typename Step::Accumulator;
  constexpr int digit = Fragments::kDigit, count = Fragments::kCount * 32, elements = Fragments::kElements;
  constexpr int first = Step::kFactorFirst[digit], last = Step::kFactorFirst[digit + 1] - 1;
  // Many loads in flight, but where each element is a product of several.
  constexpr int unroll = first == last ? 16 / elements : 1;
  auto* to = reinterpret_cast<Accumulator*>(shared + Step::kFactorBytesAt[digit]);
  const typename Step::Factor* sources[last - first + 1];
#pragma unroll
  for (int i = first; i <= last; ++i) {
    sources[i - first] = static_cast<const typename Step::Factor*>(parameters.factor[i]) + factor_offset(parameters, i, batch);
  }
#pragma unroll 1
  for (int start = threadIdx.x; start < count; start += Step::kThreads * unroll) {
    typename Step::Accumulator items[unroll][elements] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int e = start + u * Step::kThreads;
#pragma unroll
      for (int i = 0; i < elements; ++i) {
        const int p = Fragments::contracted(e / 32, e % 32, i), q = Fragments::produced(e / 32, e % 32, i);
        if (e < count && p < Step::kContracted[digit] && q < Step::kProduced[digit]) {
          items[u][i] = factor_element<Step, last, first>(sources, parameters, p, q);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int e = start + u * Step::kThreads;
      if (e < count) Fragments::put(to, e, items[u]);
    }
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
}  // namespace kronop
