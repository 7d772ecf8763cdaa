// A pass of a Kronecker matmul on the tensor cores: a contiguous group of digits of a tile.
//
// A tile is [kRows][group of digits][kColumns]. Columns are the free index that is contiguous in
// memory, rows are the other free indices. Each phase contracts one digit of all fibers along it:
// a warp takes 16 or 32 fibers, multiplies them by the factor and puts the results where the fibers
// were. The tile is in shared memory, with strides that are padded against bank conflicts; a phase
// whose fibers are contiguous in memory may read X or write Y itself.
#pragma once

#include "kron_half.cuh"
#include "kron_pair.cuh"

namespace kronop {
namespace kron {

// The fibers of a thread, from X. All loads are issued before one is needed.
template <class Step, int Phase, Access kAccess, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void read_memory(typename Of::Fibers& a, const Place (&places)[Of::kPlaces],
                               const bool (&live)[Of::kPlaces], const Source<Step, kAccess>& source) {
  using Input = typename Step::Input;
  // A pair of a contiguous digit, if it ends with the digit; or all lanes.
  constexpr int width = Of::kUnit ? (Of::kContracted % 2 == 0 ? 2 : 1) : Of::kLanes / Of::kPlaces;
  constexpr int at = Step::kGroupStrideIn[Of::kDigit];
  Input items[Of::kContractedParts][2][Of::kLanes] = {};
#pragma unroll
  for (int i = 0; i < Of::kPlaces; ++i) {
    Place place = places[i];
    place.k += Of::index(0, 0) * at;
    const Input* from = source.at(place);
    if (!live[i]) continue;
#pragma unroll
    for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
      for (int r = 0; r < 2; r += Of::kUnit ? width : 1) {
        if (Of::kContracted % 8 != 0 && Of::index(s, r) >= Of::kContracted) continue;
        Input part[width];
        source.template read<width, Step::kColumns == 1>(part, place, from, (8 * s + (Of::kUnit ? r : 4 * r)) * at);
#pragma unroll
        for (int v = 0; v < width; ++v) items[s][Of::kUnit ? r + v : r][Of::kUnit ? i : i + v] = part[v];
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

// Where a phase finds index p of its digit in the tile: of this block, or of the block that has it.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE const typename Step::Accumulator* of_digit(const typename Step::Accumulator* tile, int p) {
  if constexpr (Step::kCluster > 1 && Phase + 1 == Step::kPhases) {
    constexpr int share = Of::kContracted / Step::kCluster;
    return of_block(tile, p / share) + p % share * Of::kStride;
  } else {
    return tile + p * Of::kStride;
  }
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
        const Accumulator* from = of_digit<Step, Phase>(tile, p);
#pragma unroll
        for (int first = 0; first < Of::kLanes; first += vector) {
          const bool there = live[first / vector] && (whole || p < Of::kContracted);
          const auto row = load_if<Accumulator, vector>(there, from + places[first / vector].shared);
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
template <class Step, int Phase, Access kAccess, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void write_memory(const typename Step::Accumulator (&values)[2][Of::kLanes], int n,
                                const bool (&live)[Of::kPlaces], const Place (&places)[Of::kPlaces],
                                const Sink<Step, kAccess>& sink) {
  using Accumulator = typename Step::Accumulator;
  constexpr int width = Of::kUnit ? (Of::kProduced % 2 == 0 ? 2 : 1) : Of::kLanes / Of::kPlaces;
  constexpr int at = Step::kGroupStrideOut[Of::kDigit];
#pragma unroll
  for (int i = 0; i < Of::kPlaces; ++i) {
    if (!live[i]) continue;
    Place place = places[i];
    place.k += Of::index(0, 0) * at;
    const auto spot = sink.at(place);
#pragma unroll
    for (int r = 0; r < 2; r += Of::kUnit ? width : 1) {
      if (Of::kProduced % 8 != 0 && Of::index(n, r) >= Of::kProduced) continue;
      Accumulator part[width];
#pragma unroll
      for (int v = 0; v < width; ++v) part[v] = Of::kUnit ? values[r + v][i] : values[r][i + v];
      sink.template write<width, Step::kColumns == 1>(part, place, spot, (8 * n + (Of::kUnit ? r : 4 * r)) * at);
    }
  }
}

// All products of one part of the contraction, into the sums of parts n0 ... of the produced index.
template <int kIndex, int kParts, class T, bool kSplit, int kGroups, int kAtOnce>
KRONOP_INLINE void add_products(T (&sums)[kAtOnce][kGroups][4], const Split<T, 4, kSplit> (&a)[kGroups],
                                const Split<T, 2, kSplit> (&b)[kAtOnce], int n0) {
#pragma unroll
  for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
    for (int u = 0; u < kGroups; ++u) {
      if (n0 + n < kParts) add_product<kIndex>(sums[n][u], a[u], b[n]);
    }
  }
  if constexpr (kIndex + 1 < products_of<kSplit>) add_products<kIndex + 1, kParts>(sums, a, b, n0);
}

// The sums of parts n0 ... of the produced index.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>, class Factor>
KRONOP_INLINE void multiply(typename Step::Accumulator (&sums)[Of::kAtOnce][Of::kGroups][4], const typename Of::Fibers& fibers, int n0,
                            const Factor& factor) {
  // NOTE: the tensor cores truncate each sum. Where float32 accuracy is wanted, the ordinary cores, which
  // round, add up short sums: measured at P = 64 and 128, errors of 8e-7 and 1.7e-6 become 2e-7.
  using Accumulator = typename Step::Accumulator;
  constexpr int together = Step::kSplit ? 2 : Of::kContractedParts;
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

// The sums of one chunk of the produced index, of four warps together.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void multiply_grouped(typename Step::Accumulator (&sums)[Of::kChunk / 8][1][4], const typename Of::Fibers& fibers,
                                    const typename Step::Accumulator* factor) {
  using Accumulator = typename Step::Accumulator;
  constexpr int together = Step::kSplit ? 2 : Of::kContractedParts;
  constexpr int part_of_factor = 8 * Of::kColumns, rest_of_factor = Of::kContractedParts * part_of_factor;
#pragma unroll
  for (int first = 0; first < Of::kContractedParts; first += together) {
    constexpr int most = together < Of::kContractedParts ? together : Of::kContractedParts;
    typename Of::A a[most];
#pragma unroll
    for (int s = 0; s < most && first + s < Of::kContractedParts; ++s) {
      Accumulator fiber[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) fiber[e] = renewed(fibers[first + s][0][e]);
      a[s] = typename Of::A(fiber);
    }
    Accumulator part[Of::kChunk / 8][4];
    begin_group_products();
    bool more = false;
    // Small products first, as everywhere.
#pragma unroll
    for (int kind = 0; kind < products_of<Step::kSplit>; ++kind) {
#pragma unroll
      for (int s = 0; s < most && first + s < Of::kContractedParts; ++s) {
        const Accumulator* b = factor + (first + s) * part_of_factor;
        if constexpr (Step::kSplit) {
          group_multiply_add(part, kind == 0 ? a[s].rest : a[s].value, kind == 1 ? b + rest_of_factor : b, Of::kColumns, more);
        } else {
          group_multiply_add(part, a[s].value, b, Of::kColumns, more);
        }
        more = true;
      }
    }
    end_group_products();
#pragma unroll
    for (int n = 0; n < Of::kChunk / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][0][e] = first == 0 ? part[n][e] : sums[n][0][e] + part[n][e];
    }
  }
}

template <class Step, int Phase, Access kAccess, class Parameters>
KRONOP_INLINE void run_phase(unsigned char* shared, const Parameters& parameters, const Window<Step>& window) {
  using Of = PhaseOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  using B = typename Of::B;
  constexpr int fibers_at_once = 16 * Of::kGroups, parts = Of::kContractedParts * Of::kProducedParts;
  const B* factor = reinterpret_cast<const B*>(shared + Step::kFactorBytesAt[Of::kDigit]) + threadIdx.x % 32;
  Accumulator* tile = reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt);
  const Finish<Step> finish(parameters);
  const Source<Step, kAccess> source(parameters, window);
  const Sink<Step, kAccess> sink(parameters, window, finish);
  B held[Of::kHoldFactor ? parts : 1];
  if constexpr (Of::kHoldFactor) {
#pragma unroll
    for (int part = 0; part < parts; ++part) held[part] = factor[part * 32];
  }
  // The blocks of a cluster share the fibers of the last phase.
  constexpr int blocks = Phase + 1 == Step::kPhases ? Step::kCluster : 1;
  constexpr int at_once = Step::kThreads / 32 * fibers_at_once * blocks;
  const int warp = (blocks > 1 ? rank_of_block<Step>() * (Step::kThreads / 32) : 0) + threadIdx.x / 32;
  constexpr int unrolled = Step::kRegular && Of::kFibers % (at_once * 2) == 0 ? 2 : 1;
#pragma unroll 1
  // Warps of a group go on together.
  for (int start = warp * fibers_at_once; (Of::kGrouped ? start / 64 * 64 : start) < Of::kFibers; start += at_once * unrolled) {
    Place bases[Of::kPlaces];
    bool live[Of::kPlaces];
#pragma unroll
    for (int i = 0; i < Of::kPlaces; ++i) {
      const int fiber = Of::fiber(start, i);
      live[i] = Of::kFibers % (Of::kGrouped ? 64 : fibers_at_once) == 0 || fiber < Of::kFibers;
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
    if constexpr (reads_memory<Step, Phase>) {
      read_memory<Step, Phase, kAccess>(a, places, live, source);
    } else {
      read_tile<Step, Phase>(a, places, live, tile);
    }
    // Held factors need constant indices; elsewhere a rolled loop keeps split fibers from staying alive.
#pragma unroll(Of::kHoldFactor ? Of::kProducedParts : 1)
    for (int n0 = 0; n0 < Of::kProducedParts; n0 += Of::kAtOnce) {
      Accumulator sums[Of::kAtOnce][Of::kGroups][4];
      if constexpr (Of::kGrouped) {
        const auto* matrix = reinterpret_cast<const Accumulator*>(shared + Step::kFactorBytesAt[Of::kDigit]);
        multiply_grouped<Step, Phase>(sums, a, matrix + n0 * 32);
      } else {
        multiply<Step, Phase>(sums, a, n0, [&](int part) { return Of::kHoldFactor ? held[Of::kHoldFactor ? part : 0] : factor[part * 32]; });
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
          if constexpr (writes_memory<Step, Phase>) {
            write_memory<Step, Phase, kAccess>(values, n0 + n, live, places, sink);
          } else {
            write_tile<Step, Phase>(values, n0 + n, live, places, tile);
          }
        }
      }
    }
    }
  }
}

// The factors of all phases, as their threads take them.
template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void load_factors(unsigned char* shared, const Parameters& parameters, long long batch) {
  if constexpr (Step::kHalf) {
    load_half_factor<Step, Phase>(shared, parameters, batch);
  } else if constexpr (Step::kPhaseOther[Phase] >= 0) {
    using Of = PairOf<Step, Phase>;
    load_fragments<Step, typename Of::LeftFragments>(shared, parameters, batch);
    load_fragments<Step, typename Of::RightFragments>(shared, parameters, batch);
  } else {
    using Of = PhaseOf<Step, Phase>;
    load_fragments<Step, Either<Of::kGrouped, typename Of::GroupFragments, typename Of::Fragments>>(shared, parameters, batch);
    if constexpr (Of::kGrouped) publish_to_group_products();
  }
  if constexpr (Phase + 1 < Step::kPhases) load_factors<Step, Phase + 1>(shared, parameters, batch);
}

// All phases. Where the first one reads X itself, the next tile's X is asked for as soon as it has; where
// there are two tiles, it is on its way to the other one.
template <class Step, int Phase = 0, class Parameters>
KRONOP_INLINE void run_phases(unsigned char* shared, const Parameters& parameters, const Window<Step>& window,
                              const Window<Step>& next) {
  with_access<Step, Phase>(parameters, window, [&]<Access kAccess>() {
    if constexpr (Step::kHalf) {
      run_half<Step, Phase, kAccess>(shared, parameters, window);
    } else if constexpr (Step::kPhaseOther[Phase] >= 0) {
      run_pair<Step, Phase, kAccess>(shared, parameters, window);
    } else {
      run_phase<Step, Phase, kAccess>(shared, parameters, window);
    }
  });
  if constexpr (Phase + 1 < Step::kPhases) {
    wait_for_threads<Step, Phase + 2 == Step::kPhases>();
    if constexpr (Phase == 0 && !Step::kStagedIn) prefetch_tile<Step>(parameters, next);
    if constexpr (Phase == 0 && Step::kBuffers > 1) {
      if (next.rows > 0) stage_in<Step>(tile_of<Step>(shared, next), parameters, next);
    }
    run_phases<Step, Phase + 1>(shared, parameters, window, next);
  }
}

}  // namespace kron

// A block walks over its tiles. The next tile's X is on its way while results leave, where it can be.
template <class Step, class Parameters>
KRONOP_INLINE void kron_mma(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  const kron::Tiles<Step, Parameters> tiles(parameters);
  const bool batched = kron::batched_factors<Step>(parameters);
  long long index = blockIdx.x / Step::kCluster, loaded = -1;
  if (index >= tiles.count()) return;
  kron::Window<Step> now = tiles.open(index, 0);
  bool staged = !Step::kStagedIn;
#pragma unroll 1
  while (true) {
    if (!staged) {
      __syncthreads();
      kron::stage_in<Step>(kron::tile_of<Step>(shared, now), parameters, now);
    }
    if (loaded < 0 || (batched && now.batch != loaded)) {
      loaded = now.batch;
      kron::load_factors<Step>(shared, parameters, loaded);
    }
    wait_for_copies();
    __syncthreads();
    index += gridDim.x / Step::kCluster;
    const bool more = index < tiles.count();
    // The offsets of the tile before this one are done with since the barrier.
    kron::Window<Step> next = now;
    next.rows = 0;
    if (more) next = tiles.open(index, Step::kOffsetBytes - now.at);
    kron::run_phases<Step>(shared, parameters, now, next);
    kron::wait_for_threads<Step, true>();
    auto* tile = kron::tile_of<Step>(shared, now);
    constexpr bool exchanges = Step::kStagedIn && Step::kStagedOut && Step::kBuffers == 1;
    if constexpr (exchanges) staged = more && kron::exchange<Step>(tile, parameters, now, next);
    if constexpr (Step::kStagedOut) {
      if (!exchanges || !staged) kron::finish_tile<Step>(tile, parameters, now);
    }
    if constexpr (Step::kBuffers > 1) staged = more;
    if (!more) return;
    now = next;
  }
}

}  // namespace kronop
