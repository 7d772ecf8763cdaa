// Runs a CUDA kernel of this project on the CPU: blocks one after another, threads as fibres.
//
// A fibre runs until it reaches a barrier or its end; then the next one runs. Shared memory and
// the stacks are poisoned, so that a value that nobody wrote shows up as NaN.
//
// Fibres enter their stacks through <ucontext.h>, and change places by the compiler's own long jumps:
// a swapcontext asks the kernel for the signals each time, which took most of a run.
//
// Kernels are compiled with little optimisation, since there are many and they run once; what stands
// here is shared by all of them and takes most of their time.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#pragma GCC push_options
#pragma GCC optimize("O2")
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

inline constexpr std::size_t stack_bytes = 256 * 1024, poisoned_bytes = 8 * 1024;

enum class Waiting { nothing, warp, group, block, cluster };

// Where a stack was left: five words, as __builtin_setjmp asks for.
struct Place {
  void* words[5];
};

struct Fibre {
  Place place;
  bool entered, done;
  Waiting waiting;
};

inline std::vector<Fibre> fibres;
inline std::unique_ptr<char[]> stacks;  // of all fibres
inline Place scheduler;
inline unsigned current;
inline std::vector<std::vector<unsigned char>> shared;  // of each block of a cluster
inline unsigned threads_of_block;
inline void (*body)();
inline unsigned said;  // 1: the next launch may begin; 2: this one waits for the one before.

[[noreturn, gnu::noinline]] inline void jump(Place& there) { __builtin_longjmp(there.words, 1); }

// Goes on elsewhere, and returns when somebody goes on here.
[[gnu::noinline]] inline void leave(Place& here, Place& there) {
  if (__builtin_setjmp(here.words) == 0) jump(there);
}

inline void wait(Waiting waiting) {
  fibres[current].waiting = waiting;
  leave(fibres[current].place, scheduler);
}

// Lets the fibres [first, end) go on where all of them that live wait for each other.
inline void release(unsigned first, unsigned end, Waiting waiting) {
  for (unsigned thread = first; thread < end; ++thread) {
    if (!fibres[thread].done && fibres[thread].waiting != waiting) return;
  }
  for (unsigned thread = first; thread < end; ++thread) fibres[thread].waiting = Waiting::nothing;
}

// A fibre of one thread of each block in turn.
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
  context.uc_stack.ss_sp = stacks.get() + thread * stack_bytes;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
  setcontext(&context);
}

inline unsigned char* shared_of(unsigned block) {
  const auto address = reinterpret_cast<std::size_t>(shared[block].data());
  return shared[block].data() + (1024 - address % 1024) % 1024;
}

// The blocks of a cluster, the first of which is `first`, with so many threads in all.
inline void run_cluster(unsigned first, unsigned threads) {
  for (auto& memory : shared) std::memset(memory.data(), 0xff, memory.size());
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
    for (unsigned at = 0; at + 128 <= threads; at += 128) release(at, at + 128, Waiting::group);
    for (unsigned at = 0; at < threads; at += threads_of_block) release(at, at + threads_of_block, Waiting::block);
    release(0, threads, Waiting::cluster);
  }
}

inline void run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned shared_bytes, unsigned cluster) {
  body = kernel;
  threads_of_block = threads;
  fibres.assign(threads * cluster, {});
  stacks.reset(new char[threads * cluster * stack_bytes]);
  for (unsigned thread = 0; thread < threads * cluster; ++thread) {
    std::memset(stacks.get() + (thread + 1) * stack_bytes - poisoned_bytes, 0xff, poisoned_bytes);
  }
  shared.resize(cluster);
  for (auto& memory : shared) memory.resize(shared_bytes + 1024);
  gridDim.x = blocks;
  for (unsigned block = 0; block < blocks; block += cluster) run_cluster(block, threads * cluster);
  stacks.reset();  // They are large.
}

}  // namespace emulation

inline void __syncthreads() { emulation::wait(emulation::Waiting::block); }

