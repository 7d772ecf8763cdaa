// A pass of a Kronecker matmul on the tensor cores: adjacent digits of a tile.
//
// A tile is [kRows][digits][kColumns]. Columns are the free index that is contiguous in memory,
// rows are the other free indices. Each phase contracts one digit of all fibers along it: a warp
// multiplies 16 or 32 fibers by the factor and overwrites them with the results. The tile is in
// shared memory, with strides that are padded against bank conflicts; a phase whose fibers are
// contiguous in memory may read X or write Y itself.
#pragma once

#include "kron_exchange.cuh"
#include "kron_half.cuh"

namespace kronop {
namespace kron {

// Loads the factors of phases Phase ... All loads that registers suffice for are issued before one
// is waited for, and then() runs meanwhile.
template <class Step, int Phase, int kHeld, class Parameters, class Then>
KRONOP_INLINE void load_factors(const Factors<Step, Parameters>& factors, Then then) {
  if constexpr (Phase == Step::kPhases) {
    then();
  } else {
    const auto rest = [&]<int kMore>() { load_factors<Step, Phase + 1, kMore>(factors, then); };
    if constexpr (Step::kHalf) {
      using Of = HalfOf<Step, Phase>;
      load_fragments<
          Step, Either<Of::kWgmma, typename Of::WarpGroupFragments, typename Of::Fragments>, kHeld>(
          factors, rest);
    } else if constexpr (Step::kPhaseOther[Phase] >= 0) {
      using Of = PairOf<Step, Phase>;
      load_fragments<Step, typename Of::LeftFragments, kHeld>(factors, [&]<int kMore>() {
        load_fragments<Step, typename Of::RightFragments, kMore>(factors, rest);
      });
    } else {
      using Of = PhaseOf<Step, Phase>;
      load_fragments<
          Step, Either<Of::kWgmma, typename Of::WarpGroupFragments, typename Of::Fragments>, kHeld>(
          factors, rest);
    }
  }
}

// Loads the factors for the first tile of a batch, whose phases wait for them, and prefetches X if
// a phase reads it from global memory.
template <class Step, class Parameters>
KRONOP_INLINE void prepare(unsigned char* shared, const Parameters& parameters,
                           const Window<Step>& window) {
  const Factors<Step, Parameters> factors(shared, parameters, window.batch);
  load_factors<Step, 0, 0>(factors, [&]() {
    if constexpr (!Step::kStagedIn) {
      __syncthreads();
      prefetch_tile<Step>(parameters, window);
    }
  });
  if constexpr (Step::kHalf) put_zeros<Step>(shared);
  if constexpr (wgmma_phases<Step>() > 0) publish_to_warp_group_products();
}

template <class Step, int Phase, Access kAccess, class Parameters>
KRONOP_INLINE void run_one(unsigned char* shared, const Parameters& parameters,
                           const Window<Step>& window) {
  if constexpr (Step::kHalf) {
    run_half<Step, Phase, kAccess>(shared, parameters, window);
  } else if constexpr (Step::kPhaseOther[Phase] >= 0) {
    run_pair<Step, Phase, kAccess>(shared, parameters, window);
  } else {
    run_phase<Step, Phase, kAccess>(shared, parameters, window);
  }
}

// Whether a phase has one loop for all kinds of access (kAny): if warp groups multiply a long
// digit.
template <class Step, int Phase>
KRONOP_INLINE constexpr bool chooses_inside() {
  if constexpr (Step::kHalf || !Step::kPhaseWgmma[Phase]) {
    return false;
  } else {
    return PhaseOf<Step, Phase>::kContractedParts > 8;
  }
}

// Runs phases Phase to kEnd - 1. After the first phase the next tile's X is prefetched, if that
// phase reads X itself; with two tile buffers, X is copied to the other one.
template <class Step, int Phase = 0, int kEnd = Step::kPhases, class Parameters>
KRONOP_INLINE void run_phases(unsigned char* shared, const Parameters& parameters,
                              const Window<Step>& window, const Window<Step>& next) {
  if constexpr (chooses_inside<Step, Phase>()) {
    run_one<Step, Phase, Access::kAny>(shared, parameters, window);
  } else {
    with_access<Step, Phase>(parameters, window, [&]<Access kAccess>() {
      run_one<Step, Phase, kAccess>(shared, parameters, window);
    });
  }
  if constexpr (Phase + 1 < kEnd) {
    wait_for_threads<Step, Phase + 2 == Step::kPhases>();
    if constexpr (Phase == 0 && !Step::kStagedIn) prefetch_tile<Step>(parameters, next);
    if constexpr (Phase == 0 && Step::kBuffers > 1) {
      if (next.rows > 0) stage_in<Step>(tile_of<Step>(shared, next), parameters, next);
    }
    run_phases<Step, Phase + 1, kEnd>(shared, parameters, window, next);
  }
}

// Runs the last phase of tile `before`, if `leaves`, and the first phase of tile `now`, if `comes`:
// together if they access memory in the plain way, else one after the other.
template <class Step, class Parameters>
KRONOP_INLINE void end_and_begin(unsigned char* shared, const Parameters& parameters,
                                 const Window<Step>& before, bool leaves, const Window<Step>& now,
                                 bool comes) {
  constexpr int last = Step::kPhases - 1;
  const bool wide_in = wide<Step>(Step::kXVector, parameters.x_vector, now);
  const bool wide_out = wide<Step>(Step::kYVector, parameters.y_vector, before);
  const bool plain_out = wide_out && !parameters.z;
  if (leaves && !plain_out) {
    __syncthreads();
    if (wide_out) {
      run_one<Step, last, Access::kSource>(shared, parameters, before);
    } else {
      run_one<Step, last, Access::kNarrow>(shared, parameters, before);
    }
  }
  run_exchange<Step>(shared, parameters, before, leaves && plain_out, now, comes && wide_in);
  if (comes && !wide_in) {
    __syncthreads();
    run_one<Step, 0, Access::kNarrow>(shared, parameters, now);
  }
}

// A persistent block iterates over its tiles; each begins while the previous one ends. A tile with
// other factors than the previous one waits for its end.
template <class Step, class Parameters>
KRONOP_INLINE void walk_exchanging(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  const Tiles<Step, Parameters> tiles(parameters);
  long long index = blockIdx.x;
  const auto open = [&](int at) {
    Window<Step> window{at, 0, 0, 0};
    if (index < tiles.count()) window = tiles.open(index, at);
    index += gridDim.x;
    return window;
  };
  Window<Step> before{}, now = open(0), next = open(Step::kOffsetBytes);
  bool ready = false;  // whether the factors are those of `now`
#pragma unroll 1
  while (true) {
    const bool comes = now.rows > 0 && (ready || before.rows == 0);
    if (comes && !ready) prepare<Step>(shared, parameters, now);
    end_and_begin<Step>(shared, parameters, before, before.rows > 0, now, comes);
    if (now.rows == 0) return;
    __syncthreads();
    before = now;
    before.rows = comes;
    if (!comes) continue;
    prefetch_tile<Step>(parameters, next);
    const int at = (next.at + Step::kOffsetBytes) % (3 * Step::kOffsetBytes);
    now = next;
    next = open(at);
    run_phases<Step, 1, Step::kPhases - 1>(shared, parameters, before, now);
    ready = now.batch == before.batch || !batched_factors<Step>(parameters);
  }
}

}  // namespace kron

// A persistent block iterates over its tiles. If possible, the next tile's X is loaded while
// results are stored.
template <class Step, class Parameters>
KRONOP_INLINE void walk_over_tiles(const Parameters& parameters) {
  unsigned char* shared = shared_memory();
  const kron::Tiles<Step, Parameters> tiles(parameters);
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
    if (now.batch != loaded) {
      if (loaded < 0 || kron::batched_factors<Step>(parameters))
        kron::prepare<Step>(shared, parameters, now);
      loaded = now.batch;
    }
    wait_for_copies();
    __syncthreads();
    index += gridDim.x / Step::kCluster;
    const bool more = index < tiles.count();
    // After the barrier nobody reads the previous tile's offsets: the next tile's replace them.
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

template <class Decided, class Parameters>
KRONOP_INLINE void kron_mma(const Parameters& parameters) {
  using Step = kron::MmaStep<Decided>;
  if constexpr (Step::kExchange > 0) {
    kron::walk_exchanging<Step>(parameters);
  } else {
    walk_over_tiles<Step>(parameters);
  }
}

}  // namespace kronop
