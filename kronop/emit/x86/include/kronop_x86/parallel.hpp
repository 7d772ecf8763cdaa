// How work is divided among threads, and how many threads a call uses.
#pragma once

#include "kronop_x86/functions.hpp"

#ifdef _OPENMP
#include <time.h>

extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
#endif

namespace kronop {

// State that all kernels of a process share. `cpus`: the CPUs of the process. `calls` and
// `threads`: how many calls are running, and their threads. `punctual`: how many threads a call may
// have so that none of them is late. `latest`: threads of the latest call that had several.
// `balance`: nanoseconds of work minus nanoseconds of waiting for late threads in recent calls.
// `pause`: length of the latest pause in nanoseconds, in which no more threads are tried;
// `resumption`: when it ends.
struct Crew {
  int cpus, calls, threads, punctual;
  index_t latest, balance, pause, resumption;
};

}  // namespace kronop

// The Crew of the process, set when a kernel is loaded. Without it every call uses as many threads
// as it asks for: so do exported libraries, which have no global variables.
#ifdef KRONOP_WITHOUT_CREW
static constexpr kronop::Crew* kronop_crew = nullptr;
#else
extern "C" kronop::Crew* kronop_crew;
kronop::Crew* kronop_crew = nullptr;
#endif

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

// Nanoseconds that this thread has waited for others in the current call.
static thread_local index_t waited = 0;

// The threads of one call. It gets as many threads as it asks for if the other running calls leave
// enough CPUs, but at least an equal share of all CPUs, and keeps them until it ends. When calls
// come and go, their threads add up to the number of CPUs once each caller has started a new call.
//
// If other processes use the CPUs, threads wait for each other for milliseconds: OpenMP's threads
// spin while they wait, and the scheduler later takes that time away from them. If a call waits for
// longer than it works, half as many threads would have been as fast. The next calls then use half
// as many, for four times as long as that call waited, or twice as long as a recent previous pause.
// After that they double their threads until all are used again.
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

  // Runs action(thread, threads) in each of OpenMP's threads, and measures the time of thread 0.
  // Threads may wait for each other before and after the action.
  template <class Action>
  KRONOP_INLINE void act(const Action& action) {
    const int thread = omp_get_thread_num();
    if (thread == 0) started_ = now();
    action(thread, omp_get_num_threads());
    if (thread == 0) finished_ = now();
  }

 private:
  // NOTE: kLate is more than the 0.1 ms in which a sleeping thread wakes, and less than a time
  // slice of the scheduler, some milliseconds. kMost is a few time slices: even on a quiet machine
  // a thread may lose its CPU for that long, which is no reason for a change.
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
    // OpenMP ends threads that a smaller team does not use and starts them again for a larger one,
    // which takes longer than a short call (3.6 ms for 8 threads beside other processes on 2 CPUs).
    // So a call with more threads than the previous one is not judged.
    const index_t latest = peek(crew_->latest);
    put(crew_->latest, index_t(threads_));
    if (latest < threads_) return;
    const index_t ended = now(), took = ended - begun_, own = finished_ - started_ - waited,
                  lost = took - own;
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

// Calls action(share, first, end) for `shares` contiguous parts of [0, items), the first of which
// is the largest: on as many threads as there are CPUs for, or sequentially if `alone`. One thread
// needs no parallel region, since entering one takes microseconds.
// NOTE: GCC's OpenMP does not survive fork(): in the child it waits for threads that exist only in
// the parent. There the caller passes `alone`; the number of shares stays what it was when the
// parameters were packed.
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

// Calls action(share, shares) on at most `threads` threads at once, which may wait for each other.
// There is one share if `alone`, or if OpenMP has no more threads.
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

// Waits for all threads of the team; every thread of it has to call this.
KRONOP_INLINE void wait_for_team() {
#ifdef _OPENMP
  const index_t begun = now();
#pragma omp barrier
  if (kronop_crew != nullptr) waited += now() - begun;
#endif
}

}  // namespace kronop
