// Vectorised and asynchronous copies, shared memory, mixed-radix indices, and how results are
// stored.
#pragma once

#include "activations.cuh"

namespace kronop {

// N elements that are read or written in one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T data[N];
};

template <class T, int N>
KRONOP_INLINE Vector<T, N> load(const T* pointer) {
  return *reinterpret_cast<const Vector<T, N>*>(pointer);
}

template <class T, int N>
KRONOP_INLINE void store(T* pointer, const Vector<T, N>& value) {
  *reinterpret_cast<Vector<T, N>*>(pointer) = value;
}

// N elements of shared memory, or zeros if !there: another warp may be writing to that memory.
template <class T, int N>
KRONOP_INLINE Vector<T, N> load_if(bool there, const T* from) {
  Vector<T, N> values{};
  if (there) values = load<T, N>(from);
  return values;
}

namespace detail {
template <bool kFirst, class A, class B>
struct either {
  using type = A;
};
template <class A, class B>
struct either<false, A, B> {
  using type = B;
};
}  // namespace detail
template <bool kFirst, class A, class B>
using Either = typename detail::either<kFirst, A, B>::type;

#if !defined(KRONOP_EMULATION)
// Lets the next launch of the stream begin early (programmatic dependent launch), if it may. That
// launch itself waits for the end of this one.
KRONOP_INLINE void let_next_launch_begin() {
#if defined(KRONOP_HAS_CLUSTERS)
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until all writes of the previous launch are visible.
KRONOP_INLINE void wait_for_launch_before() {
#if defined(KRONOP_HAS_CLUSTERS)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks of a cluster: this block's rank, a cluster-wide barrier, and another block's shared
// memory.
KRONOP_INLINE int cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
// NOTE: a release at cluster scope would also wait for all stores of the block to global memory.
// Block scope suffices: other blocks only read this block's shared memory, which is not cached
// elsewhere, and use barriers that the block has published to them.
KRONOP_INLINE void cluster_barrier() {
  asm volatile(
      "fence.acq_rel.cta;\n"
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;"
      :
      :
      : "memory");
}
// The last barrier: no block ends, and frees its shared memory, before all blocks have finished
// reading it. Threads of a warp may arrive one by one.
KRONOP_INLINE void leave_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
template <class T>
KRONOP_INLINE const T* of_block(const T* pointer, int rank) {
  const T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(pointer), "r"(rank));
  return there;
}

// The same value, opaque to the compiler: computations that depend on it are not hoisted out of a
// loop.
KRONOP_INLINE unsigned renewed(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}
KRONOP_INLINE long long renewed(long long x) {
  asm volatile("" : "+l"(x));
  return x;
}

// Stores words to global memory in one access: compilers split vectors with computed elements.
template <int N>
KRONOP_INLINE void store_words(void* to, const unsigned (&words)[N]) {
  static_assert(N == 1 || N == 2 || N == 4);
  if constexpr (N == 1) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
  } else if constexpr (N == 2) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
}

// Selects four bytes of two words by the four low hexadecimal digits of `which`: 0 to 3 are bytes
// of the first word, 4 to 7 of the second.
KRONOP_INLINE unsigned take_bytes(unsigned first, unsigned second, unsigned which) {
  unsigned word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(first), "r"(second), "r"(which));
  return word;
}

// The value of another thread of the warp.
template <class T>
KRONOP_INLINE T from_lane(T value, int lane) {
  return __shfl_sync(~0u, value, lane);
}

// Whether it is true for some thread of the warp.
KRONOP_INLINE bool some_of_warp(bool holds) { return __any_sync(~0u, holds); }

// Prefetches a cache line of global memory to the level-2 cache, or a longer piece of it.
KRONOP_INLINE void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
#if defined(KRONOP_HAS_CLUSTERS)
inline constexpr bool kPrefetchesPieces = true;
KRONOP_INLINE void prefetch_piece(const void* from, int bytes) {
  const unsigned long long first = (unsigned long long)from & ~15ull,
                           end = ((unsigned long long)from + bytes + 15) & ~15ull;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
               :
               : "l"(first), "r"(unsigned(end - first)));
}
#else
inline constexpr bool kPrefetchesPieces = false;
KRONOP_INLINE void prefetch_piece(const void*, int) {}
#endif

KRONOP_INLINE unsigned char* shared_memory() {
  extern __shared__ __align__(1024) unsigned char kronop_shared[];
  return kronop_shared;
}

