// A phase that contracts one digit of all fibers along it, by warps or by warp groups.
#pragma once

#include "kron_fibers.cuh"

namespace kronop {
namespace kron {

// Adds all MMAs of one part of the contraction to the sums of produced parts n0 ...
template <int kIndex, int kParts, class T, bool kSplit, int kFiberTiles, int kAtOnce>
KRONOP_INLINE void add_products(T (&sums)[kAtOnce][kFiberTiles][4],
                                const Split<T, 4, kSplit> (&a)[kFiberTiles],
                                const Split<T, 2, kSplit> (&b)[kAtOnce], int n0) {
#pragma unroll
  for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
    for (int u = 0; u < kFiberTiles; ++u) {
      if (n0 + n < kParts) add_product<kIndex>(sums[n][u], a[u], b[n]);
    }
  }
  if constexpr (kIndex + 1 < products_of<kSplit>) add_products<kIndex + 1, kParts>(sums, a, b, n0);
}

// Computes the sums of produced parts n0 ...
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>, class Factor>
KRONOP_INLINE void multiply(typename Step::Accumulator (&sums)[Of::kAtOnce][Of::kFiberTiles][4],
                            const typename Of::Fibers& fibers, int n0, const Factor& factor) {
  // NOTE: the tensor cores truncate each sum. For float32 accuracy, they only compute short sums,
  // which the ordinary cores add up with rounding. Measured at P = 64 and 128, errors of 8e-7 and
  // 1.7e-6 become 2e-7.
  using Accumulator = typename Step::Accumulator;
#pragma unroll
  for (int first = 0; first < Of::kContractedParts; first += Of::kTogether) {
    Accumulator part[Of::kAtOnce][Of::kFiberTiles][4] = {};
#pragma unroll
    for (int s = first; s < Of::kContractedParts && s < first + Of::kTogether; ++s) {
      typename Of::B b[Of::kAtOnce];
      typename Of::A a[Of::kFiberTiles];
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
        if (n0 + n < Of::kProducedParts) b[n] = factor(s * Of::kProducedParts + n0 + n);
      }
#pragma unroll
      for (int u = 0; u < Of::kFiberTiles; ++u) {
        Accumulator fiber[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          fiber[e] = Of::kContractedParts > 8 ? renewed(fibers[s][u][e]) : fibers[s][u][e];
        a[u] = typename Of::A(fiber);
      }
      add_products<0, Of::kProducedParts>(part, a, b, n0);
    }
#pragma unroll
    for (int n = 0; n < Of::kAtOnce; ++n) {
#pragma unroll
      for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[n][u][e] = first == 0 ? part[n][u][e] : sums[n][u][e] + part[n][u][e];
      }
    }
  }
}

// Prepares some parts of the contraction as left operands of wgmma.
template <class Of, int kParts>
KRONOP_INLINE void take_parts(typename Of::A (&a)[kParts], const typename Of::Fibers& fibers,
                              int first) {
#pragma unroll
  for (int s = 0; s < kParts; ++s) {
    typename Of::Accumulator fiber[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) fiber[e] = renewed(fibers[first + s][0][e]);
    a[s] = typename Of::A(fiber);
  }
}

// Issues all MMAs of these parts; small terms first, as everywhere.
template <class Step, class Of, int kParts>
KRONOP_INLINE void start_products(typename Of::Accumulator (&sums)[Of::kChunk / 8][4],
                                  const typename Of::A (&a)[kParts],
                                  const typename Of::Accumulator* factor) {
  constexpr int part_of_factor = 8 * Of::kColumns,
                rest_of_factor = Of::kContractedParts * part_of_factor;
  begin_warp_group_products();
#pragma unroll
  for (int kind = 0; kind < products_of<Step::kSplit>; ++kind) {
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      const auto* b = factor + s * part_of_factor;
      const bool more = kind > 0 || s > 0;
      if constexpr (Step::kSplit) {
        warp_group_multiply_add(sums, kind == 0 ? a[s].rest : a[s].value,
                                kind == 1 ? b + rest_of_factor : b, Of::kColumns, more);
      } else {
        warp_group_multiply_add(sums, a[s].value, b, Of::kColumns, more);
      }
    }
  }
  commit_warp_group_products();
}

// Computes the sums of one chunk of the produced index by a warp group. The next parts of the
// contraction are split while MMAs of the previous ones are in flight.
template <class Step, int Phase, int kFirst = 0, class Of = PhaseOf<Step, Phase>, int kParts>
KRONOP_INLINE void multiply_wgmma(typename Of::Accumulator (&sums)[Of::kChunk / 8][1][4],
                                  const typename Of::A (&a)[kParts],
                                  const typename Of::Fibers& fibers,
                                  const typename Of::Accumulator* factor) {
  constexpr int left = Of::kContractedParts - kFirst - kParts,
                next = left < Of::kTogether ? left : Of::kTogether;
  typename Of::Accumulator part[Of::kChunk / 8][4];
  start_products<Step, Of>(part, a, factor + kFirst * 8 * Of::kColumns);
  typename Of::A then[next > 0 ? next : 1];
  if constexpr (next > 0) take_parts<Of>(then, fibers, kFirst + kParts);
  wait_for_warp_group_products();
#pragma unroll
  for (int n = 0; n < Of::kChunk / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      // renewed() values are opaque to the compiler: otherwise it might read the sums before the
      // wait.
      part[n][e] = renewed(part[n][e]);
      sums[n][0][e] = kFirst == 0 ? part[n][e] : sums[n][0][e] + part[n][e];
    }
  }
  if constexpr (next > 0) multiply_wgmma<Step, Phase, kFirst + kParts>(sums, then, fibers, factor);
}

