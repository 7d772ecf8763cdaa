// One phase of a pass on the tensor cores: a thread's fibers, and how it loads the factor.
#pragma once

#include "kron_parameters.cuh"
#include "kronop/byte_mma.cuh"
#include "kronop/warp_group_mma.cuh"

namespace kronop {
namespace kron {

// The position of a fiber: its first element in the tile; and in global memory its row, its index
// along the digits, and its column.
struct Place {
  int shared = 0, row = 0, k = 0, column = 0;
};

// Adds the position of a fiber, whose number is in mixed radix over the free axes of a phase, last
// one fastest.
template <class Step, int Phase, int Axis = Step::kPhaseAxis[Phase + 1] - 1>
KRONOP_INLINE void walk(Place& place, int fiber) {
  constexpr bool first = Axis == Step::kPhaseAxis[Phase];
  constexpr int extent = Step::kAxisExtent[Axis];
  // Separate constants, because nvcc does not allow arrays of constants in device code.
  constexpr int shared = Step::kAxisShared[Axis], row = Step::kAxisRow[Axis],
                k = Step::kAxisDigit[Axis], column = Step::kAxisColumn[Axis];
  const int index = first ? fiber : fiber % extent;
  place.shared += index * shared;
  place.row += index * row;
  place.k += index * k;
  place.column += index * column;
  if constexpr (!first) walk<Step, Phase, Axis - 1>(place, fiber / extent);
}

// The number of a fiber in the phase's own order, from its number by chunks. A chunk is kEach
// fibers that are as far apart as possible.
template <int kFibers, int kEach>
KRONOP_INLINE constexpr int in_order(int fiber) {
  if constexpr (kEach == 0) {
    return fiber;
  } else {
    return unsigned(fiber) % kEach * (kFibers / kEach) + unsigned(fiber) / kEach;
  }
}

// Places of fibers start + offset, start + offset + kStep, ... below `count` (kAll: all of them
// are), which are numbered by chunks if kEach is given. If all sizes are powers of two (kRegular),
// there are no carries between `start` and the steps, so that steps are constants.
template <class Step, int Phase, int kStep, bool kAll, int kEach = 0, int N>
KRONOP_INLINE void places_of(Place (&places)[N], bool (&live)[N], int start, int offset,
                             int count) {
  static_assert(kEach == 0 || Step::kRegular, "chunks are found without carries");
  constexpr int fibers = fibers_of<Step>(Phase);
  Place base;
  if constexpr (Step::kRegular) walk<Step, Phase>(base, in_order<fibers, kEach>(start));
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int step = offset + i * kStep;
    live[i] = kAll || start + step < count;
    places[i] = base;
    walk<Step, Phase>(places[i], Step::kRegular ? in_order<fibers, kEach>(step)
                                 : live[i]      ? start + step
                                                : 0);
  }
}

// Processes pieces `start`, `start` + kStep, ... below kEnd. If kAhead, a piece is loaded while the
// previous one is in use. Otherwise two small pieces share the arithmetic of their indices, if
// possible.
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
    constexpr int times =
        Step::kRegular && kEnd % (2 * kStep) == 0 && sizeof(now.elements) <= 64 ? 2 : 1;
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

// Compile-time constants of a phase.
template <class Step, int Phase>
struct PhaseOf {
  using Accumulator = typename Step::Accumulator;
  static constexpr int kDigit = Step::kPhaseDigit[Phase];
  static constexpr int kContracted = Step::kContracted[kDigit], kProduced = Step::kProduced[kDigit];
  static constexpr int kStride = Step::kStride[kDigit];
  static constexpr int kContractedParts = (kContracted + 7) / 8,
                       kProducedParts = (kProduced + 7) / 8;
  // Whether the tile is contiguous along the digit itself.
  static constexpr bool kUnit = kStride == 1;
  static constexpr int kLanes = Step::kPhaseLanes[Phase];  // fibers of a thread
  static constexpr int kFiberTiles = kLanes / 2;           // tiles of 16 fibers of a warp
  // Whether a thread's fibers are neighbours, so that one vector has them.
  static constexpr bool kNeighbours = Step::kPhaseNeighbours[Phase];
  static constexpr int kPlaces = kNeighbours ? 1 : kLanes;
  static constexpr int kFibers = fibers_of<Step>(Phase);
  // Whether warp groups multiply: kChunk produced indices at a time, of kColumns with padding.
  static constexpr bool kWgmma = Step::kPhaseWgmma[Phase];
  static constexpr int kChunk = kProduced > 32 ? 64 : 32,
                       kColumns = (kProduced + kChunk - 1) / kChunk * kChunk;
  // Parts of the contraction whose MMAs are one chain in the tensor cores.
  static constexpr int kTogether = Step::kSplit ? (kWgmma ? 4 : 2) : kContractedParts;
  template <class T>
  using FibersOf = T[kContractedParts][kFiberTiles][4];
  using Fibers = FibersOf<Accumulator>;  // unsplit operands of the tensor cores
  // int8: an MMA has kDeep parts of the contraction. kPlanes bytes of an element are used: 1 in X,
  // 3 in sums of up to 128 products of two bytes, and 4 in other sums.
  static constexpr bool kBytes = detail::same<typename Step::Factor, int8_t>;
  static constexpr int kDeep = !kBytes                 ? 1
                               : kContractedParts <= 2 ? 2
                                                       : 4,
                       kSteps = (kContractedParts + kDeep - 1) / kDeep;
  static constexpr int kPlanes = !detail::same<typename Step::Input, int8_t> || Phase > 1 ? 4
                                 : Phase == 0                                             ? 1
                                                                                          : 3;
  static_assert(!kBytes || kContracted <= 128,
                "sums of more products of two bytes would take more than three bytes");
  using A = Split<Accumulator, 4, Step::kSplit>;
  using B = Either<kBytes, ByteFactor<kDeep>, Split<Accumulator, 2, Step::kSplit>>;
  using Left = Either<kBytes, BytePlanes<PhaseOf>, const Fibers&>;  // the argument of `multiply`
  // Whether the factor is in registers for the whole phase, because it is small.
  static constexpr bool kHoldFactor = !kWgmma && kSteps * kProducedParts * sizeof(B) <= 64;
  // Parts of the produced index whose sums a thread has at once: independent MMAs hide each other's
  // latency.
  static constexpr int kSums =
      (kContractedParts > 8 ? (sizeof(Accumulator) > 4 ? 1 : 2) : 4) / kFiberTiles;
  static constexpr int kAtOnce = kWgmma                   ? kChunk / 8
                                 : kProducedParts < kSums ? kProducedParts
                                                          : kSums;

