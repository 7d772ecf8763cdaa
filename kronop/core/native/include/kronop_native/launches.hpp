// Recorded launches: packed parameters, into copies of which addresses are written.
#pragma once

#include <stdint.h>
#include <string.h>

namespace kronop_native {

// A parameter word that holds an address: that of a slot, and bytes to add to it.
struct Patch {
  int64_t word, slot, displacement;
};

struct Launch {
  void* kernel;  // A function of the host, or a CUkernel.
  const void* parameters;
  int64_t nbytes;
  const Patch* patches;
  int64_t patch_count;
  const Patch* maps;  // Tensor maps: their first words, and the addresses of their tensors.
  int64_t map_count;
  uint32_t grid[3], block[3], shared_bytes, overlaps;
};

// Runs one launch with parameters of its own, aligned for blocks within them, so that any number of
// threads may run a program at once. `address_of` gives that of a slot, and `run.place` moves a
// tensor map to an address. Not inlined: the memory is freed when it returns.
template <class AddressOf, class Run>
__attribute__((noinline)) int launched(const Launch& launch, const AddressOf& address_of,
                                       const Run& run) {
  constexpr uint64_t kAlignment = 128;
  const uint64_t memory = reinterpret_cast<uint64_t>(__builtin_alloca(launch.nbytes + kAlignment));
  char* parameters = reinterpret_cast<char*>((memory + kAlignment - 1) / kAlignment * kAlignment);
  memcpy(parameters, launch.parameters, launch.nbytes);
  for (int64_t at = 0; at < launch.patch_count; ++at) {
    const Patch& patch = launch.patches[at];
    const uint64_t address = address_of(patch.slot) + uint64_t(patch.displacement);
    memcpy(parameters + 8 * patch.word, &address, 8);
  }
  for (int64_t at = 0; at < launch.map_count; ++at) {
    const Patch& map = launch.maps[at];
    const uint64_t address = address_of(map.slot) + uint64_t(map.displacement);
    if (const int status = run.place(parameters + 8 * map.word, address)) return status;
  }
  return run(launch, parameters);
}

}  // namespace kronop_native
