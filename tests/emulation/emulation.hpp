// Runs a CUDA kernel of this project on the CPU. This header is included before those of the kernel
// and defines KRONOP_EMULATION, under which they leave out what needs a device; the replacements
// are here.
//
// Threads are fibres (fibres.hpp), which meet at barriers (barriers.hpp) and in the products of
// warps and of warp groups (tensor_cores.hpp). Shared memory and the stacks are poisoned, so that a
// value that nobody wrote shows up as NaN.
//
// Kernels are compiled without optimisation, since there are many and each runs once. These headers
// serve all of them and take most of their time, so they ask for -O2.
#pragma once

#include "barriers.hpp"
#include "fibres.hpp"
#include "tensor_cores.hpp"

#pragma GCC push_options
#pragma GCC optimize("O2")

namespace kronop {
using emulation::Barrier;
using emulation::WarpGroupMatrix;
using emulation::warp_group_product;
using emulation::wait_for_team;
inline void publish_barriers() {}
inline void let_next_launch_begin() { emulation::said |= 1; }
inline void wait_for_launch_before() { emulation::said |= 2; }
template <int kCount>
inline void give_registers_back() {}
template <int kCount>
inline void take_registers() {}
template <int N>
inline void wait_for_warp_group_products() {}
using emulation::warp_group_multiply_add;
using emulation::Matrix;
using emulation::from_lane;
using emulation::some_of_warp;
using emulation::take_bytes;

#if defined(KRONOP_HAS_WIDE_PRODUCTS)
using emulation::warp_multiply_add;
#endif
using emulation::half_multiply_add;
using emulation::warp_multiply_add_halves;
using emulation::warp_multiply_add_quarters;
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
inline void begin_warp_group_products() {}
inline void commit_warp_group_products() {}
inline void wait_for_warp_group_products() {}
inline void publish_to_warp_group_products() {}
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
  if (reinterpret_cast<std::size_t>(to) % Bytes != 0 ||
      (bytes > 0 && reinterpret_cast<std::size_t>(from) % Bytes != 0))
    std::abort();
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
inline void wait_for_warp_group(int) { emulation::wait(emulation::Waiting::warp_group); }
inline void wait_for_copies() {}
inline constexpr bool kPrefetchesPieces = true;
inline void prefetch_line(const void*) {}
inline void prefetch_piece(const void*, int) {}
inline int cluster_rank() { return int(emulation::current / emulation::threads_of_block); }
inline void cluster_barrier() { emulation::wait(emulation::Waiting::cluster); }
inline void leave_cluster() { cluster_barrier(); }
inline unsigned char* shared_memory() { return emulation::shared_of(cluster_rank()); }
template <class T>
inline const T* of_block(const T* pointer, int rank) {
  const auto offset = reinterpret_cast<const unsigned char*>(pointer) - shared_memory();
  return reinterpret_cast<const T*>(emulation::shared_of(rank) + offset);
}
}  // namespace kronop
#pragma GCC pop_options

#include "tensor_maps.hpp"