// Copies Bytes (4, 8 or 16) bytes from global to shared memory; they are visible after the wait and
// a barrier.
#if defined(KRONOP_HAS_ASYNCHRONOUS_COPIES)
template <int Bytes>
KRONOP_INLINE void copy_asynchronously(void* to, const void* from) {
  const unsigned shared = unsigned(__cvta_generic_to_shared(to));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(Bytes));
  }
}
// As copy_asynchronously for the first `bytes` bytes, with zeros for the rest. `from` is not read
// if `bytes` is 0.
template <int Bytes>
KRONOP_INLINE void copy_or_clear(void* to, const void* from, int bytes) {
  const unsigned shared = unsigned(__cvta_generic_to_shared(to));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared), "l"(from), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(shared), "l"(from), "n"(Bytes), "r"(bytes));
  }
}
// commit_copies() commits this thread's copies so far; wait_for_older_copies() waits until all but
// the last N commits are complete.
KRONOP_INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
KRONOP_INLINE void wait_for_older_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
KRONOP_INLINE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
// Synchronous, through registers: complete when the function returns.
template <int Bytes>
KRONOP_INLINE void copy_asynchronously(void* to, const void* from) {
  store(static_cast<unsigned*>(to), load<unsigned, Bytes / 4>(static_cast<const unsigned*>(from)));
}
template <int Bytes>
KRONOP_INLINE void copy_or_clear(void* to, const void* from, int bytes) {
  if (bytes >= Bytes) {
    copy_asynchronously<Bytes>(to, from);
    return;
  }
  Vector<unsigned char, Bytes> part{};
#pragma unroll
  for (int i = 0; i < Bytes; ++i) {
    if (i < bytes) part.data[i] = static_cast<const unsigned char*>(from)[i];
  }
  store(static_cast<unsigned char*>(to), part);
}
KRONOP_INLINE void commit_copies() {}
template <int N>
KRONOP_INLINE void wait_for_older_copies() {}
KRONOP_INLINE void wait_for_copies() {}
#endif
// A barrier of a warp, and one of warp group `index`.
KRONOP_INLINE void wait_for_warp() { __syncwarp(); }
KRONOP_INLINE void wait_for_warp_group(int index) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + index) : "memory");
}
#endif

// Stores N elements, up to 16 bytes, to global memory in one access.
template <class T, int N>
KRONOP_INLINE void store_whole(T* to, const Vector<T, N>& value) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    unsigned words[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      words[i] = value.data[2 * i].bits | unsigned(value.data[2 * i + 1].bits) << 16;
    store_words(to, words);
  } else if constexpr (sizeof(T) == 4) {
    unsigned words[N];
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = __builtin_bit_cast(unsigned, value.data[i]);
    store_words(to, words);
  } else {
    store<T, N>(to, value);
  }
}

// The same to shared memory.
template <class T, int N>
KRONOP_INLINE void store_shared(T* to, const Vector<T, N>& value) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    Vector<unsigned, N / 2> words;
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      words.data[i] = value.data[2 * i].bits | unsigned(value.data[2 * i + 1].bits) << 16;
    store<unsigned, N / 2>(reinterpret_cast<unsigned*>(to), words);
  } else {
    store<T, N>(to, value);
  }
}

KRONOP_INLINE constexpr long long ceil_div(long long value, long long divisor) {
  return (value + divisor - 1) / divisor;
}

// Splits the last digit, which is below `extent`, off a mixed-radix index. A 64-bit division costs
// some 100 instructions, and most problems need none.
KRONOP_INLINE long long split(long long& index, long long extent) {
  if (extent == 1) return 0;
  if (index < extent) {
    const long long digit = index;
    index = 0;
    return digit;
  }
  if (((index | extent) >> 32) == 0) {
    const unsigned rest = unsigned(index) / unsigned(extent),
                   digit = unsigned(index) - rest * unsigned(extent);
    index = rest;
    return digit;
  }
  const long long rest = index / extent, digit = index - rest * extent;
  index = rest;
  return digit;
}

// Calls visit(d, digit) for each digit of a linear index over Axes extents, last axis fastest.
template <int Axes, class Visit>
KRONOP_INLINE void for_each_digit(long long index, const long long (&extents)[Axes], Visit visit) {
#pragma unroll
  for (int axis = Axes - 1; axis > 0; --axis) {
    // Most problems have extent 1 here, and need no division.
    if (extents[axis] != 1) visit(axis, split(index, extents[axis]));
  }
  visit(0, index);
}

// The offsets of a tile's rows, in elements of X, Y and Z.
struct RowOffsets {
  long long* x;
  long long* y;
  long long* z;
  KRONOP_INLINE RowOffsets(unsigned char* bytes, int rows)
      : x(reinterpret_cast<long long*>(bytes)), y(x + rows), z(y + rows) {}
};

// The epilogue of steps whose results stay in the workspace.
template <class Accumulator>
struct Identity {
  using Compute = Accumulator;
  template <class Scalar>
  KRONOP_INLINE explicit Identity(const Scalar*) {}
  KRONOP_INLINE Compute operator()(Compute accumulator, Compute, Compute) const {
    return accumulator;
  }
};

// Converts an accumulator to an element of Y by the step's epilogue.
template <class Step>
struct Finish {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  using Functor = typename Step::Epilogue;
  using Compute = typename Functor::Compute;
  Functor functor;

  template <class Parameters>
  KRONOP_INLINE explicit Finish(const Parameters& parameters) : functor(parameters.scalars) {}

  KRONOP_INLINE Output operator()(Accumulator value, Output source, Output bias) const {
    return convert<Output>(
        functor(convert<Compute>(value), convert<Compute>(source), convert<Compute>(bias)));
  }
  KRONOP_INLINE Output operator()(Accumulator value, Output source) const {
    return convert<Output>(functor(convert<Compute>(value), convert<Compute>(source), no_bias()));
  }
  KRONOP_INLINE Output operator()(Accumulator value) const {
    return convert<Output>(functor(convert<Compute>(value), Compute{}, no_bias()));
  }

  // The bias where there is none. For floats it is -0.0, the neutral element: the compiler removes
  // the addition.
  KRONOP_INLINE static Compute no_bias() {
    if constexpr (detail::same<Compute, float> || detail::same<Compute, double>) {
      return Compute(-0.0);
    } else {
      return Compute{};
    }
  }
};

}  // namespace kronop
