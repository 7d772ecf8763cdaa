// The barriers of barrier.cuh for fibres.
#pragma once

#include "fibres.hpp"

#pragma GCC push_options
#pragma GCC optimize("O2")

namespace emulation {

// Lets other threads run until is_done() holds.
template <class Condition>
EMULATION_INLINE void wait_until(Condition is_done) {
  for (long rounds = 0; !is_done(); ++rounds) {
    if (rounds > 10000000) {
      std::fprintf(stderr, "a barrier waits for threads that do not come\n");
      std::abort();
    }
    wait(Waiting::nothing);
  }
}

// A barrier in shared memory: it opens when all threads have arrived, and all bytes that these
// expect.
struct Barrier {
  int bytes;
  unsigned count : 10, missing : 10, openings : 12;
  void begin(int threads) {
    count = missing = unsigned(threads);
    openings = 0;
    bytes = 0;
  }
  void arrive() {
    if (missing-- == 0) std::abort();
    end();
  }
  void expect(int more) {
    bytes += more;
    arrive();
  }
  void complete(int fewer) {
    bytes -= fewer;
    end();
  }
  void end() {
    if (missing == 0 && bytes == 0) {
      missing = count;
      ++openings;
    }
  }
  void arrive_after_copies() { arrive(); }
  void arrive_with(void* to, const void* from, int bytes) {
    if ((reinterpret_cast<std::size_t>(to) | reinterpret_cast<std::size_t>(from) | bytes) % 16 != 0)
      std::abort();
    std::memcpy(to, from, bytes);
    arrive();
  }
  void wait(unsigned parity) {
    wait_until([&]() EMULATION_INLINED { return (openings & 1) != parity; });
  }
};

struct NamedBarrier {
  unsigned arrived, openings;
};
inline NamedBarrier named_barriers[16][16];  // of each block of a cluster

template <int kThreads>
inline void wait_for_team(int index) {
  NamedBarrier& barrier = named_barriers[current / threads_of_block][index];
  const unsigned openings = barrier.openings;
  if (++barrier.arrived == kThreads) {
    barrier.arrived = 0;
    ++barrier.openings;
  }
  wait_until([&]() EMULATION_INLINED { return barrier.openings != openings; });
}

}  // namespace emulation

#pragma GCC pop_options
