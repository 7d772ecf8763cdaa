// How a phase that contracts one digit moves fibers: from the tile or X to registers, and back to
// the tile or to Y.
#pragma once

#include "kron_ends.cuh"

namespace kronop {
namespace kron {

// Loads a thread's fibers from X. All loads are issued before the first one is needed.
template <class Step, int Phase, Access kAccess, class Of = PhaseOf<Step, Phase>, class Element>
KRONOP_INLINE void read_memory(Element (&a)[Of::kContractedParts][Of::kFiberTiles][4],
                               const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces],
                               const Source<Step, kAccess>& source) {
  using Input = typename Step::Input;
  // The elements of one access: a pair of a contiguous digit, if its size is even; or all lanes.
  constexpr int width = Of::kUnit ? (Of::kContracted % 2 == 0 ? 2 : 1) : Of::kLanes / Of::kPlaces;
  constexpr int at = step_in<Step>(Of::kDigit);
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
        source.template read<width, Step::kColumns == 1>(part, place, from,
                                                         (8 * s + (Of::kUnit ? r : 4 * r)) * at);
#pragma unroll
        for (int v = 0; v < width; ++v)
          items[s][Of::kUnit ? r + v : r][Of::kUnit ? i : i + v] = part[v];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        a[s][lane / 2][lane % 2 + 2 * r] = convert<Element>(items[s][r][lane]);
      }
    }
  }
}

// The address of index p of the digit: in this block's tile or, for the last phase of a cluster, in
// the tile of the block that has the index (distributed shared memory).
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE const typename Step::Accumulator* of_digit(const typename Step::Accumulator* tile,
                                                         int p) {
  if constexpr (Step::kCluster > 1 && Phase + 1 == Step::kPhases) {
    constexpr int share = Of::kContracted / Step::kCluster;
    return of_block(tile, p / share) + p % share * Of::kStride;
  } else {
    return tile + p * Of::kStride;
  }
}

// Loads a thread's fibers from the tile.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void read_tile(typename Of::Fibers& a, const Place (&places)[Of::kPlaces],
                             const bool (&live)[Of::kPlaces],
                             const typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr bool whole = Of::kContracted % 8 == 0;
#pragma unroll
  for (int s = 0; s < Of::kContractedParts; ++s) {
    if constexpr (Of::kUnit) {
      const int p = Of::index(s, 0);
      // A digit has an even number of slots, so that a pair does not cross its end.
#pragma unroll
      for (int lane = 0; lane < Of::kLanes; ++lane) {
        const bool there = live[lane] && (whole || p < Of::kContracted);
        const auto pair = load_if<Accumulator, 2>(there, tile + places[lane].shared + p);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          a[s][lane / 2][lane % 2 + 2 * r] =
              whole || p + r < Of::kContracted ? pair.data[r] : Accumulator{};
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
          const auto row =
              load_if<Accumulator, vector>(there, from + places[first / vector].shared);
#pragma unroll
          for (int v = 0; v < vector; ++v)
            a[s][(first + v) / 2][(first + v) % 2 + 2 * r] = row.data[v];
        }
      }
    }
  }
}

// Stores the sums of the produced indices of part n, as [r][lane], to the tile.
template <class Step, int Phase, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void write_tile(const typename Step::Accumulator (&values)[2][Of::kLanes], int n,
                              const bool (&live)[Of::kPlaces], const Place (&places)[Of::kPlaces],
                              typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr bool whole = Of::kProduced % 8 == 0;
  if constexpr (Of::kUnit) {
    const int q = Of::index(n, 0);
    if (!whole && q >= Of::kProduced) return;
#pragma unroll
    for (int lane = 0; lane < Of::kLanes; ++lane) {
      if (live[lane])
        store<Accumulator, 2>(tile + places[lane].shared + q, {values[0][lane], values[1][lane]});
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

// Applies the epilogue to the same sums and stores them to Y.
template <class Step, int Phase, Access kAccess, class Of = PhaseOf<Step, Phase>>
KRONOP_INLINE void write_memory(const typename Step::Accumulator (&values)[2][Of::kLanes], int n,
                                const bool (&live)[Of::kPlaces], const Place (&places)[Of::kPlaces],
                                const Sink<Step, kAccess>& sink) {
  using Accumulator = typename Step::Accumulator;
  constexpr int width = Of::kUnit ? (Of::kProduced % 2 == 0 ? 2 : 1) : Of::kLanes / Of::kPlaces;
  constexpr int at = step_out<Step>(Of::kDigit);
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
      sink.template write<width, Step::kColumns == 1>(part, place, spot,
                                                      (8 * n + (Of::kUnit ? r : 4 * r)) * at);
    }
  }
}

}  // namespace kron
}  // namespace kronop
