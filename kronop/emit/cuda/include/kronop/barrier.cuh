// Barriers in shared memory between the threads that fill tiles and those that use them, and what else
// warp groups with different work need.
#pragma once

#include "memory.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// A phase ends when `count` threads have arrived; phases have the parities 0, 1, 0, and so on.
struct Barrier {
  unsigned long long state;

  KRONOP_INLINE void begin(int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(place()), "r"(count) : "memory"); }
  KRONOP_INLINE void arrive() { asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(place()) : "memory"); }
  // Arrives when this thread's asynchronous copies so far are there.
  KRONOP_INLINE void arrive_after_copies() { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(place()) : "memory"); }
  // Until the phase of that parity has ended.
  KRONOP_INLINE void wait(unsigned parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@done bra over;\nbra again;\nover:}" ::"r"(place()), "r"(parity) : "memory");
  }

  // One thread brings bytes, a multiple of 16, to shared memory at once. They count as an arrival.
  KRONOP_INLINE void arrive_with(void* to, const void* from, int bytes) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}" ::"r"(place()), "r"(bytes) : "memory");
    const unsigned shared = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(from), "r"(bytes), "r"(place()) : "memory");
  }

 private:
  KRONOP_INLINE unsigned place() const { return unsigned(__cvta_generic_to_shared(this)); }
};
// Barriers that have begun are known to all that come to the next __syncthreads().
KRONOP_INLINE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// A warp group takes registers that another has given back: so many for each of its threads.
template <int kCount>
KRONOP_INLINE void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
KRONOP_INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// A barrier of kThreads threads, one of the 15 that a block has beside its own.
template <int kThreads>
KRONOP_INLINE void wait_for_team(int index) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + index), "n"(kThreads) : "memory");
}
#endif

// Stages that are filled and used in turn.
template <int kStages>
struct Turn {
  int stage = 0;
  unsigned parity = 0;
  KRONOP_INLINE void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

}  // namespace kronop