namespace emulation {

// What the threads of a warp bring to a product on the tensor cores.
template <class T>
struct Operands {
  T a[32][4], b[32][2];
};
template <class T>
inline std::vector<Operands<T>> operands;

// The tensor cores drop the low bits of a float; sums are exact here.
inline float operand(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0xffffe000u);
}
inline double operand(double x) { return x; }

template <class T>
inline void warp_multiply_add(T (&sums)[4], const T (&a)[4], const T (&b)[2]) {
  const unsigned warp = current / 32, thread = current % 32;
  if (operands<T>.size() <= warp) operands<T>.resize(warp + 1);
  std::memcpy(operands<T>[warp].a[thread], a, sizeof(a));
  std::memcpy(operands<T>[warp].b[thread], b, sizeof(b));
  wait(Waiting::warp);
  const Operands<T>& all = operands<T>[warp];
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < 2; ++r) {
      const int lane = thread / 4 + 8 * half, produced = thread % 4 * 2 + r;
      double sum = sums[2 * half + r];
      for (int k = 0; k < 8; ++k) {
        const T left = all.a[lane % 8 * 4 + k % 4][lane / 8 + 2 * (k / 4)];
        const T right = all.b[produced * 4 + k % 4][k / 4];
        sum += double(operand(left)) * double(operand(right));
      }
      sums[2 * half + r] = T(sum);
    }
  }
  wait(Waiting::warp);
}

// The rows of a warp do not depend on the other warps of its group.
template <int N>
inline void group_multiply_add(float (&sums)[N][4], const float (&a)[4], const float* b, int columns, bool more) {
  const unsigned warp = current / 32, thread = current % 32;
  if (operands<float>.size() <= warp) operands<float>.resize(warp + 1);
  std::memcpy(operands<float>[warp].a[thread], a, sizeof(a));
  wait(Waiting::warp);
  const Operands<float>& all = operands<float>[warp];
  for (int n = 0; n < N; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int lane = thread / 4 + 8 * (e / 2), column = 8 * n + thread % 4 * 2 + e % 2;
      double sum = more ? sums[n][e] : 0;
      for (int k = 0; k < 8; ++k) {
        const float left = all.a[lane % 8 * 4 + k % 4][lane / 8 + 2 * (k / 4)];
        const float right = b[(k / 4 * (columns / 8) + column / 8) * 32 + column % 8 * 4 + k % 4];
        sum += double(operand(left)) * double(operand(right));
      }
      sums[n][e] = float(sum);
    }
  }
  wait(Waiting::warp);
}

// Several 8 x 8 matrices of 16-bit elements, of which each thread gives the place of one row.
struct Matrices {
  unsigned short* rows[32];
};
inline std::vector<Matrices> matrices;

template <bool kTurned, bool kStore, int N>
inline void move_matrices(unsigned (&words)[N], const void* row) {
  const unsigned warp = current / 32, thread = current % 32;
  if (matrices.size() <= warp) matrices.resize(warp + 1);
  matrices[warp].rows[thread] = static_cast<unsigned short*>(const_cast<void*>(row));
  if (reinterpret_cast<std::size_t>(row) % 16 != 0) std::abort();
  wait(Waiting::warp);
  for (int m = 0; m < N; ++m) {
    for (int r = 0; r < 2; ++r) {
      const int lane = thread / 4, index = thread % 4 * 2 + r;
      unsigned short& element = kTurned ? matrices[warp].rows[8 * m + index][lane] : matrices[warp].rows[8 * m + lane][index];
      if constexpr (kStore) {
        element = static_cast<unsigned short>(words[m] >> 16 * r);
      } else {
        words[m] = (r ? words[m] & 0xffffu : 0) | unsigned(element) << 16 * r;
      }
    }
  }
  wait(Waiting::warp);
}

// What the threads of a warp bring to a product of 16-bit operands.
struct Words {
  unsigned a[32][4], b[32][2];
};
inline std::vector<Words> words_of;

