// Work shared among threads.
#pragma once

#include "kronop_x86/numeric.hpp"

#ifdef _OPENMP
extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
#endif

namespace kronop {

// What the kernels of a process know of each other: the CPUs that they have in common, the calls that
// run, and the threads of these.
struct Crew {
  int cpus, calls, threads;
};

}  // namespace kronop

// The one of the process, which sets it when it loads a kernel. Without it every call takes what it
// asks for.
extern "C" kronop::Crew* kronop_crew;
kronop::Crew* kronop_crew = nullptr;

namespace kronop {

// The threads of one call: of those it wants, as many as the calls that run meanwhile have left CPUs
// for, and at least what would be its own if all had as many. It keeps them to its end: with others
// that come and go, the sum comes to the number of CPUs as soon as each has begun anew.
class Enlisted {
 public:
  KRONOP_INLINE explicit Enlisted(index_t wanted) : crew_(kronop_crew), threads_(int(wanted)) {
    if (crew_ == nullptr) return;
    const int calls = __atomic_add_fetch(&crew_->calls, 1, __ATOMIC_RELAXED);
    const int left = crew_->cpus - __atomic_load_n(&crew_->threads, __ATOMIC_RELAXED);
    const int own = crew_->cpus / calls;
    const int most = left > own ? left : own > 1 ? own : 1;
    threads_ = threads_ < most ? threads_ : most;
    __atomic_fetch_add(&crew_->threads, threads_, __ATOMIC_RELAXED);
  }
  KRONOP_INLINE ~Enlisted() {
    if (crew_ == nullptr) return;
    __atomic_fetch_sub(&crew_->threads, threads_, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&crew_->calls, 1, __ATOMIC_RELAXED);
  }
  Enlisted(const Enlisted&) = delete;
  Enlisted& operator=(const Enlisted&) = delete;

  KRONOP_INLINE int threads() const { return threads_; }

 private:
  Crew* crew_;
  int threads_;
};

// action(share, first, end) for `shares` contiguous parts of [0, items), on as many threads as there
// are CPUs for, or one after the other where `alone`. One thread makes no parallel region: entering
// one takes microseconds.
// NOTE: GCC's OpenMP does not survive fork(): in the child it waits for threads that only the parent
// has. The caller says `alone` there; shares stay as they were cut when the parameters were packed.
template <class Action>
KRONOP_INLINE void share_out(index_t items, index_t shares, bool alone, const Action& action) {
  const auto run = [&](index_t share) { action(share, items * share / shares, items * (share + 1) / shares); };
#ifdef _OPENMP
  const Enlisted enlisted(alone ? 1 : shares);
  if (enlisted.threads() > 1) {
#pragma omp parallel for schedule(static, 1) num_threads(enlisted.threads())
    for (index_t share = 0; share < shares; ++share) run(share);
    return;
  }
#endif
  (void)alone;
  for (index_t share = 0; share < shares; ++share) run(share);
}

// action(share, shares) on at most `threads` threads at once, which may wait for each other; one share
// where `alone`, or where OpenMP gives no more.
template <class Action>
KRONOP_INLINE void as_team(index_t threads, bool alone, const Action& action) {
#ifdef _OPENMP
  const Enlisted enlisted(alone ? 1 : threads);
  if (enlisted.threads() > 1) {
#pragma omp parallel num_threads(enlisted.threads())
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
