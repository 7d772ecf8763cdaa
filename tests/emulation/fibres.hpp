// Runs the threads of a launch as fibres: the blocks of one cluster after those of another.
//
// A fibre runs until it reaches a barrier or its end; then the next one runs. Fibres enter their
// stacks through <ucontext.h>, and change places by the compiler's own long jumps, because a
// swapcontext asks the system for the signals each time, which took most of a run.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#pragma GCC push_options
#pragma GCC optimize("O2")
// For the functions that take most of a run: without optimisation of the whole, the
// compiler inlines no others.
#define EMULATION_INLINED __attribute__((always_inline))
#define EMULATION_INLINE inline EMULATION_INLINED
#define KRONOP_EMULATION
#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, gridDim;

namespace kronop {
struct half_t;
struct bfloat16_t;
}  // namespace kronop

namespace emulation {

inline constexpr std::size_t stack_bytes = 256 * 1024, poisoned_bytes = 8 * 1024, page_bytes = 4096;
// Of a cluster.
inline constexpr unsigned most_blocks = 16, most_threads = 8192, most_warps = most_threads / 32;

enum class Waiting { nothing, warp, warp_group, block, cluster };

// Where a stack was left: five words, as __builtin_setjmp asks for.
struct Place {
  void* words[5];
};

struct Fibre {
  Place place;
  bool entered, done;
  Waiting waiting;
};

inline Fibre fibres[most_threads];
inline char* stacks;  // of all fibres
inline Place scheduler;
inline unsigned current;
inline unsigned char* shared[most_blocks];  // of each block of a cluster
inline unsigned threads_of_block;
inline void (*body)();
inline unsigned said;  // bit 0: the next launch may begin; bit 1: waits for the launch before

[[noreturn, gnu::noinline]] inline void jump(Place& there) { __builtin_longjmp(there.words, 1); }

// Continues at `there`, and returns when another fibre continues at `here`.
[[gnu::noinline]] inline void leave(Place& here, Place& there) {
  if (__builtin_setjmp(here.words) == 0) jump(there);
}

inline void wait(Waiting waiting) {
  fibres[current].waiting = waiting;
  leave(fibres[current].place, scheduler);
}

// Releases the fibres [first, end) if all of them that have not ended wait for each other.
inline void release(unsigned first, unsigned end, Waiting waiting) {
  for (unsigned thread = first; thread < end; ++thread) {
    if (!fibres[thread].done && fibres[thread].waiting != waiting) return;
  }
  for (unsigned thread = first; thread < end; ++thread) fibres[thread].waiting = Waiting::nothing;
}

// The body of a fibre, which is one thread of each block in turn.
inline void start() {
  for (;;) {
    body();
    fibres[current].done = true;
    leave(fibres[current].place, scheduler);
  }
}

[[gnu::noinline]] inline void enter(unsigned thread) {
  if (__builtin_setjmp(scheduler.words) != 0) return;
  if (fibres[thread].entered) jump(fibres[thread].place);
  fibres[thread].entered = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + thread * stack_bytes;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
  setcontext(&context);
}

inline unsigned char* shared_of(unsigned block) { return shared[block]; }

// Runs the blocks of the cluster whose first block is `first`; `threads` counts those of all its
// blocks.
inline void run_cluster(unsigned first, unsigned threads) {
  for (unsigned thread = 0; thread < threads; ++thread) {
    fibres[thread].done = false;
    fibres[thread].waiting = Waiting::nothing;
  }
  for (unsigned left = threads; left > 0;) {
    bool moved = false;
    for (unsigned thread = 0; thread < threads; ++thread) {
      if (fibres[thread].done || fibres[thread].waiting != Waiting::nothing) continue;
      moved = true;
      current = thread;
      threadIdx.x = thread % threads_of_block;
      blockIdx.x = first + thread / threads_of_block;
      enter(thread);
      left -= fibres[thread].done;
    }
    if (!moved) {
      std::fprintf(stderr, "threads wait for others that do not come\n");
      std::abort();
    }
    for (unsigned at = 0; at < threads; at += 32) release(at, at + 32, Waiting::warp);
    for (unsigned at = 0; at + 128 <= threads; at += 128)
      release(at, at + 128, Waiting::warp_group);
    for (unsigned at = 0; at < threads; at += threads_of_block)
      release(at, at + threads_of_block, Waiting::block);
    release(0, threads, Waiting::cluster);
  }
}

inline void run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned shared_bytes,
                unsigned cluster) {
  const unsigned every = threads * cluster;
  if (cluster > most_blocks || every > most_threads) std::abort();
  body = kernel;
  threads_of_block = threads;
  std::memset(fibres, 0, every * sizeof(Fibre));
  stacks = static_cast<char*>(std::malloc(every * stack_bytes));
  for (unsigned thread = 0; thread < every; ++thread) {
    std::memset(stacks + (thread + 1) * stack_bytes - poisoned_bytes, 0xff, poisoned_bytes);
  }
  // What lies behind the bytes of a block belongs to nobody: from the next 1024 bytes on, whoever
  // touches it ends the process.
  const std::size_t own = (shared_bytes + 1024 - 1) / 1024 * 1024,
                    apart = (own + page_bytes - 1) / page_bytes * page_bytes + page_bytes;
  void* const mapped =
      mmap(nullptr, cluster * apart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  for (unsigned block = 0; block < cluster; ++block) {
    unsigned char* const behind = static_cast<unsigned char*>(mapped) + (block + 1) * apart;
    if (mprotect(behind - page_bytes, page_bytes, PROT_NONE) != 0) std::abort();
    shared[block] = behind - page_bytes - own;
  }
  gridDim.x = blocks;
  for (unsigned block = 0; block < blocks; block += cluster) {
    for (unsigned i = 0; i < cluster; ++i) std::memset(shared[i], 0xff, own);
    run_cluster(block, every);
  }
  munmap(mapped, cluster * apart);
  std::free(stacks);
}

}  // namespace emulation

inline void __syncthreads() { emulation::wait(emulation::Waiting::block); }
#pragma GCC pop_options
