// Work shared among threads.
#pragma once

#include "kronop_x86/numeric.hpp"

#ifdef _OPENMP
extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
#endif

namespace kronop {

// action(share, first, end) for `shares` contiguous parts of [0, items), each on a thread of its own
// where OpenMP is there, or one after the other where `alone`. One share makes no parallel region:
// entering one takes microseconds.
// NOTE: GCC's OpenMP does not survive fork(): in the child it waits for threads that only the parent
// has. The caller says `alone` there; shares stay as they were cut when the parameters were packed.
template <class Action>
KRONOP_INLINE void share_out(index_t items, index_t shares, bool alone, const Action& action) {
  const auto run = [&](index_t share) { action(share, items * share / shares, items * (share + 1) / shares); };
#ifdef _OPENMP
  if (shares > 1 && !alone) {
#pragma omp parallel for schedule(static, 1) num_threads(int(shares))
    for (index_t share = 0; share < shares; ++share) run(share);
    return;
  }
#endif
  (void)alone;
  for (index_t share = 0; share < shares; ++share) run(share);
}

// action(share, shares) on `threads` threads at once, which may wait for each other; one share where
// `alone`, or where OpenMP gives no more.
template <class Action>
KRONOP_INLINE void as_team(index_t threads, bool alone, const Action& action) {
#ifdef _OPENMP
  if (threads > 1 && !alone) {
#pragma omp parallel num_threads(int(threads))
    action(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  (void)alone;
  (void)threads;
  action(0, 1);
}

// Called by every thread of a team.
KRONOP_INLINE void wait_for_team() {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

}  // namespace kronop
