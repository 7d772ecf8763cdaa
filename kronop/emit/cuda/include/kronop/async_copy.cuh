// Copies from global to shared memory that are under way while a block computes, in groups.
#pragma once

#include "memory.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// `Bytes` (4, 8 or 16) of shared memory: `there` of them from memory, zeros for the others.
// NOTE: no "memory" clobber: what lies in shared memory is read again after each copy otherwise.
template <int Bytes>
KRONOP_INLINE void copy_or_zero(void* to, const void* from, int there) {
  const unsigned shared = unsigned(__cvta_generic_to_shared(to));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(there));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(Bytes), "r"(there));
  }
}
// All copies since the last call are a group; a thread waits until all but its last `kGroups` are done.
KRONOP_INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroups>
KRONOP_INLINE void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
#endif

// One element, of any type; those of two bytes go through a register.
template <class Element>
KRONOP_INLINE void copy_element(Element* to, const Element* from, bool there) {
  if constexpr (sizeof(Element) >= 4) {
    copy_or_zero<sizeof(Element)>(to, from, there ? int(sizeof(Element)) : 0);
  } else {
    Element value{};
    if (there) value = *from;
    *to = value;
  }
}

}  // namespace kronop
