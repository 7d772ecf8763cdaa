// Units of tile products: kPack neighbouring numbers along the contraction, packed into 32 bits.
// Builds vectors of 16 units from numbers that are not adjacent in memory.
#pragma once

#include "kronop_x86/amx.hpp"

namespace kronop {
namespace packed {

// The element type of vectors of T: bf16 numbers are handled as their bits.
template <class T>
struct BitsOf {
  using Type = T;
};
template <>
struct BitsOf<bfloat16_t> {
  using Type = uint16_t;
};

template <class T>
struct Units {
  static constexpr int kPack = kPackOf<T>, kNumbers = kTile * kPack;
  using Bits = typename BitsOf<T>::Type;
  using Numbers = Vector<Bits, kNumbers>;
  using Type = Vector<SumOf<T>, kTile>;

  // Transposes numbers [k][l], kRun of each k, to units [k / kPack][l].
  template <int kRun>
  static KRONOP_INLINE Type of(const Numbers& numbers) {
    return bit_cast<Type>(shuffle<Neighbours<kRun>>(numbers, numbers, FirstIndices<kNumbers>{}));
  }

  // Transposes numbers [k][l], kRun of each k, to numbers [l][k].
  template <int kRun>
  static KRONOP_INLINE Numbers turned(const Numbers& numbers) {
    return shuffle<Turned<kRun>>(numbers, numbers, FirstIndices<kNumbers>{});
  }

  static KRONOP_INLINE Numbers load_numbers(const T* from) {
    return load<Bits, kNumbers>(reinterpret_cast<const Bits*>(from));
  }

  // kTile units, each with one number from each of kPack runs that are `step` numbers apart.
  static KRONOP_INLINE Type load_runs(const T* from, index_t step) {
    return of<kTile>(runs<kPack>(from, step));
  }

 private:
  template <int kRun>
  struct Neighbours {
    static constexpr int of(int i) {
      const int unit = i / kPack;
      return (unit / kRun * kPack + i % kPack) * kRun + unit % kRun;
    }
  };
  template <int kRun>
  struct Turned {
    static constexpr int of(int i) { return i % (kNumbers / kRun) * kRun + i / (kNumbers / kRun); }
  };

  template <int kCount>
  static KRONOP_INLINE Vector<Bits, kTile * kCount> runs(const T* from, index_t step) {
    if constexpr (kCount == 1) {
      return load<Bits, kTile>(reinterpret_cast<const Bits*>(from));
    } else {
      return joined<Vector<Bits, kTile * kCount>>(runs<kCount / 2>(from, step),
                                                  runs<kCount / 2>(from + kCount / 2 * step, step),
                                                  FirstIndices<kTile * kCount>{});
    }
  }
};

}  // namespace packed
}  // namespace kronop
