// Products of int8 on vectors: an instruction multiplies pairs of neighbours along k, which are
// packed as two 16-bit numbers in one 32-bit lane.
#pragma once

#include "gemm_vectors.hpp"

namespace kronop::gemm {

// Adds the products of both numbers of each lane. They and their sums fit in 32 bits.
// NOTE: GCC and Clang have different builtins for 64 bytes; GCC has the masked one only.
template <int kWidth>
KRONOP_INLINE Vector<int32_t, kWidth> multiply_pairs(Vector<int32_t, kWidth> a,
                                                     Vector<int32_t, kWidth> b) {
  [[maybe_unused]] constexpr int kBytes = kWidth * int(sizeof(int32_t));
  using V = Vector<int32_t, kWidth>;
  using Halves = Vector<short, 2 * kWidth>;
#if defined(__AVX512BW__)
  if constexpr (kBytes == 64) {
#if defined(__clang__)
    return bit_cast<V>(__builtin_ia32_pmaddwd512(bit_cast<Halves>(a), bit_cast<Halves>(b)));
#else
    return bit_cast<V>(__builtin_ia32_pmaddwd512_mask(bit_cast<Halves>(a), bit_cast<Halves>(b), V{},
                                                      uint16_t(~0)));
#endif
  }
#endif
#if defined(__AVX2__)
  if constexpr (kBytes == 32)
    return bit_cast<V>(__builtin_ia32_pmaddwd256(bit_cast<Halves>(a), bit_cast<Halves>(b)));
#endif
#if defined(__SSE2__)
  if constexpr (kBytes == 16)
    return bit_cast<V>(__builtin_ia32_pmaddwd128(bit_cast<Halves>(a), bit_cast<Halves>(b)));
#endif
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
}

template <class Decided>
struct PairStep : VectorStep<Decided> {
  using Packed = short;
  using Sum = int32_t;
  using Lanes = VectorStep<Decided>;
  using Lanes::kPanel;
  static constexpr index_t kUnit = 2;

  template <class Input>
  static void pack_rows(Packed* to, const Input* from, index_t row, index_t column, index_t count,
                        index_t depth) {
    pack<Decided::kRows>(to, depth, [&](Sum* held, index_t k, index_t some) {
      Lanes::pack_rows(held, from + k * column, row, column, count, some);
    });
  }
  template <class Input>
  static void pack_columns(Packed* to, const Input* from, index_t row, index_t column,
                           index_t count, index_t depth) {
    pack<kPanel>(to, depth, [&](Sum* held, index_t k, index_t some) {
      Lanes::pack_columns(held, from + k * column, row, column, count, some);
    });
  }

  template <int kHeight>
  __attribute__((noinline)) static void multiply(const Packed* rows, const Packed* columns,
                                                 index_t depth, Sum* to, bool joins) {
    constexpr int kWidth = Decided::kWidth;
    using V = Vector<Sum, kWidth>;
    V sums[kHeight][Decided::kVectors];
    KRONOP_UNROLL
    for (int r = 0; r < kHeight; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < Decided::kVectors; ++v) {
        sums[r][v] = joins ? load<Sum, kWidth>(to + r * kPanel + v * kWidth) : V{};
      }
    }
    for (index_t k = 0; k < depth; k += 2, rows += 2 * Decided::kRows, columns += 2 * kPanel) {
      V b[Decided::kVectors];
      KRONOP_UNROLL
      for (int v = 0; v < Decided::kVectors; ++v)
        b[v] = bit_cast<V>(load<Packed, 2 * kWidth>(columns + 2 * v * kWidth));
      KRONOP_UNROLL
      for (int r = 0; r < kHeight; ++r) {
        const V a = V{} + bit_cast<Sum>(load<Packed, 2>(rows + 2 * r));
        KRONOP_UNROLL
        for (int v = 0; v < Decided::kVectors; ++v) sums[r][v] += multiply_pairs<kWidth>(b[v], a);
      }
    }
    KRONOP_UNROLL
    for (int r = 0; r < kHeight; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < Decided::kVectors; ++v) store(to + r * kPanel + v * kWidth, sums[r][v]);
    }
  }

 private:
  // Packs parts of k as 32-bit numbers, and converts them to pairs. The last of an odd number is
  // paired with 0.
  template <int kLanes, class PackSome>
  KRONOP_INLINE static void pack(Packed* to, index_t depth, const PackSome& pack_some) {
    constexpr index_t kSome = 32;
    alignas(64) Sum held[kSome * kLanes];
    for (index_t k = 0; k < depth; k += kSome) {
      const index_t some = lesser(depth - k, kSome);
      pack_some(held, k, some);
      if (some % 2) __builtin_memset(held + some * kLanes, 0, kLanes * sizeof(Sum));
      for (index_t pair = 0; pair < some; pair += 2, to += 2 * kLanes) {
        const Sum* low = held + pair * kLanes;
        Sum pairs[kLanes];
        KRONOP_INDEPENDENT
        for (int i = 0; i < kLanes; ++i) pairs[i] = (low[i] & 0xffff) | low[kLanes + i] << 16;
        __builtin_memcpy(to, pairs, sizeof(pairs));
      }
    }
  }
};

}  // namespace kronop::gemm

namespace kronop {

template <class Decided, class Parameters>
int gemm_pairs(const Parameters& parameters, bool alone) {
  return gemm::run<gemm::PairStep<Decided>>(parameters, alone);
}

}  // namespace kronop