  // Index along the digit of a thread's element r of part s.
  KRONOP_INLINE static int index(int s, int r) {
    const int t = threadIdx.x % 4;
    return 8 * s + (kUnit ? 2 * t + r : t + 4 * r);
  }
  // A thread's first fiber, where its warp's begin at `first`, and the stride of its next ones.
  KRONOP_INLINE static int fiber(int first) {
    return first + (kUnit ? 1 : kLanes) * (threadIdx.x % 32 / 4);
  }
  static constexpr int kNext = kUnit ? 8 : 1;

  // The factor as fragments [part of P][part of Q].
  struct Fragments {
    using Operand = B;
    static constexpr int kDigit = PhaseOf::kDigit, kCount = kSteps * kProducedParts,
                         kElements = 2 * kDeep;
    static constexpr bool kWhole =
        kContracted % (8 * kDeep) == 0 && kProduced % 8 == 0;  // no element is out of bounds
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int i) {
      const unsigned t = thread % 4, r = i % 2;
      return (part / kProducedParts * kDeep + i / 2) * 8 + (kUnit ? 2 * t + r : t + 4 * r);
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int) {
      const unsigned g = thread / 4;
      return part % kProducedParts * 8 + (kUnit ? g : g / 2 + g % 2 * 4);
    }
    KRONOP_INLINE static unsigned place(unsigned e) { return e; }
    KRONOP_INLINE static void put(Accumulator* to, unsigned e,
                                  const Accumulator (&items)[kElements]) {
      reinterpret_cast<Operand*>(to)[e] = Operand(items);
    }
  };

