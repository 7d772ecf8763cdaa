// The order in which main loops of interleaved products read the columns of B.
#pragma once

#include "numeric.cuh"

namespace kronop {
namespace cutlass_kernels {

// Reads B for a main loop whose epilogue stores eight neighbouring results of a thread at once.
//
// An MMA leaves each of the four threads of a quad two sums of eight columns: columns 2t and 2t + 1
// of those that thread t was given. For sums of four MMAs to be eight neighbours, the columns of a
// panel are multiplied in another order: position 8i + 2t + p, which is pair p of MMA i, has column
// 8t + 2i + p. CUTLASS's own kernels expect operands in this order; here accesses exchange i and t
// while they copy to shared memory.
//
// In memory a column has 32 bytes, and a panel of columns is aligned to 1024 bytes.
template <class Iterator>
struct InOrderOfSums : Iterator {
  using Element = typename Iterator::Element;

  // Of matrix products: parameters, B, and what else the iterator takes.
  template <class... Rest>
  KRONOP_INLINE InOrderOfSums(const typename Iterator::Params& params, Element* start,
                              const Rest&... rest)
      : Iterator(params, start, rest...), start_(low_bits(start)) {}
  // Of convolutions: with the size of the problem before B.
  template <class Size, class... Rest>
  KRONOP_INLINE InOrderOfSums(const typename Iterator::Params& params, const Size& size,
                              Element* start, const Rest&... rest)
      : Iterator(params, size, start, rest...), start_(low_bits(start)) {}

  KRONOP_INLINE auto get() const {
    auto* const place = Iterator::get();
    const unsigned column = (low_bits(place) - start_) / 32;
    const int thread = column / 2 % 4, instruction = column / 8 % 4;
    using Access = decltype(place);
    return reinterpret_cast<Access>(reinterpret_cast<unsigned long long>(place) +
                                    32 * 6 * (thread - instruction));
  }

 private:
  KRONOP_INLINE static unsigned low_bits(const void* pointer) {
    return unsigned(reinterpret_cast<unsigned long long>(pointer));
  }

  unsigned start_;
};

}  // namespace cutlass_kernels
}  // namespace kronop
