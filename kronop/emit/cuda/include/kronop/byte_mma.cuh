// Products of the tensor cores with 8-bit integers: 16 lanes x 32 contracted by 32 contracted x 8
// produced.
//
// Four contracted indices share a register: the indices (t, r) of two parts of 8, as mma.cuh
// assigns them to a thread. So thread (t, g) holds
//   of a 16 x 32 operand, as register h + 2 i: lane g + 8 h, indices of parts 2 i and 2 i + 1
//   of a 32 x 8 operand, as register i: the same indices, produced index g
//   of the sums: what mma.cuh says.
// A product over up to 16 contracted indices has i = 0 only.
//
// An intermediate result between two factors has 32 bits, and is multiplied byte by byte: 256 times
// the sums of products of the highest bytes, plus the sums of products of the next bytes, and so
// on. Like the sums, the result is exact modulo 2^32.
#pragma once

#include "memory.cuh"

namespace kronop {

#if !defined(KRONOP_EMULATION)
// The bytes of the left operand are signed or unsigned. Sums wrap around.
#define KRONOP_BYTE_PRODUCT(shape, type, a_registers, b_registers, ...)                    \
  asm("mma.sync.aligned." shape ".row.col.s32." type ".s8.s32 {%0,%1,%2,%3}, " a_registers \
      ", " b_registers ", {%0,%1,%2,%3};"                                                  \
      : "+r"(sums[0].value), "+r"(sums[1].value), "+r"(sums[2].value), "+r"(sums[3].value) \
      : __VA_ARGS__)
#define KRONOP_DEEP_PRODUCT(type)                                                         \
  KRONOP_BYTE_PRODUCT("m16n8k32", type, "{%4,%5,%6,%7}", "{%8,%9}", "r"(a[0]), "r"(a[1]), \
                      "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define KRONOP_SHORT_PRODUCT(type) \
  KRONOP_BYTE_PRODUCT("m16n8k16", type, "{%4,%5}", "{%6}", "r"(a[0]), "r"(a[1]), "r"(b[0]))
KRONOP_INLINE void warp_multiply_add(int32_t (&sums)[4], const unsigned (&a)[4],
                                     const unsigned (&b)[2], bool is_signed) {
  if (is_signed) {
    KRONOP_DEEP_PRODUCT("s8");
  } else {
    KRONOP_DEEP_PRODUCT("u8");
  }
}
KRONOP_INLINE void warp_multiply_add(int32_t (&sums)[4], const unsigned (&a)[2],
                                     const unsigned (&b)[1], bool is_signed) {
  if (is_signed) {
    KRONOP_SHORT_PRODUCT("s8");
  } else {
    KRONOP_SHORT_PRODUCT("u8");
  }
}
#undef KRONOP_SHORT_PRODUCT
#undef KRONOP_DEEP_PRODUCT
#undef KRONOP_BYTE_PRODUCT
#endif

// Transposes four words of four bytes: planes[0] gets the lowest byte of each word, and so on.
KRONOP_INLINE void turn_bytes(unsigned (&planes)[4], const int32_t (&items)[4]) {
  const unsigned a = items[0].value, b = items[1].value, c = items[2].value, d = items[3].value;
  const unsigned low[2] = {take_bytes(a, b, 0x5140), take_bytes(c, d, 0x5140)};
  const unsigned high[2] = {take_bytes(a, b, 0x7362), take_bytes(c, d, 0x7362)};
  planes[0] = take_bytes(low[0], low[1], 0x5410);
  planes[1] = take_bytes(low[0], low[1], 0x7632);
  planes[2] = take_bytes(high[0], high[1], 0x5410);
  planes[3] = take_bytes(high[0], high[1], 0x7632);
}

// A thread's fragment of the right operand, a factor whose elements fit in a byte: kParts parts of
// 8 contracted indices.
template <int kParts>
struct alignas(2 * kParts) ByteFactor {
  unsigned words[kParts / 2];
  ByteFactor() = default;
  KRONOP_INLINE explicit ByteFactor(const int32_t (&items)[2 * kParts]) {
#pragma unroll
    for (int i = 0; i < kParts / 2; ++i) {
      unsigned planes[4];
      turn_bytes(planes, {items[4 * i], items[4 * i + 1], items[4 * i + 2], items[4 * i + 3]});
      words[i] = planes[0];
    }
  }
};

// A thread's fibers as left operands: one plane for each byte that the elements may use. The last
// plane is signed.
template <class Of>
struct BytePlanes {
  unsigned words[Of::kSteps][Of::kFiberTiles][Of::kPlanes][Of::kDeep];

  KRONOP_INLINE explicit BytePlanes(const typename Of::Fibers& fibers) {
#pragma unroll
    for (int s = 0; s < Of::kSteps; ++s) {
#pragma unroll
      for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
        for (int e = 0; e < Of::kDeep; ++e) {
          const auto item = [&](int part, int r) {
            return part < Of::kContractedParts
                       ? fibers[part < Of::kContractedParts ? part : 0][u][e % 2 + 2 * r]
                       : int32_t(0);
          };
          const int part = Of::kDeep * s + e / 2 * 2;
          unsigned planes[4];
          turn_bytes(planes, {item(part, 0), item(part, 1), item(part + 1, 0), item(part + 1, 1)});
#pragma unroll
          for (int plane = 0; plane < Of::kPlanes; ++plane) words[s][u][plane][e] = planes[plane];
        }
      }
    }
  }
};

namespace kron {

// Computes the sums of produced parts n0 ..., from the products of the highest bytes down.
template <class Step, int Phase, class Of, class Factor>
KRONOP_INLINE void multiply(int32_t (&sums)[Of::kAtOnce][Of::kFiberTiles][4],
                            const BytePlanes<Of>& fibers, int n0, const Factor& factor) {
  typename Of::B b[Of::kSteps][Of::kAtOnce];
#pragma unroll
  for (int s = 0; s < Of::kSteps; ++s) {
#pragma unroll
    for (int n = 0; n < Of::kAtOnce; ++n) {
      if (n0 + n < Of::kProducedParts) b[s][n] = factor(s * Of::kProducedParts + n0 + n);
    }
  }
#pragma unroll
  for (int plane = Of::kPlanes - 1; plane >= 0; --plane) {
    constexpr int last = Of::kPlanes - 1;
#pragma unroll
    for (int n = 0; n < Of::kAtOnce; ++n) {
#pragma unroll
      for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[n][u][e] = plane == last ? int32_t(0) : sums[n][u][e] * int32_t(256);
      }
    }
#pragma unroll
    for (int s = 0; s < Of::kSteps; ++s) {
#pragma unroll
      for (int n = 0; n < Of::kAtOnce; ++n) {
#pragma unroll
        for (int u = 0; u < Of::kFiberTiles; ++u) {
          if (n0 + n < Of::kProducedParts)
            warp_multiply_add(sums[n][u], fibers.words[s][u][plane], b[s][n].words, plane == last);
        }
      }
    }
  }
}

}  // namespace kron
}  // namespace kronop
