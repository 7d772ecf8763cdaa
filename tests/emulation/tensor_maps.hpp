// Boxes of tensors, as tensor_map.cuh moves them. A map's bytes are not those that a driver
// encodes, but a struct that emulator.py writes. Stores read shared memory as late as they may:
// when their thread waits for that.
#pragma once

#include "barriers.hpp"

#pragma GCC push_options
#pragma GCC optimize("O2")

namespace emulation {

struct Map {
  unsigned char* address;
  long long extents[3], strides[2];
  int box[2], element, rounds;
};

// Calls visit(place in shared memory, element of the tensor or null beyond it). The tensor's rows
// end after whole granules.
template <class Visit>
EMULATION_INLINE void for_each_of_box(const Map& map, unsigned char* shared, const int (&at)[3],
                                      int granule, Visit visit) {
  if (reinterpret_cast<std::size_t>(shared) % 1024 != 0 || at[0] < 0 || at[1] < 0 || at[2] < 0)
    std::abort();
  const long long row_bytes = (map.extents[0] * map.element + granule - 1) / granule * granule;
  for (int row = 0; row < map.box[1]; ++row) {
    for (int i = 0; i < map.box[0]; ++i) {
      const int byte = i * map.element;
      const long long along = at[0] + i, across = at[1] + row;
      const bool exists =
          along * map.element < row_bytes && across < map.extents[1] && at[2] < map.extents[2];
      unsigned char* from =
          map.address + along * map.element + across * map.strides[0] + at[2] * map.strides[1];
      visit(shared + row * 128 + ((byte / 16 ^ row % 8) * 16 + byte % 16), exists ? from : nullptr);
    }
  }
}

inline void load_box(const Map& map, unsigned char* to, const int (&at)[3]) {
  for_each_of_box(map, to, at, map.element,
                  [&](unsigned char* place, const unsigned char* from) EMULATION_INLINED {
                    std::memset(place, 0, map.element);
                    if (from) std::memcpy(place, from, map.element);
                    if (map.rounds)
                      *reinterpret_cast<float*>(place) =
                          rounded_as_copied(*reinterpret_cast<float*>(place));
                  });
}

struct Store {
  unsigned thread;
  Map map;
  unsigned char* from;
  int at[3];
};
inline Store stores[1024];  // that have not read shared memory
inline unsigned count_of_stores;

// NOTE: GPUs write whole granules of 16 bytes, also where a row of the tensor ends within one.
inline void store_box(const Store& store) {
  for_each_of_box(store.map, store.from, store.at, 16,
                  [&](const unsigned char* place, unsigned char* to) EMULATION_INLINED {
                    if (to) std::memcpy(to, place, store.map.element);
                  });
}

// Moves `pointer`, which is into the shared memory of this block, to that of another one, which has
// not ended.
template <class T>
inline T* in_block(T* pointer, unsigned block) {
  unsigned thread = block * threads_of_block;
  while (fibres[thread].done) {
    if (++thread == (block + 1) * threads_of_block) std::abort();
  }
  const auto offset =
      reinterpret_cast<unsigned char*>(pointer) - shared_of(current / threads_of_block);
  return reinterpret_cast<T*>(shared_of(block) + offset);
}

}  // namespace emulation

namespace kronop {
// A GPU refuses what is no map.
template <class TensorMap>
inline void prefetch_map(const TensorMap& map) {
  if (reinterpret_cast<const emulation::Map&>(map).element == 0) __builtin_trap();
}
template <class TensorMap, class Place>
inline void load_box_of_cluster(void* to, const TensorMap& map, Barrier& filled, const Place& place,
                                unsigned blocks) {
  const auto& own = reinterpret_cast<const emulation::Map&>(map);
  for (unsigned block = 0; block < 32; ++block) {
    if (!(blocks >> block & 1)) continue;
    emulation::load_box(own, emulation::in_block(static_cast<unsigned char*>(to), block),
                        {place.along, place.across, place.batch});
    emulation::in_block(&filled, block)->complete(own.box[0] * own.box[1] * own.element);
  }
}
template <class TensorMap, class Place>
inline void load_box(void* to, const TensorMap& map, Barrier& filled, const Place& place) {
  load_box_of_cluster(to, map, filled, place,
                      1u << emulation::current / emulation::threads_of_block);
}
template <class TensorMap, class Place>
inline void store_box(const void* from, const TensorMap& map, const Place& place) {
  const auto& own = reinterpret_cast<const emulation::Map&>(map);
  auto* shared = static_cast<unsigned char*>(const_cast<void*>(from));
  if (emulation::count_of_stores == sizeof(emulation::stores) / sizeof(emulation::Store))
    std::abort();
  emulation::stores[emulation::count_of_stores++] = {
      emulation::current, own, shared, {place.along, place.across, place.batch}};
}
inline void commit_stores() {}
inline void wait_for_reads_of_stores() {
  unsigned kept = 0;
  for (unsigned i = 0; i < emulation::count_of_stores; ++i) {
    const emulation::Store store = emulation::stores[i];
    if (store.thread == emulation::current) {
      emulation::store_box(store);
    } else {
      emulation::stores[kept++] = store;
    }
  }
  emulation::count_of_stores = kept;
}
inline void expect_bytes(Barrier& filled, int bytes) { filled.expect(bytes); }
inline void arrive_at(Barrier& barrier, int block) {
  emulation::in_block(&barrier, block)->arrive();
}
}  // namespace kronop

#pragma GCC pop_options