// Row `lane` of the left operand, contracted index k.
inline unsigned short left_of(const Words& all, int lane, int k) {
  return static_cast<unsigned short>(all.a[lane % 8 * 4 + k % 8 / 2][lane / 8 + k / 8 * 2] >> 16 * (k % 2));
}

// By F16C: the cast of a _Float16 calls a function of libgcc, which took half of some runs.
inline float of_half(unsigned short bits) {
  typedef short Halves __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps(Halves{static_cast<short>(bits)})[0];
}

template <class T>
inline double widened(unsigned short bits) {
  if (std::is_same_v<T, kronop::half_t>) return double(of_half(bits));
  return double(__builtin_bit_cast(float, unsigned(bits) << 16));
}

template <class T>
inline void warp_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned warp = current / 32, thread = current % 32;
  if (words_of.size() <= warp) words_of.resize(warp + 1);
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  words_of[warp].b[thread][0] = b0;
  words_of[warp].b[thread][1] = b1;
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  for (int e = 0; e < 4; ++e) {
    const int lane = thread / 4 + 8 * (e / 2), produced = thread % 4 * 2 + e % 2;
    double sum = sums[e];
    for (int k = 0; k < 16; ++k) {
      const unsigned word = all.b[produced * 4 + k % 8 / 2][k / 8];
      sum += widened<T>(left_of(all, lane, k)) * widened<T>(static_cast<unsigned short>(word >> 16 * (k % 2)));
    }
    sums[e] = float(sum);
  }
  wait(Waiting::warp);
}

// The same of bytes: of the left operand signed or not; sums wrap.
template <class Sum, int N>
inline void warp_multiply_add(Sum (&sums)[4], const unsigned (&a)[2 * N], const unsigned (&b)[N], bool is_signed) {
  const unsigned warp = current / 32, thread = current % 32;
  if (words_of.size() <= warp) words_of.resize(warp + 1);
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  std::memcpy(words_of[warp].b[thread], b, sizeof(b));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  for (int e = 0; e < 4; ++e) {
    const int lane = thread / 4 + 8 * (e / 2), produced = thread % 4 * 2 + e % 2;
    unsigned sum = sums[e].value;
    for (int k = 0; k < 16 * N; ++k) {
      const unsigned left = all.a[lane % 8 * 4 + k % 16 / 4][lane / 8 + k / 16 * 2] >> 8 * (k % 4) & 0xffu;
      const unsigned right = all.b[produced * 4 + k % 16 / 4][k / 16] >> 8 * (k % 4) & 0xffu;
      sum += (is_signed ? int(static_cast<signed char>(left)) : int(left)) * int(static_cast<signed char>(right));
    }
    sums[e].value = int(sum);
  }
  wait(Waiting::warp);
}

inline unsigned take_bytes(unsigned first, unsigned second, unsigned which) {
  const unsigned long long both = (unsigned long long)second << 32 | first;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) word |= unsigned(both >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
  return word;
}

struct Matrix {
  const unsigned char* from;
  int columns;
  Matrix(const void* from, int columns) : from(static_cast<const unsigned char*>(from)), columns(columns) {}
};

template <class T, int N>
inline void group_multiply_add(float (&sums)[N][4], const unsigned (&a)[4], const Matrix& matrix, int bytes, bool more) {
  const auto* b = reinterpret_cast<const unsigned short*>(matrix.from + bytes);
  const int columns = matrix.columns;
  const unsigned warp = current / 32, thread = current % 32;
  if (words_of.size() <= warp) words_of.resize(warp + 1);
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  wait(Waiting::warp);
  for (int n = 0; n < N; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int lane = thread / 4 + 8 * (e / 2), column = 8 * n + thread % 4 * 2 + e % 2;
      double sum = more ? sums[n][e] : 0;
      for (int k = 0; k < 16; ++k) {
        sum += widened<T>(left_of(words_of[warp], lane, k)) * widened<T>(b[(k / 8 * columns + column) * 8 + k % 8]);
      }
      sums[n][e] = float(sum);
    }
  }
  wait(Waiting::warp);
}

