// Results leave the tile and the next tile's X comes in their place, in one phase: the last one of a tile together with the
// first one of the next.
//
// A chunk is all elements of the digits of both phases at one index of the digits between: what the last phase reads there
// is what the first one writes. So whoever takes a chunk needs no other threads to be done, and reading X, the products and
// writing Y go on at once.
#pragma once

#include "kron_pair.cuh"
#include "kron_single.cuh"

namespace kronop {
namespace kron {

template <class Step, int Phase, class Parameters, int kEach>
using PlainWork = Either<(Step::kPhaseOther[Phase] >= 0), PairWork<Step, Phase, Access::kPlain, kEach>,
                         PhaseWork<Step, Phase, Access::kPlain, Parameters, kEach>>;

// The last phase of tile `before`, if `leaves`, and the first one of tile `now`, if `comes`. X is asked for ahead of the barrier
// that both begin with.
template <class Step, class Parameters>
KRONOP_INLINE void run_exchange(unsigned char* shared, const Parameters& parameters, const Window<Step>& before, bool leaves,
                                const Window<Step>& now, bool comes) {
  using Last = PlainWork<Step, Step::kPhases - 1, Parameters, 0>;
  using First = PlainWork<Step, 0, Parameters, Step::kExchange>;
  // The threads that take chunks together are a warp, or the four of a group.
  constexpr int warps = Step::kPhaseGrouped[0] ? 4 : 1, crews = Step::kThreads / 32 / warps;
  constexpr int coming = warps * First::kAtOnce, leaving = warps * Last::kAtOnce;
  constexpr int tasks = First::kFibers / coming, pieces = Last::kFibers / tasks / leaving;
  static_assert(First::kFibers % (coming * crews) == 0 && Last::kFibers % (tasks * leaving) == 0, "crews take whole chunks");
  const int warp = threadIdx.x / 32 % warps, crew = threadIdx.x / 32 / warps;
  // Values that the compiler takes for new ones keep it from making a loop for each case, and from moving the first phase,
  // which waits for X, ahead of the last one.
  typename First::Piece in;
  const First ahead(shared, parameters, now);  // of which nothing is taken that has to wait for the barrier
  const auto fetch = [&](int task) {
    if (task < tasks && renewed(unsigned(comes))) ahead.fetch(in, task * coming + warp * First::kAtOnce, 0);
  };
  fetch(crew);
  __syncthreads();
  const Last last(shared, parameters, before);
  const First first(shared, parameters, now);
#pragma unroll 1
  for (int task = crew; task < tasks; task += crews) {
    if (renewed(unsigned(leaves))) {
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        typename Last::Piece out;
        last.fetch(out, task * pieces * leaving + warp * Last::kAtOnce, piece * leaving);
        last.use(out);
      }
    }
    if constexpr (warps > 1) {
      wait_for_group(crew);
    } else {
      wait_for_warp();
    }
    if (renewed(unsigned(comes))) first.use(in);
    fetch(task + crews);
  }
}

}  // namespace kron
}  // namespace kronop
