// One phase of a pass on the tensor cores: which fibers a thread has, and the factor as it takes it.
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