  // The factor for wgmma, in shared memory: its values and then, if split, the remainders, one
  // block of 8 contracted indices after the other. Elements are numbered so that four of them are
  // the contracted indices of a column in a core matrix.
  struct WarpGroupFragments {
    static constexpr int kDigit = PhaseOf::kDigit, kCount = kContractedParts * kColumns / 32 * 8,
                         kElements = 1;
    static constexpr bool kWhole = kContracted % 8 == 0 && kProduced == kColumns;
    KRONOP_INLINE static unsigned row(unsigned e) {
      return e / (8 * kColumns) * 8 + e / (4 * kColumns) % 2 * 4 + e % 4;
    }
    KRONOP_INLINE static unsigned column(unsigned e) { return e / 4 % kColumns; }
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int) {
      const unsigned i = row(part * 32 + thread);
      return i / 8 * 8 + (kUnit ? i % 4 * 2 + i % 8 / 4 : i % 8);
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int) {
      const unsigned n = column(part * 32 + thread), g = n % 8;
      return n / 8 * 8 + (kUnit ? g : g / 2 + g % 2 * 4);
    }
    KRONOP_INLINE static unsigned place(unsigned e) {
      return row(e) / 8 * 8 * kColumns + place_in_cores(row(e) % 8, column(e), kColumns);
    }
    KRONOP_INLINE static void put(Accumulator* to, unsigned at, const Accumulator (&items)[1]) {
      const Split<Accumulator, 1, Step::kSplit> item(items);
      to[at] = item.value[0];
      if constexpr (Step::kSplit) to[kContractedParts * 8 * kColumns + at] = item.rest[0];
    }
  };
};

// How many phases use wgmma.
template <class Step>
KRONOP_INLINE constexpr int wgmma_phases() {
  int count = 0;
  for (int phase = 0; phase < Step::kPhases; ++phase) count += Step::kPhaseWgmma[phase];
  return count;
}

// Registers of a thread for factors that are being loaded: a third of those that it has; more than
// 64 are of no use.
template <class Step>
inline constexpr int room_for_factors =
    Step::kThreads * Step::kBlocks * 192 <= 65536 ? 64
                                                  : 65536 / (Step::kThreads * Step::kBlocks * 3);

// A thread's share of a digit's factor: loaded from global memory to registers, and then stored to
// shared memory as [fragment][32 threads]. `Fragments` says which kElements elements of the factor
// a thread of a fragment has. An element is a product of elements of the factors that were merged
// into the digit.
template <class Step, class Fragments>
struct FactorLoad {
  using Factor = typename Step::Factor;
  using Accumulator = typename Step::Accumulator;
  static constexpr int kDigit = Fragments::kDigit, kCount = Fragments::kCount * 32,
                       kElements = Fragments::kElements;
  static constexpr int kFirst = Step::kFactorFirst[kDigit],
                       kFactors = Step::kFactorFirst[kDigit + 1] - kFirst;
  static constexpr int kContracted = Step::kContracted[kDigit], kProduced = Step::kProduced[kDigit];
  // A thread's fragments, and how many are loaded at once: all, or a power of two.
  static constexpr int kShare = (kCount + Step::kThreads - 1) / Step::kThreads;
  static constexpr int kWords =
      kElements * kFactors * (sizeof(Factor) > 4 ? 2 : 1);  // registers for one of them
  KRONOP_INLINE static constexpr int at_once() {
    constexpr int most = room_for_factors<Step> / 2 / kWords;
    if (kShare <= most) return kShare;
    int count = 1;
    while (2 * count <= most) count *= 2;
    return count;
  }
  static constexpr int kAtOnce = at_once();
  Factor items[kAtOnce][kElements][kFactors];

  // If all sizes are powers of two, there are no carries between fragment `start` and the steps
  // from it, so that steps are constants.
  struct Spot {
    unsigned p, q;
    KRONOP_INLINE Spot(unsigned e, int i)
        : p(Fragments::contracted(e / 32, e % 32, i)), q(Fragments::produced(e / 32, e % 32, i)) {}
  };
  KRONOP_INLINE static unsigned base(unsigned start) { return Step::kRegular ? start : 0; }
  KRONOP_INLINE static unsigned step(unsigned start, int u) {
    return (Step::kRegular ? 0 : start) + u * Step::kThreads;
  }
  KRONOP_INLINE static bool exists(unsigned start, int u) {
    return kCount % (Step::kThreads * kAtOnce) == 0 || start + u * Step::kThreads < kCount;
  }

