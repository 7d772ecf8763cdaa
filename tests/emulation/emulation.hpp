// Runs a CUDA kernel of this project on the CPU: blocks one after another, threads as fibres.
//
// A fibre runs until it reaches a barrier or its end; then the next one runs. Shared memory and
// the stacks are poisoned, so that a value that nobody wrote shows up as NaN.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define KRONOP_EMULATION
#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)

struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, gridDim;

namespace emulation {

inline constexpr std::size_t stack_bytes = 256 * 1024;

struct Fibre {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
  int barriers;
};

inline std::vector<Fibre> fibres;
inline ucontext_t scheduler;
inline unsigned current;
inline std::vector<unsigned char> shared;
inline void (*body)();

inline void barrier() {
  ++fibres[current].barriers;
  swapcontext(&fibres[current].context, &scheduler);
}

inline void start() {
  body();
  fibres[current].done = true;
}

inline void run_block(unsigned threads) {
  std::memset(shared.data(), 0xff, shared.size());
  for (unsigned thread = 0; thread < threads; ++thread) {
    Fibre& fibre = fibres[thread];
    fibre.stack.resize(stack_bytes);
    fibre.done = false;
    fibre.barriers = 0;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = stack_bytes;
    fibre.context.uc_link = &scheduler;
    makecontext(&fibre.context, start, 0);
  }
  for (unsigned left = threads; left > 0;) {
    for (unsigned thread = 0; thread < threads; ++thread) {
      if (fibres[thread].done) continue;
      current = threadIdx.x = thread;
      swapcontext(&scheduler, &fibres[thread].context);
      left -= fibres[thread].done;
      if (fibres[thread].barriers != fibres[0].barriers) {
        std::fprintf(stderr, "thread %u misses a barrier\n", thread);
        std::abort();
      }
    }
  }
}

inline void run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned shared_bytes) {
  body = kernel;
  fibres.resize(threads);
  shared.resize(shared_bytes + 16);
  gridDim.x = blocks;
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    run_block(threads);
  }
}

}  // namespace emulation

inline void __syncthreads() { emulation::barrier(); }

namespace kronop {
inline unsigned char* shared_memory() {
  const auto address = reinterpret_cast<std::size_t>(emulation::shared.data());
  return emulation::shared.data() + (16 - address % 16) % 16;
}
}  // namespace kronop
