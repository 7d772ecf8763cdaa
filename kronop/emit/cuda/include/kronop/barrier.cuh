// Barriers in shared memory between producer and consumer warps, and what else specialised warp
// groups need: reallocation of registers, and the state of a pipeline of stages.
#pragma once

#include "memory.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// A barrier that opens whenever `count` threads have arrived. Its openings, which end PTX's phases,
// have the parities 0, 1, 0, ...
struct Barrier {
  unsigned long long state;

  KRONOP_INLINE void begin(int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(place()), "r"(count) : "memory");
  }
  KRONOP_INLINE void arrive() {
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}"
                 :
                 : "r"(place())
                 : "memory");
  }
  // Arrives as soon as the asynchronous copies that this thread has issued so far are complete.
  KRONOP_INLINE void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(place()) : "memory");
  }
  // Waits for the opening of this parity.
  KRONOP_INLINE void wait(unsigned parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@done bra over;\nbra again;\nover:}"
        :
        : "r"(place()), "r"(parity)
        : "memory");
  }

  // One thread starts a bulk copy of `bytes` bytes, a multiple of 16, to shared memory. It counts
  // as one arrival, and the barrier does not open before the bytes are there.
  KRONOP_INLINE void arrive_with(void* to, const void* from, int bytes) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}"
                 :
                 : "r"(place()), "r"(bytes)
                 : "memory");
    const unsigned shared = unsigned(__cvta_generic_to_shared(to));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];"
        :
        : "r"(shared), "l"(from), "r"(bytes), "r"(place())
        : "memory");
  }

 private:
  KRONOP_INLINE unsigned place() const { return unsigned(__cvta_generic_to_shared(this)); }
};
// Makes the barriers that this thread has begun visible to all threads that pass the next
// __syncthreads().
KRONOP_INLINE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Reallocates registers between warp groups (setmaxnreg): one releases, another acquires. kCount is
// the number of registers of each of its threads afterwards.
template <int kCount>
KRONOP_INLINE void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
KRONOP_INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// A named barrier of kThreads threads: one of the 15 that a block has beside that of
// __syncthreads().
template <int kThreads>
KRONOP_INLINE void wait_for_team(int index) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + index), "n"(kThreads) : "memory");
}
#endif

// The current stage of a ring of stages that are filled and used in order, and the parity of the
// next opening of its barriers.
template <int kStages>
struct Turn {
  int stage = 0;
  unsigned parity = 0;
  KRONOP_INLINE void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  // Skips the next stages, which others use.
  KRONOP_INLINE void skip(int stages) {
    const int next = stage + stages;
    stage = next % kStages;
    parity ^= next / kStages & 1;
  }
};

}  // namespace kronop