// Lets the other threads go on until `is_done`.
template <class Condition>
inline void wait_until(Condition is_done) {
  for (long rounds = 0; !is_done(); ++rounds) {
    if (rounds > 10000000) {
      std::fprintf(stderr, "a barrier waits for threads that do not come\n");
      std::abort();
    }
    wait(Waiting::nothing);
  }
}

// A barrier in shared memory: its phase ends when all have arrived.
struct Barrier {
  short count, missing;
  unsigned phase;
  void begin(int threads) {
    count = missing = short(threads);
    phase = 0;
  }
  void arrive() {
    if (--missing == 0) {
      missing = count;
      ++phase;
    }
  }
  void arrive_after_copies() { arrive(); }
  void arrive_with(void* to, const void* from, int bytes) {
    if ((reinterpret_cast<std::size_t>(to) | reinterpret_cast<std::size_t>(from) | bytes) % 16 != 0) std::abort();
    std::memcpy(to, from, bytes);
    arrive();
  }
  void wait(unsigned parity) {
    wait_until([&] { return (phase & 1) != parity; });
  }
};

struct NamedBarrier {
  unsigned arrived, phase;
};
inline NamedBarrier named_barriers[16];

template <int kThreads>
inline void wait_for_team(int index) {
  NamedBarrier& barrier = named_barriers[index];
  const unsigned phase = barrier.phase;
  if (++barrier.arrived == kThreads) {
    barrier.arrived = 0;
    ++barrier.phase;
  }
  wait_until([&] { return barrier.phase != phase; });
}

// A matrix in swizzled rows, and its elements.
struct GroupMatrix {
  std::size_t from;
  int eight_rows, row_bytes, part;
  GroupMatrix(const void* from, int eight_rows, int row_bytes, int part = 16)
      : from(reinterpret_cast<std::size_t>(from)), eight_rows(eight_rows), row_bytes(row_bytes), part(part) {}
  GroupMatrix after(int bytes) const {
    GroupMatrix result = *this;
    result.from += bytes;
    return result;
  }
  template <class T>
  T at(int row, int along) const {
    const int each = row_bytes / int(sizeof(T));
    const std::size_t place = from + along / each * part + row / 8 * eight_rows + row % 8 * row_bytes + along % each * sizeof(T);
    const std::size_t mask = row_bytes == 128 ? 7 : row_bytes == 64 ? 3 : 1;
    return *reinterpret_cast<const T*>(place ^ (place >> 7 & mask) << 4);
  }
};

// What a thread has of 16 rows x 8 N sums; left(row, k) is of this warp's rows.
template <int N, class Left, class Right>
inline void add_group_product(float (&sums)[N][4], bool more, int steps, Left left, Right right) {
  const unsigned thread = current % 32;
  for (int n = 0; n < N; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int row = thread / 4 + 8 * (e / 2), column = 8 * n + thread % 4 * 2 + e % 2;
      double sum = more ? sums[n][e] : 0;
      for (int k = 0; k < steps; ++k) sum += left(row, k) * right(column, k);
      sums[n][e] = float(sum);
    }
  }
}

template <class T, int N>
inline void group_product(float (&sums)[N][4], const unsigned (&a)[4], const GroupMatrix& b, bool more) {
  const unsigned warp = current / 32;
  if (words_of.size() <= warp) words_of.resize(warp + 1);
  std::memcpy(words_of[warp].a[current % 32], a, sizeof(a));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  if constexpr (sizeof(T) == 4) {
    const auto left = [&](int row, int k) { return double(operand(__builtin_bit_cast(float, all.a[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)]))); };
    add_group_product(sums, more, 8, left, [&](int column, int k) { return double(operand(b.at<float>(column, k))); });
  } else {
    const auto left = [&](int row, int k) { return widened<T>(left_of(all, row, k)); };
    add_group_product(sums, more, 16, left, [&](int column, int k) { return widened<T>(b.at<unsigned short>(column, k)); });
  }
  wait(Waiting::warp);
}