  // Index along factor kAt, from an index along the digit.
  template <bool kOfProduced>
  KRONOP_INLINE static constexpr unsigned size(int factor) {
    return kOfProduced ? Step::kFactorProduced[kFirst + factor]
                       : Step::kFactorContracted[kFirst + factor];
  }
  template <bool kOfProduced, int kAt>
  KRONOP_INLINE static constexpr unsigned below() {
    unsigned product = 1;
    for (int i = kAt + 1; i < kFactors; ++i) product *= size<kOfProduced>(i);
    return product;
  }
  template <bool kOfProduced, int kAt>
  KRONOP_INLINE static unsigned index(unsigned along) {
    constexpr unsigned inner = below<kOfProduced, kAt>(), own = size<kOfProduced>(kAt);
    return kAt == 0 ? along / inner : along / inner % own;
  }

  template <int kAt = 0, class From>
  KRONOP_INLINE void ask(const From& source, unsigned start) {
    const Spot own(base(start), 0);
    // Indices are unsigned, because their products with 64-bit strides then take two instructions.
    const unsigned long long row = source.parameters.factor_row[kFirst + kAt],
                             column = source.parameters.factor_column[kFirst + kAt];
    const auto offset = [&](const Spot& at) {
      return index<false, kAt>(at.p) * row + index<true, kAt>(at.q) * column;
    };
    const Factor* from = static_cast<const Factor*>(source.parameters.factor[kFirst + kAt]) +
                         source.offsets[kFirst + kAt];
    if constexpr (Step::kRegular) from += offset(own);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const Spot at(step(start, u), i);
        const unsigned p = at.p + (Step::kRegular ? own.p : 0),
                       q = at.q + (Step::kRegular ? own.q : 0);
        items[u][i][kAt] = Factor{};
        if (exists(start, u) && (Fragments::kWhole || (p < kContracted && q < kProduced)))
          items[u][i][kAt] = from[offset(at)];
      }
    }
    if constexpr (kAt + 1 < kFactors) ask<kAt + 1>(source, start);
  }

  KRONOP_INLINE void put(unsigned char* shared, unsigned start) const {
    constexpr int bytes = Step::kFactorBytesAt[kDigit];
    auto* to = reinterpret_cast<Accumulator*>(shared + bytes);
    const unsigned own = Fragments::place(base(start));
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      Accumulator values[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        values[i] = convert<Accumulator>(items[u][i][0]);
#pragma unroll
        for (int f = 1; f < kFactors; ++f)
          values[i] = values[i] * convert<Accumulator>(items[u][i][f]);
      }
      if (exists(start, u))
        Fragments::put(to, (Step::kRegular ? own : 0) + Fragments::place(step(start, u)), values);
    }
  }
};

// The factors of a batch: their addresses in global memory, and shared memory for them.
template <class Step, class Parameters>
struct Factors {
  unsigned char* shared;
  const Parameters& parameters;
  // NOTE: without renewed() the compiler would hoist addresses out of the loop over tiles, and keep
  // them in registers.
  unsigned thread = renewed(unsigned(threadIdx.x));
  long long offsets[Step::kFactors];
  KRONOP_INLINE Factors(unsigned char* to, const Parameters& from, long long batch)
      : shared(to), parameters(from) {
    factor_offsets(offsets, parameters, 0, batch);
  }
};

// Loads a digit's factor. If registers suffice for it in addition to the kHeld ones in use,
// next.operator()<held>() runs while it is loaded.
template <class Step, class Fragments, int kHeld, class Parameters, class Next>
KRONOP_INLINE void load_fragments(const Factors<Step, Parameters>& factors, Next next) {
  FactorLoad<Step, Fragments> load;
  constexpr int held = kHeld + load.kAtOnce * load.kWords;
  if constexpr (load.kAtOnce == load.kShare && held <= room_for_factors<Step>) {
    load.ask(factors, factors.thread);
    next.template operator()<held>();
    load.put(factors.shared, factors.thread);
  } else {
    next.template operator()<kHeld>();
#pragma unroll 1
    for (unsigned start = factors.thread; start < load.kCount;
         start += Step::kThreads * load.kAtOnce) {
      load.ask(factors, start);
      load.put(factors.shared, start);
    }
  }
}

// Whether factors differ from batch to batch.
template <class Step, class Parameters>
KRONOP_INLINE bool batched_factors(const Parameters& parameters) {
  long long strides = 0;
#pragma unroll 4
  for (int i = 0; i < Step::kFactors * 4; ++i) strides |= parameters.factor_batch[i];
  return strides != 0;
}

}  // namespace kron
}  // namespace kronop
