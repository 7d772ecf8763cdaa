// Boxes of tensors, as tensor_map.cuh moves them. A map's bytes are not those that a driver
// encodes, but a struct that emulator.py writes. Stores read shared memory as late as they may:
// when their thread waits for that.
#pragma once

#include "barriers.hpp"

#pragma GCC push_options
#pragma GCC optimize("O2")

namespace emulation {

// The box of a copy, or where `pixels` is not 0 the corners of a box of pixels, whose channels are
// the first extent of `box`.
struct Map {
  unsigned char* address;
  long long strides[5];  // in bytes; the first one is that of an element
  unsigned extents[5];
  short box[5], steps[5], lower[3], upper[3], pixels, axes, rounds;
  int element() const { return int(strides[0]); }
  int line_bytes() const { return box[0] * element(); }
  int lines() const {
    int count = pixels ? pixels : 1;
    for (int axis = 1; axis < axes && !pixels; ++axis)
      count *= (box[axis] + steps[axis] - 1) / steps[axis];
    return count;
  }
};

// Places along five axes, of which the tensor may have fewer, and how far from there copies read.
struct MapPlace {
  long long at[5] = {}, offset[5] = {};
};
template <class At>
MapPlace place_of(const At& at) {
  MapPlace place;
  for (int axis = 0; axis < 5; ++axis) place.at[axis] = at[axis];
  return place;
}

// Goes to the next line: along the second axis, at the end of the box along the third one, and so
// on. There is no end to the images of pixels.
inline void advance(const Map& map, const MapPlace& first, MapPlace& place) {
  for (int axis = 1; axis < map.axes; ++axis) {
    long long begin = first.at[axis], end = begin + map.box[axis];
    if (map.pixels) {
      begin = map.lower[axis - 1];
      end = axis + 1 < map.axes ? map.extents[axis] + map.upper[axis - 1] : 1ll << 40;
    }
    place.at[axis] += map.steps[axis];
    if (place.at[axis] < end) return;
    place.at[axis] = begin;
  }
}

// Kernels begin at pixels of the box, in steps of the map.
inline void check_pixel(const Map& map, const MapPlace& place) {
  for (int axis = 1; axis + 1 < map.axes && map.pixels; ++axis) {
    const long long at = place.at[axis] - map.lower[axis - 1];
    const long long last = map.extents[axis] - 1ll + map.upper[axis - 1] - map.lower[axis - 1];
    if (at < 0 || at > last || at % map.steps[axis] != 0 || place.offset[axis] < 0) std::abort();
  }
}

// Calls visit(place in shared memory, element of the tensor or null beyond it). The tensor's rows
// end after whole granules.
template <class Visit>
EMULATION_INLINE void for_each_of_box(const Map& map, unsigned char* shared, const MapPlace& first,
                                      int granule, Visit visit) {
  const int line_bytes = map.line_bytes(), element = map.element(), lines = map.lines();
  const bool swizzled = line_bytes == 128;
  if (reinterpret_cast<std::size_t>(shared) % (swizzled ? 1024 : 128) != 0) std::abort();
  // NOTE: a GPU stops with an illegal instruction (H200).
  if (first.at[0] * element % 16 != 0) std::abort();
  check_pixel(map, first);
  const long long row_bytes = (map.extents[0] * map.strides[0] + granule - 1) / granule * granule;
  MapPlace place = first;
  for (int line = 0; line < lines; ++line, advance(map, first, place)) {
    long long from = 0;
    bool exists = true;
    for (int axis = 1; axis < map.axes; ++axis) {
      const long long at = place.at[axis] + place.offset[axis];
      exists = exists && at >= 0 && at < map.extents[axis];
      from += at * map.strides[axis];
    }
    for (int byte = 0; byte < line_bytes; byte += element) {
      const long long along = place.at[0] * element + byte;
      const int to = swizzled ? (byte / 16 ^ line % 8) * 16 + byte % 16 : byte;
      visit(shared + line * line_bytes + to,
            exists && along >= 0 && along < row_bytes ? map.address + from + along : nullptr);
    }
  }
}

inline void load_box(const Map& map, unsigned char* to, const MapPlace& place) {
  for_each_of_box(map, to, place, map.element(),
                  [&](unsigned char* place, const unsigned char* from) EMULATION_INLINED {
                    std::memset(place, 0, map.element());
                    if (from) std::memcpy(place, from, map.element());
                    if (map.rounds)
                      *reinterpret_cast<float*>(place) =
                          rounded_as_copied(*reinterpret_cast<float*>(place));
                  });
}

struct Store {
  unsigned thread, group;  // The group's place among those of the thread.
  Map map;
  unsigned char* from;
  MapPlace place;
};
inline Store stores[1024];                                 // that have not read shared memory
inline unsigned count_of_stores, committed[most_threads];  // groups of each thread

// NOTE: GPUs write whole granules of 16 bytes, also where a row of the tensor ends within one.
inline void store_box(const Store& store) {
  for_each_of_box(store.map, store.from, store.place, 16,
                  [&](const unsigned char* place, unsigned char* to) EMULATION_INLINED {
                    if (to) std::memcpy(to, place, store.map.element());
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

// Copies to the blocks of the cluster whose bits are set in `blocks`.
inline void load_to(unsigned blocks, void* to, const Map& map, Barrier& filled,
                    const MapPlace& place) {
  for (unsigned block = 0; block < 32; ++block) {
    if (!(blocks >> block & 1)) continue;
    load_box(map, in_block(static_cast<unsigned char*>(to), block), place);
    in_block(&filled, block)->complete(map.lines() * map.line_bytes());
  }
}
template <class TensorMap>
const Map& map_of(const TensorMap& map) {
  return reinterpret_cast<const Map&>(map);
}
inline unsigned own_block() { return 1u << current / threads_of_block; }

}  // namespace emulation

namespace kronop {
// A GPU refuses what is no map.
template <class TensorMap>
inline void prefetch_map(const TensorMap& map) {
  if (emulation::map_of(map).axes == 0) __builtin_trap();
}
template <class TensorMap, class At>
inline void load_box_of_cluster(void* to, const TensorMap& map, Barrier& filled, const At& at,
                                unsigned blocks) {
  if (emulation::map_of(map).pixels) std::abort();
  emulation::load_to(blocks, to, emulation::map_of(map), filled, emulation::place_of(at));
}
template <class TensorMap, class At>
inline void load_box(void* to, const TensorMap& map, Barrier& filled, const At& at) {
  load_box_of_cluster(to, map, filled, at, emulation::own_block());
}
template <class TensorMap, class At, class Offset>
inline void load_pixels(void* to, const TensorMap& map, Barrier& filled, const At& at,
                        const Offset& offset) {
  if (!emulation::map_of(map).pixels) std::abort();
  emulation::MapPlace place = emulation::place_of(at);
  for (int axis = 0; axis < 3; ++axis) place.offset[axis + 1] = offset[axis];
  emulation::load_to(emulation::own_block(), to, emulation::map_of(map), filled, place);
}
template <class TensorMap, class At>
inline void store_box(const void* from, const TensorMap& map, const At& at) {
  auto* shared = static_cast<unsigned char*>(const_cast<void*>(from));
  if (emulation::count_of_stores == sizeof(emulation::stores) / sizeof(emulation::Store))
    std::abort();
  emulation::stores[emulation::count_of_stores++] = {
      emulation::current, emulation::committed[emulation::current], emulation::map_of(map), shared,
      emulation::place_of(at)};
}
template <class TensorMap, class At>
inline void store_pixels(const void* from, const TensorMap& map, const At& at) {
  if (!emulation::map_of(map).pixels) std::abort();
  store_box(from, map, at);
}
inline void commit_stores() { ++emulation::committed[emulation::current]; }
// The last kMost groups of the thread stay pending, as do stores that are in none.
template <int kMost>
inline void wait_for_reads_of_stores() {
  unsigned kept = 0;
  for (unsigned i = 0; i < emulation::count_of_stores; ++i) {
    const emulation::Store store = emulation::stores[i];
    if (store.thread == emulation::current &&
        store.group + kMost < emulation::committed[emulation::current]) {
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
