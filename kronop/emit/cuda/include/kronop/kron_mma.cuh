// A pass of a Kronecker matmul on the tensor cores: a contiguous group of digits of a tile.
//
// A tile is [kRows][group of digits][kColumns]. Columns are the free index that is contiguous in
// memory, rows are the other free indices. Each phase contracts one digit of all fibers along it:
// a warp takes 16 or 32 fibers, multiplies them by the factor and puts the results where the fibers
// were. The tile is in shared memory, with strides that are padded against bank conflicts; a phase
// whose fibers are contiguous in memory may read X or write Y itself.
#pragma once

#include "kron_exchange.cuh"

namespace kronop {
namespace kron {

// The factors of phases Phase ... All loads that registers have room for are under way before one is
// waited for, and `then` runs meanwhile.
template <class Step, int Phase, int kHeld, class Parameters, class Then>
KRONOP_INLINE void load_factors(const Factors<Step, Parameters>& factors, Then then) {
  if constexpr (Phase == Step::kPhases) {
    then();
  } else {
    const auto rest = [&]<int kMore>() { load_factors<Step, Phase + 1, kMore>(factors, then); };
    if constexpr (Step::kPhaseOther[Phase] >= 0) {
      using Of = PairOf<Step, Phase>;
      load_fragments<Step, typename Of::LeftFragments, kHeld>(factors, [&]<int kMore>() {
        load_fragments<Step, typename Of::RightFragments, kMore>(factors, rest);
      });
    } else {
      using Of = PhaseOf<Step, Phase>;
      load_fragments<Step, Either<Of::kGrouped, typename Of::GroupFragments, typename Of::Fragments>, kHeld>(factors, rest);
    }
  }
}

// What the phases of a batch's first tile wait for: the factors. X, where a phase reads it, is asked for as well.
template <class Step, class Parameters>
KRONOP_INLINE void prepare(unsigned char* shared, const Parameters& parameters, const Window<Step>& window) {
  const Factors<Step, Parameters> factors(shared, parameters, window.batch);
  load_factors<Step, 0, 0>(factors, [&]() {
    if constexpr (!Step::kStagedIn) {
      __syncthreads();
      prefetch_tile<Step>(parameters, window);
    }
  });
  if constexpr (grouped_phases<Step>() > 0) publish_to_group_products();
}

// Phases Phase ... kEnd - 1. Where the first one reads X itself, the next tile's X is asked for as soon as it has.
template <class Step, int Phase = 0, int kEnd = Step::kPhases, class Parameters>
KRONOP_INLINE void run_phases(unsigned char* shared, const Parameters& parameters, const Window<Step>& window,
                              const Window<Step>& next) {
  with_access<Step, Phase>(parameters, window, [&]<Access kAccess>() {
    if constexpr (Step::kPhaseOther[Phase] >= 0) {
      run_pair<Step, Phase, kAccess>(shared, parameters, window);
    } else {
      run_phase<Step, Phase, kAccess>(shared, parameters, window);
    }
  });
  if constexpr (Phase + 1 < Step::kPhases) {
    wait_for_threads<Step, Phase + 2 == Step::kPhases>();
    if constexpr (Phase == 0 && !Step::kStagedIn) prefetch_tile<Step>(parameters, next);
    if constexpr (Phase + 1 < kEnd) run_phases<Step, Phase + 1, kEnd>(shared, parameters, window, next);
  }
}

// All phases of a tile, but the first one where the tile before has done it. Returns whether the next tile's is done, too.
template <class Step, class Parameters>
KRONOP_INLINE bool run_tile(unsigned char* shared, const Parameters& parameters, const Window<Step>& window, const Window<Step>& next,
                            bool begun) {
  if constexpr (Step::kExchange > 0) {
    constexpr int last = Step::kPhases - 1;
    if (begun) {
      prefetch_tile<Step>(parameters, next);
    } else {
      run_phases<Step, 0, 1>(shared, parameters, window, next);
    }
    run_phases<Step, 1, last>(shared, parameters, window, next);
    if (exchange_phases<Step>(shared, parameters, window, next)) return true;
    run_phases<Step, last>(shared, parameters, window, next);
  } else {
    run_phases<Step>(shared, parameters, window, next);
  }
  return false;
}

}  // namespace kron

// A block walks over its tiles. The next tile's X is on its way while results leave, where it can be.
template <class Step, class Parameters>
KRONOP_INLINE void kron_mma(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  auto* tile = reinterpret_cast<typename Step::Accumulator*>(shared + Step::kTileBytesAt);
  const kron::Tiles<Step, Parameters> tiles(parameters);
  long long index = blockIdx.x / Step::kCluster, loaded = -1;
  if (index >= tiles.count()) return;
  // Opens the tile after that of a window, if there is one, where no living tile's offsets are.
  const auto follow = [&](kron::Window<Step> window) {
    const int at = (window.at + Step::kOffsetBytes) % (Step::kOffsetTiles * Step::kOffsetBytes);
    index += gridDim.x / Step::kCluster;
    window.rows = 0;
    if (index < tiles.count()) window = tiles.open(index, at);
    return window;
  };
  kron::Window<Step> now = tiles.open(index, 0), next = now;
  if constexpr (Step::kExchange > 0) next = follow(now);
  bool staged = !Step::kStagedIn, begun = false;
#pragma unroll 1
  while (true) {
    if (!staged) {
      __syncthreads();
      kron::stage_in<Step>(tile, parameters, now);
    }
    if (now.batch != loaded) {
      if (loaded < 0 || kron::batched_factors<Step>(parameters)) kron::prepare<Step>(shared, parameters, now);
      loaded = now.batch;
    }
    wait_for_copies();
    __syncthreads();
    // The offsets of the tile before this one are done with since the barrier.
    const kron::Window<Step> after = follow(Step::kExchange > 0 ? next : now);
    if constexpr (Step::kExchange == 0) next = after;
    const bool more = next.rows > 0;
    begun = kron::run_tile<Step>(shared, parameters, now, next, begun);
    // Others wait at the next tile's barrier.
    if (Step::kStagedOut || Step::kCluster > 1 || next.batch != now.batch) kron::wait_for_threads<Step, true>();
    if constexpr (Step::kStagedIn && Step::kStagedOut) staged = more && kron::exchange<Step>(tile, parameters, now, next);
    if constexpr (Step::kStagedOut) {
      if (!Step::kStagedIn || !staged) kron::finish_tile<Step>(tile, parameters, now);
    }
    if (!more) return;
    now = next;
    next = after;
  }
}

}  // namespace kronop