// A phase's work on a window: a thread's state, how it loads a piece of the fibers, and how it
// multiplies the piece and stores the results.
template <class Step, int Phase, Access kAccess, class Parameters, int kEach = 0>
struct PhaseWork {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  using B = typename Of::B;
  static constexpr int kFibers = Of::kFibers, kAtOnce = 16 * Of::kFiberTiles;  // of a warp
  static constexpr int kFactorAt = Step::kFactorBytesAt[Of::kDigit];
  static constexpr int kParts = Of::kHoldFactor ? Of::kSteps * Of::kProducedParts : 1;
  struct Piece {
    Place places[Of::kPlaces];
    bool live[Of::kPlaces];
    typename Of::template FibersOf<OnItsWay<Step, kEach>> elements;
  };
  const B* factor;
  const Accumulator* matrix;
  Accumulator* tile;
  const Ends<Step, kAccess, Parameters> ends;
  B held[kParts];

  KRONOP_INLINE PhaseWork(unsigned char* shared, const Parameters& parameters,
                          const Window<Step>& window)
      : factor(reinterpret_cast<const B*>(shared + kFactorAt) + threadIdx.x % 32),
        matrix(reinterpret_cast<const Accumulator*>(shared + kFactorAt)),
        tile(reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt)),
        ends(parameters, window) {
    if constexpr (Of::kHoldFactor) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) held[part] = factor[part * 32];
    }
  }

  KRONOP_INLINE void fetch(Piece& to, int start, int offset) const {
    constexpr bool all = Of::kFibers % (Of::kWgmma ? 64 : kAtOnce) == 0;
    places_of<Step, Phase, Of::kNext, all, kEach>(to.places, to.live, Of::fiber(start), offset,
                                                  kFibers);
    if constexpr (reads_memory<Step, Phase>) {
      ends.with_source([&]<Access kNow>(const Source<Step, kNow>& source) {
        read_memory<Step, Phase, kNow>(to.elements, to.places, to.live, source);
      });
    } else {
      read_tile<Step, Phase>(to.elements, to.places, to.live, tile);
    }
  }

  KRONOP_INLINE void use(const Piece& now) const {
    typename Of::Fibers elements;
    convert_all(elements, now.elements);
    const typename Of::Left left(elements);
    // Factors in registers need constant indices, hence an unrolled loop. Otherwise the loop is not
    // unrolled, so that split fibers do not stay in registers.
#pragma unroll(Of::kHoldFactor ? Of::kProducedParts : 1)
    for (int n0 = 0; n0 < Of::kProducedParts; n0 += Of::kAtOnce) {
      Accumulator sums[Of::kAtOnce][Of::kFiberTiles][4];
      if constexpr (Of::kWgmma) {
        typename Of::A
            first[Of::kTogether < Of::kContractedParts ? Of::kTogether : Of::kContractedParts];
        take_parts<Of>(first, elements, 0);
        multiply_wgmma<Step, Phase>(sums, first, elements, matrix + n0 * 32);
      } else {
        multiply<Step, Phase>(sums, left, n0, [&](int part) {
          return Of::kHoldFactor ? held[Of::kHoldFactor ? part : 0] : factor[part * 32];
        });
      }
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
        if (n0 + n < Of::kProducedParts) leave(sums[n], n0 + n, now);
      }
    }
  }

 private:
  KRONOP_INLINE void leave(const Accumulator (&sums)[Of::kFiberTiles][4], int n,
                           const Piece& now) const {
    Accumulator values[2][Of::kLanes];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane)
        values[r][lane] = sums[lane / 2][lane % 2 * 2 + r];
    }
    if constexpr (writes_memory<Step, Phase>) {
      ends.with_sink([&]<Access kNow>(const Sink<Step, kNow>& sink) {
        write_memory<Step, Phase, kNow>(values, n, now.live, now.places, sink);
      });
    } else {
      write_tile<Step, Phase>(values, n, now.live, now.places, tile);
    }
  }
};

template <class Step, int Phase, Access kAccess, class Parameters>
KRONOP_INLINE void run_phase(unsigned char* shared, const Parameters& parameters,
                             const Window<Step>& window) {
  using Work = PhaseWork<Step, Phase, kAccess, Parameters>;
  const Work work(shared, parameters, window);
  // The blocks of a cluster divide the fibers of the last phase.
  constexpr int blocks = Phase + 1 == Step::kPhases ? Step::kCluster : 1;
  constexpr int at_once = Step::kThreads / 32 * Work::kAtOnce * blocks;
  const int warp =
      (blocks > 1 ? rank_of_block<Step>() * (Step::kThreads / 32) : 0) + threadIdx.x / 32;
  // All warps of a warp group multiply together, so they have the same number of rounds.
  constexpr int end = Work::Of::kWgmma ? (Work::kFibers + 63) / 64 * 64 : Work::kFibers;
  work_on_pieces<Step, Phase, end, at_once>(work, warp * Work::kAtOnce);
}

}  // namespace kron
}  // namespace kronop
