// Work shared among threads.
#pragma once

#include "kronop_x86/numeric.hpp"

#ifdef _OPENMP
#include <time.h>

extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
#endif

namespace kronop {

// What the kernels of a process know of each other: the CPUs that they have in common, the calls that
// run and the threads of these; then how many threads a call may have so that none is late, by how much
// lately more was worked than waited for such, and after how long a pause, until when, more threads are
// not tried (nanoseconds); and the threads of the latest call that had several.
struct Crew {
  int cpus, calls, threads, punctual;
  index_t latest, balance, pause, resumption;
};

}  // namespace kronop

// The one of the process, which sets it when it loads a kernel. Without it every call takes what it
// asks for.
extern "C" kronop::Crew* kronop_crew;
kronop::Crew* kronop_crew = nullptr;

#ifdef _OPENMP
namespace kronop {

template <class T>
KRONOP_INLINE T peek(const T& place) {
  return __atomic_load_n(&place, __ATOMIC_RELAXED);
}
template <class T>
KRONOP_INLINE void put(T& place, T value) {
  __atomic_store_n(&place, value, __ATOMIC_RELAXED);
}

KRONOP_INLINE index_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return index_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

// What this thread has waited for others within a call.
static thread_local index_t waited = 0;

// The threads of one call: of those it wants, as many as the calls that run meanwhile have left CPUs
// for, and at least what would be its own if all had as many. It keeps them to its end: with others
// that come and go, the sum comes to the number of CPUs as soon as each has begun anew.
//
// Where other processes keep the CPUs busy, threads that wait for each other do so for milliseconds:
// OpenMP's spin, and what a thread spins it is not scheduled for later. Waiting for longer than working
// means that half as many threads would have been as fast. The next calls then take half as many, for four
// times as long as the last one waited, or twice as long as the last time where that was lately. After
// that they take twice as many again until all are back.
class Enlisted {
 public:
  explicit Enlisted(index_t wanted) : crew_(kronop_crew), threads_(int(wanted)) {
    if (crew_ == nullptr) return;
    const int calls = __atomic_add_fetch(&crew_->calls, 1, __ATOMIC_RELAXED);
    const int left = crew_->cpus - peek(crew_->threads);
    const int own = crew_->cpus / calls;
    const int most = left > own ? left : own > 1 ? own : 1;
    threads_ = threads_ < most ? threads_ : most;
    if (threads_ > 1) begin();
    __atomic_fetch_add(&crew_->threads, threads_, __ATOMIC_RELAXED);
  }
  ~Enlisted() {
    if (crew_ == nullptr) return;
    if (threads_ > 1) end();
    __atomic_fetch_sub(&crew_->threads, threads_, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&crew_->calls, 1, __ATOMIC_RELAXED);
  }
  Enlisted(const Enlisted&) = delete;
  Enlisted& operator=(const Enlisted&) = delete;

  int threads() const { return threads_; }

  // action(thread, threads), by each of OpenMP's. Before and after it they may wait for each other.
  template <class Action>
  KRONOP_INLINE void act(const Action& action) {
    const int thread = omp_get_thread_num();
    if (thread == 0) started_ = now();
    action(thread, omp_get_num_threads());
    if (thread == 0) finished_ = now();
  }

 private:
  // NOTE: a thread that slept wakes within 0.1 ms, and a scheduler's slice is some milliseconds. What a quiet
  // machine takes a CPU away for, a few of them, is not worth a change.
  static constexpr index_t kLate = 1000000, kMost = 50000000, kLongest = 1000000000;

  void begin() {
    begun_ = now();
    const int punctual = peek(crew_->punctual);
    if (threads_ > punctual) {
      const int most = begun_ < peek(crew_->resumption) ? punctual : 2 * punctual;
      threads_ = threads_ < most ? threads_ : most;
    }
    waited = 0;
  }

  void end() const {
    // OpenMP ends threads that a smaller team leaves over and starts them again for a larger one, which takes
    // longer than a short call (3.6 ms for 8 of them beside others on 2 CPUs): the call after it is judged.
    const index_t latest = peek(crew_->latest);
    put(crew_->latest, index_t(threads_));
    if (latest < threads_) return;
    const index_t ended = now(), took = ended - begun_, own = finished_ - started_ - waited, lost = took - own;
    index_t balance = peek(crew_->balance) + own - (lost > kLate ? lost : 0);
    if (balance < 0) {
      rest(ended, lost);
      balance = 0;
    } else if (threads_ > peek(crew_->punctual)) {
      put(crew_->punctual, threads_);
    }
    put(crew_->balance, balance < kMost ? balance : kMost);
  }

  void rest(index_t ended, index_t lost) const {
    const index_t before = peek(crew_->pause);
    index_t pause = ended < peek(crew_->resumption) + 4 * before ? 2 * before : 4 * lost;
    pause = pause < kLongest ? pause : kLongest;
    put(crew_->punctual, threads_ / 2);
    put(crew_->pause, pause);
    put(crew_->resumption, ended + pause);
  }

  Crew* crew_;
  int threads_;
  index_t begun_ = 0, started_ = 0, finished_ = 0;
};

}  // namespace kronop
#endif

namespace kronop {

// action(share, first, end) for `shares` contiguous parts of [0, items), the first the largest, on as many
// threads as there are CPUs for, or one after the other where `alone`. One thread makes no parallel
// region: entering one takes microseconds.
// NOTE: GCC's OpenMP does not survive fork(): in the child it waits for threads that only the parent
// has. The caller says `alone` there; shares stay as they were cut when the parameters were packed.
template <class Action>
KRONOP_INLINE void share_out(index_t items, index_t shares, bool alone, const Action& action) {
  const auto cut = [&](index_t share) { return (items * share + shares - 1) / shares; };
  const auto run = [&](index_t share) { action(share, cut(share), cut(share + 1)); };
#ifdef _OPENMP
  Enlisted enlisted(alone ? 1 : shares);
  if (enlisted.threads() > 1) {
#pragma omp parallel num_threads(enlisted.threads())
    enlisted.act([&](index_t thread, index_t threads) {
      for (index_t share = thread; share < shares; share += threads) run(share);
    });
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
  Enlisted enlisted(alone ? 1 : threads);
  if (enlisted.threads() > 1) {
#pragma omp parallel num_threads(enlisted.threads())
    enlisted.act(action);
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
  const index_t begun = now();
#pragma omp barrier
  waited += now() - begun;
#endif
}

}  // namespace kronop
