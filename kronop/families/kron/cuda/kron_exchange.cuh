// Results are stored while the next tile's X is loaded into the same memory: the last phase of a
// tile runs together with the first phase of the next tile.
//
// A chunk is all elements of the digits of both phases at one index of the digits between them: the
// last phase reads exactly the elements there that the first phase writes. So the threads of a
// chunk wait for no other threads, and loading X, MMAs and storing Y overlap.
#pragma once

#include "kron_pair.cuh"
#include "kron_single.cuh"

namespace kronop {
namespace kron {

template <class Step, int Phase, class Parameters, int kEach>
using PlainWork =
    Either<(Step::kPhaseOther[Phase] >= 0), PairWork<Step, Phase, Access::kPlain, kEach>,
           PhaseWork<Step, Phase, Access::kPlain, Parameters, kEach>>;

// Runs the last phase of tile `before`, if `leaves`, and the first phase of tile `now`, if `comes`.
// The first X is loaded before the barrier that both begin with.
template <class Step, class Parameters>
KRONOP_INLINE void run_exchange(unsigned char* shared, const Parameters& parameters,
                                const Window<Step>& before, bool leaves, const Window<Step>& now,
                                bool comes) {
  using Last = PlainWork<Step, Step::kPhases - 1, Parameters, 0>;
  using First = PlainWork<Step, 0, Parameters, Step::kExchange>;
  // A crew, the threads that process chunks together, is a warp or a warp group.
  constexpr int warps = Step::kPhaseWgmma[0] ? 4 : 1, crews = Step::kThreads / 32 / warps;
  constexpr int coming = warps * First::kAtOnce, leaving = warps * Last::kAtOnce;
  constexpr int tasks = First::kFibers / coming, pieces = Last::kFibers / tasks / leaving;
  static_assert(First::kFibers % (coming * crews) == 0 && Last::kFibers % (tasks * leaving) == 0,
                "crews take whole chunks");
  const int warp = threadIdx.x / 32 % warps, crew = threadIdx.x / 32 / warps;
  // renewed() hides from the compiler that `leaves` and `comes` are the same in every round. It
  // would otherwise make a loop for each case, and move the first phase, which waits for X, before
  // the last one.
  typename First::Piece in;
  const First ahead(shared, parameters, now);  // only fetches X, for which no barrier is needed
  const auto fetch = [&](int task) {
    if (task < tasks && renewed(unsigned(comes)))
      ahead.fetch(in, task * coming + warp * First::kAtOnce, 0);
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
      wait_for_warp_group(crew);
    } else {
      wait_for_warp();
    }
    if (renewed(unsigned(comes))) first.use(in);
    fetch(task + crews);
  }
}

}  // namespace kron
}  // namespace kronop