template <class T, bool kTurned, bool kTurnedRight = false, int N>
inline void group_product(float (&sums)[N][4], const GroupMatrix& a, const GroupMatrix& b, bool more) {
  const int first = int(current / 32 % 4 * 16);
  const auto left = [&](int row, int k) { return widened<T>(kTurned ? a.at<unsigned short>(k, first + row) : a.at<unsigned short>(first + row, k)); };
  const auto right = [&](int column, int k) { return widened<T>(kTurnedRight ? b.at<unsigned short>(k, column) : b.at<unsigned short>(column, k)); };
  add_group_product(sums, more, 16, left, right);
}

}  // namespace emulation

namespace kronop {
using emulation::Barrier;
using emulation::GroupMatrix;
using emulation::group_product;
using emulation::wait_for_team;
inline void publish_barriers() {}
inline void let_next_launch_begin() { emulation::said |= 1; }
inline void wait_for_launch_before() { emulation::said |= 2; }
template <int kCount>
inline void give_registers_back() {}
template <int kCount>
inline void take_registers() {}
template <int N>
inline void wait_for_group_products() {}
using emulation::group_multiply_add;
using emulation::Matrix;
using emulation::take_bytes;

using emulation::warp_multiply_add;
template <bool kTurned>
inline void load_matrices(unsigned (&words)[4], const void* row) {
  emulation::move_matrices<kTurned, false>(words, row);
}
template <bool kTurned>
inline void store_matrices(void* row, const unsigned (&words)[4]) {
  emulation::move_matrices<kTurned, true>(const_cast<unsigned (&)[4]>(words), row);
}
inline void load_turned_matrices(unsigned (&words)[2], const void* row) {
  emulation::move_matrices<true, false>(words, row);
}
inline void begin_group_products() {}
inline void commit_group_products() {}
inline void wait_for_group_products() {}
inline void publish_to_group_products() {}
inline float round_to_tf32(float x) {
  return __builtin_bit_cast(float, (__builtin_bit_cast(unsigned, x) + 0x1000u) & 0xffffe000u);
}
inline double round_to_tf32(double x) { return x; }
inline float renewed(float x) { return x; }
inline double renewed(double x) { return x; }
inline unsigned renewed(unsigned x) { return x; }
inline long long renewed(long long x) { return x; }
template <int Bytes>
inline void copy_asynchronously(void* to, const void* from) {
  struct alignas(Bytes) Piece {
    unsigned char bytes[Bytes];
  };
  *static_cast<Piece*>(to) = *static_cast<const Piece*>(from);
}
template <int Bytes>
inline void copy_or_clear(void* to, const void* from, int bytes) {
  if (reinterpret_cast<std::size_t>(to) % Bytes != 0 || (bytes > 0 && reinterpret_cast<std::size_t>(from) % Bytes != 0)) std::abort();
  std::memset(to, 0, Bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}
template <int N>
inline void store_words(void* to, const unsigned (&words)[N]) {
  if (reinterpret_cast<std::size_t>(to) % sizeof(words) != 0) std::abort();
  std::memcpy(to, words, sizeof(words));
}
inline void commit_copies() {}
template <int N>
inline void wait_for_older_copies() {}
inline void wait_for_warp() { emulation::wait(emulation::Waiting::warp); }
inline void wait_for_group(int) { emulation::wait(emulation::Waiting::group); }
inline void wait_for_copies() {}
inline constexpr bool kPrefetchesPieces = true;
inline void prefetch_line(const void*) {}
inline void prefetch_piece(const void*, int) {}
inline int cluster_rank() { return int(emulation::current / emulation::threads_of_block); }
inline void cluster_barrier() { emulation::wait(emulation::Waiting::cluster); }
inline unsigned char* shared_memory() { return emulation::shared_of(cluster_rank()); }
template <class T>
inline const T* of_block(const T* pointer, int rank) {
  const auto offset = reinterpret_cast<const unsigned char*>(pointer) - shared_memory();
  return reinterpret_cast<const T*>(emulation::shared_of(rank) + offset);
}
}  // namespace kronop
#pragma GCC pop_options
