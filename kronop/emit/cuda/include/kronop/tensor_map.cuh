// Copies of boxes of tensors between memory and shared memory, by the tensor memory accelerator.
//
// A tensor map describes a tensor of three axes, the first one contiguous, and the box that a copy
// moves. Out of bounds elements are read as 0 and not written, except for the rest of 16 bytes that
// begin inside: tensors that are written need rows of whole 16 bytes. A box in shared memory has
// rows of 128 bytes, swizzled as in warp_group_products.cuh, and is aligned to 1024 bytes.
#pragma once

#include "barrier.cuh"

namespace kronop {

// The driver's encoding: cuTensorMapEncodeTiled.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Where a box begins, in elements.
struct BoxPlace {
  int along, across, batch;
};

#if !defined(KRONOP_EMULATION)
KRONOP_INLINE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Starts a copy of a box to this block's shared memory. The barrier's phase ends when its bytes
// have arrived.
KRONOP_INLINE void load_box(void* to, const TensorMap& map, Barrier& filled,
                            const BoxPlace& place) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(unsigned(__cvta_generic_to_shared(to))), "l"(&map),
        "r"(unsigned(__cvta_generic_to_shared(&filled))), "r"(place.along), "r"(place.across),
        "r"(place.batch)
      : "memory");
}
// The same as a multicast to the blocks of the cluster whose bits are set in `blocks`: to the same
// offset in each, with each block's own barrier.
KRONOP_INLINE void load_box_of_cluster(void* to, const TensorMap& map, Barrier& filled,
                                       const BoxPlace& place, unsigned blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
      :
      : "r"(unsigned(__cvta_generic_to_shared(to))), "l"(&map),
        "r"(unsigned(__cvta_generic_to_shared(&filled))), "r"(place.along), "r"(place.across),
        "r"(place.batch), "h"((unsigned short)blocks)
      : "memory");
}
// Starts a copy of a box from shared memory, after a proxy fence of this thread.
KRONOP_INLINE void store_box(const void* from, const TensorMap& map, const BoxPlace& place) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :
               : "l"(&map), "r"(unsigned(__cvta_generic_to_shared(from))), "r"(place.along),
                 "r"(place.across), "r"(place.batch)
               : "memory");
}
KRONOP_INLINE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the stores of this thread have read shared memory.
KRONOP_INLINE void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Adds so many bytes to what the barrier's phase waits for; counts as one arrival.
KRONOP_INLINE void expect_bytes(Barrier& filled, int bytes) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}"
               :
               : "r"(unsigned(__cvta_generic_to_shared(&filled))), "r"(bytes)
               : "memory");
}
// Arrives at the same barrier of another block of the cluster.
KRONOP_INLINE void arrive_at(Barrier& barrier, int block) {
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}"
      :
      : "r"(unsigned(__cvta_generic_to_shared(&barrier))), "r"(block)
      : "memory");
}
#endif

}  // namespace kronop
