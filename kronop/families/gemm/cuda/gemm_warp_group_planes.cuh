// float32 products as six products of bfloat16, whose operands a warp group splits in shared
// memory.
//
// A number is the sum of three numbers of bfloat16, each of the rest that those before it leave: 24
// bits. The products of these whose places add up to no more than two bfloat16 are summed; what is
// left out is about 2^-24 of a product at most. As bfloat16 an operand may be contiguous along its
// other index, which TF32 may not (wgmma); six products take the time of three of TF32.
//
// A copied slab is 32 contracted indices of 32 wide ones (128 bytes) each, blocks of A before those
// of B. Each plane of it has the same order, of 64 wide indices.
#pragma once

#include "gemm_warp_group_results.cuh"

namespace kronop {
namespace gemm {

// Rounds two numbers to bfloat16; those that are beyond its largest ones become these.
KRONOP_INLINE unsigned pack_finite(float low, float high) {
#if defined(KRONOP_EMULATION)
  constexpr float most = 0x1.fep127f;
  return pack<bfloat16_t>(low > most    ? most
                          : low < -most ? -most
                                        : low,
                          high > most    ? most
                          : high < -most ? -most
                                         : high);
#else
  unsigned word;
  asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#endif
}

// Two neighbours as pairs of bfloat16.
KRONOP_INLINE void split_pair(float low, float high, unsigned (&pairs)[3]) {
#pragma unroll
  for (int plane = 0; plane < 3; ++plane) {
    pairs[plane] = plane == 0 ? pack_finite(low, high) : pack<bfloat16_t>(low, high);
    low -= __builtin_bit_cast(float, pairs[plane] << 16);
    high -= __builtin_bit_cast(float, pairs[plane] & 0xffff0000u);
  }
}

// Converts a slab. A thread takes 8 neighbours at once, of the same place in each block. Four
// threads have half a line of a plane, and the other four of eight the other half of a line that is
// five further on or before: loads and stores then meet all banks, since lines are swizzled.
template <class Step>
KRONOP_INLINE void split_slab(const unsigned char* slab, unsigned char* stage) {
  constexpr int block = Step::kSlab * kLineBytes, blocks = Step::kSlabBytes / block;
  const int lane = threadIdx.x % 32, piece = lane % 4,
            row = threadIdx.x % kTeam / 32 * 8 + (lane / 8 ^ (lane & 4 ? 5 : 0)),
            from = row * kLineBytes + (2 * piece ^ row % 8) * 16,
            to = row * kLineBytes + (piece ^ row % 8) * 16;
#pragma unroll 4
  for (int at = 0; at < blocks; ++at) {
    const auto* const line = reinterpret_cast<const float*>(slab + at * block);
    const auto first = load<float, 4>(line + from / 4),
               second = load<float, 4>(line + (from ^ 16) / 4);
    Vector<unsigned, 4> planes[3];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& own = i < 2 ? first : second;
      unsigned pairs[3];
      split_pair(own.data[i % 2 * 2], own.data[i % 2 * 2 + 1], pairs);
#pragma unroll
      for (int plane = 0; plane < 3; ++plane) planes[plane].data[i] = pairs[plane];
    }
    unsigned char* const place = stage + at / 2 * block + (to ^ at % 2 * 64);
#pragma unroll
    for (int plane = 0; plane < 3; ++plane)
      store(reinterpret_cast<unsigned*>(place + plane * Step::kPlaneBytes), planes[plane]);
  }
}

// Multiplies the planes of a slab, the smallest products first.
template <class Step, class Sums>
KRONOP_INLINE void multiply_planes(Sums& sums, const unsigned char* stage) {
  constexpr int block = Step::kSlab * kLineBytes, half = block / 2;
  const int team = Step::kAlternate ? 0 : threadIdx.x / kTeam;
  const WarpGroupMatrix a(stage + team * block, 1024, kLineBytes),
      b(stage + Step::kTileM / 64 * block, 1024, kLineBytes, block);
#pragma unroll
  for (int both = 2; both >= 0; --both) {
#pragma unroll
    for (int of_a = 0; of_a <= both; ++of_a) {
#pragma unroll
      for (int step = 0; step < 2; ++step)
        warp_group_product<bfloat16_t, true, true>(
            sums, a.after(of_a * Step::kPlaneBytes + step * half),
            b.after((both - of_a) * Step::kPlaneBytes + step * half),
            both < 2 || of_a > 0 || step > 0);
    }
  }
}

}  // namespace gemm
}  // namespace kronop
