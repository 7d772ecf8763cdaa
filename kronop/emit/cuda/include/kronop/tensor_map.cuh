// Copies of boxes of tensors between memory and shared memory, by the tensor memory accelerator.
//
// A tensor map describes a tensor of one to five axes, the first one contiguous, and what a copy
// moves: a box, or pixels of a tensor (C, W, H, D, N) for a convolution (im2col). Out of bounds
// elements are read as 0 and not written, except for the rest of 16 bytes that begin inside:
// tensors that are written need rows of whole 16 bytes. A copy in shared memory is a sequence of
// lines along the first axis. Lines of 128 bytes are swizzled as in warp_group_products.cuh and
// aligned to 1024 bytes; other lines are not swizzled, and aligned to 128.
#pragma once

#include "barrier.cuh"

namespace kronop {

// The driver's encoding: cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Where a box or a column of pixels begins, in elements along each axis of the tensor: along the
// first one after whole 16 bytes, which may be negative.
template <int kAxes>
struct BoxPlace {
  int at[kAxes];
  KRONOP_INLINE constexpr int operator[](int axis) const { return axis < kAxes ? at[axis] : 0; }
};
template <class... Places>
BoxPlace(Places...) -> BoxPlace<int(sizeof...(Places))>;

#if !defined(KRONOP_EMULATION)
KRONOP_INLINE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
KRONOP_INLINE unsigned in_shared(const void* pointer) {
  return unsigned(__cvta_generic_to_shared(pointer));
}

// The instruction of PTX for the number of axes: `form` takes this number, the coordinates, and the
// offsets of im2col. Every form has the five operands of KRONOP_PLACE first, then three more.
#define KRONOP_OF_AXES(form)                                     \
  if constexpr (kAxes == 1) form(1, "%0", );                     \
  if constexpr (kAxes == 2) form(2, "%0, %1", );                 \
  if constexpr (kAxes == 3) form(3, "%0, %1, %2", "%8");         \
  if constexpr (kAxes == 4) form(4, "%0, %1, %2, %3", "%8, %9"); \
  if constexpr (kAxes == 5) form(5, "%0, %1, %2, %3, %4", "%8, %9, %10")
#define KRONOP_PLACE "r"(place[0]), "r"(place[1]), "r"(place[2]), "r"(place[3]), "r"(place[4])

// Starts a copy of a box to this block's shared memory. The barrier opens when its bytes
// have arrived.
template <int kAxes>
KRONOP_INLINE void load_box(void* to, const TensorMap& map, Barrier& filled,
                            const BoxPlace<kAxes>& place) {
#define KRONOP_LOAD(axes, coordinates, offsets)                         \
  asm volatile("cp.async.bulk.tensor." #axes                            \
               "d.shared::cluster.global.mbarrier::complete_tx::bytes " \
               "[%5], [%6, {" coordinates "}], [%7];" ::KRONOP_PLACE,   \
               "r"(in_shared(to)), "l"(&map), "r"(in_shared(&filled))   \
               : "memory")
  KRONOP_OF_AXES(KRONOP_LOAD);
#undef KRONOP_LOAD
}
// The same as a multicast to the blocks of the cluster whose bits are set in `blocks`: to the same
// offset in each, with each block's own barrier.
template <int kAxes>
KRONOP_INLINE void load_box_of_cluster(void* to, const TensorMap& map, Barrier& filled,
                                       const BoxPlace<kAxes>& place, unsigned blocks) {
#define KRONOP_LOAD(axes, coordinates, offsets)                                                    \
  asm volatile("cp.async.bulk.tensor." #axes                                                       \
               "d.shared::cluster.global.mbarrier::complete_tx::bytes"                             \
               ".multicast::cluster [%5], [%6, {" coordinates "}], [%7], %8;" ::KRONOP_PLACE,      \
               "r"(in_shared(to)), "l"(&map), "r"(in_shared(&filled)), "h"((unsigned short)blocks) \
               : "memory")
  KRONOP_OF_AXES(KRONOP_LOAD);
#undef KRONOP_LOAD
}
// As load_box, for a map of pixels: `place` is that of a pixel, and `offset`, along W, H and D,
// that of an element of the filter, which is not negative.
template <int kAxes>
KRONOP_INLINE void load_pixels(void* to, const TensorMap& map, Barrier& filled,
                               const BoxPlace<kAxes>& place, const BoxPlace<kAxes - 2>& offset) {
#define KRONOP_LOAD(axes, coordinates, offsets)                                      \
  asm volatile("cp.async.bulk.tensor." #axes                                         \
               "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "       \
               "[%5], [%6, {" coordinates "}], [%7], {" offsets "};" ::KRONOP_PLACE, \
               "r"(in_shared(to)), "l"(&map), "r"(in_shared(&filled)),               \
               "h"((unsigned short)offset[0]), "h"((unsigned short)offset[1]),       \
               "h"((unsigned short)offset[2])                                        \
               : "memory")
  KRONOP_OF_AXES(KRONOP_LOAD);
#undef KRONOP_LOAD
}
// Starts a copy of a box from shared memory, after a proxy fence of this thread.
template <int kAxes>
KRONOP_INLINE void store_box(const void* from, const TensorMap& map, const BoxPlace<kAxes>& place) {
#define KRONOP_STORE(axes, coordinates, offsets)                                                  \
  asm volatile("cp.async.bulk.tensor." #axes "d.global.shared::cta.bulk_group [%5, {" coordinates \
               "}], [%6];" ::KRONOP_PLACE,                                                        \
               "l"(&map), "r"(in_shared(from))                                                    \
               : "memory")
  KRONOP_OF_AXES(KRONOP_STORE);
#undef KRONOP_STORE
}
// The same, of pixels.
template <int kAxes>
KRONOP_INLINE void store_pixels(const void* from, const TensorMap& map,
                                const BoxPlace<kAxes>& place) {
#define KRONOP_STORE(axes, coordinates, offsets)                                   \
  asm volatile("cp.async.bulk.tensor." #axes                                       \
               "d.global.shared::cta.im2col_no_offs.bulk_group [%5, {" coordinates \
               "}], [%6];" ::KRONOP_PLACE,                                         \
               "l"(&map), "r"(in_shared(from))                                     \
               : "memory")
  KRONOP_OF_AXES(KRONOP_STORE);
#undef KRONOP_STORE
}
#undef KRONOP_PLACE
#undef KRONOP_OF_AXES
KRONOP_INLINE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the stores of this thread have read shared memory.
template <int kMost>
KRONOP_INLINE void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kMost) : "memory");
}

// Adds so many bytes to what the barrier waits for; counts as one arrival.
KRONOP_INLINE void expect_bytes(Barrier& filled, int bytes) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}"
               :
               : "r"(in_shared(&filled)), "r"(bytes)
               : "memory");
}
// Arrives at the same barrier of another block of the cluster.
KRONOP_INLINE void arrive_at(Barrier& barrier, int block) {
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}"
      :
      : "r"(in_shared(&barrier)), "r"(block)
      : "memory");
}
#endif

}  // namespace kronop
