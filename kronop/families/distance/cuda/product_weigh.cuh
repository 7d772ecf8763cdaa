// How a thread multiplies the values of its pairs by columns of v, and accumulates.
//
// The lanes of a warp are 8 in rows (lane / 4) by 4 in columns (lane % 4). A thread has kM rows and
// kN columns of the warp's tile, in vectors of kRun neighbours; the vectors of the lanes are
// interleaved.
#pragma once

#include "kronop/half_mma.cuh"
#include "product_numbers.cuh"

namespace kronop {
namespace product {

template <class T>
inline constexpr int run_of = 16 / sizeof(T);

// The offset of item i of lane 0; that of the next lane is a vector further on.
template <class T, int kLanes>
KRONOP_INLINE constexpr int place(int i) {
  constexpr int run = run_of<T>;
  return i / run * (kLanes * run) + i % run;
}

template <class T, int kLanes, int kCount>
KRONOP_INLINE void load_runs(const T* from, T (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += run_of<T>) {
    const auto run = load<T, run_of<T>>(from + place<T, kLanes>(i));
#pragma unroll
    for (int v = 0; v < run_of<T>; ++v) to[i + v] = run.data[v];
  }
}

// A thread's sums over its own columns: for few columns of v.
template <class T, int kM, int kN, int kColumns, int kPitch>
class WeighAlone {
 public:
  // Threads of a row whose sums have to be added up.
  static constexpr int kSums = 4;

  // `v` is the address of the warp's first column.
  KRONOP_INLINE void add(const T (&of)[kM][kN], const T* v) {
    const T* from = v + int(threadIdx.x) % 4 * run_of<T>;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      T factor[kN];
      load_runs<T, 4>(from + c * kPitch, factor);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j) sums_[i][c] = multiply_add(of[i][j], factor[j], sums_[i][c]);
      }
    }
  }

  // Called after each tile: sums of tiles are accumulated separately, which keeps rounding errors
  // small.
  KRONOP_INLINE void end_tile() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        totals_[i][c] += sums_[i][c];
        sums_[i][c] = T(0);
      }
    }
  }

  // Calls visit(thread of the row, row, column, total): `row` is relative to the warp's first.
  template <class Visit>
  KRONOP_INLINE void finish(const Visit& visit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        visit(lane % 4, lane / 4 * run_of<T> + place<T, 8>(i), c, totals_[i][c]);
    }
  }

 private:
  T sums_[kM][kColumns] = {}, totals_[kM][kColumns] = {};
};

// A warp's sums on the tensor cores: each float32 is split into a TF32 number and a remainder, and
// three of the four products are computed. Products with a remainder are computed in bfloat16, at
// twice the rate; their errors are below 2^-19 of the whole product.
//
// A thread's items are its fragment of the left operand. In TF32, column t of the operand is the
// first of two neighbours, and column t + 4 the second.
template <class T, int kM, int kN, int kColumns, int kPitch>
class WeighTogether {
  static constexpr int kOperands = kM / 2, kBlocks = kColumns / 8;
  // NOTE: tensor cores truncate, so that long sums would be too small. After so many MMAs they are
  // added to totals in ordinary arithmetic.
  static constexpr int kMost = 32;

 public:
  static constexpr int kSums = 1;

  KRONOP_INLINE void add(const T (&of)[kM][kN], const T* v) {
    const int lane = threadIdx.x % 32;
    const T* from = v + lane / 4 * kPitch + lane % 4 * run_of<T>;
#pragma unroll
    for (int j = 0; j < kN; j += run_of<T>) {
      Vector<T, run_of<T>> factor[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        factor[b] = load<T, run_of<T>>(from + 8 * b * kPitch + place<T, 4>(j));
      float right[kBlocks][4];
      unsigned right_parts[kBlocks][2], right_rests[kBlocks][2];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        part_run(factor[b].data, right[b], right_parts[b], right_rests[b]);
#pragma unroll
      for (int a = 0; a < kOperands; ++a) {
        float left[2][4];
        unsigned parts[2][2], rests[2][2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const T* run = of[2 * a + h] + j;
          const T values[4] = {run[0], run[1], run[2], run[3]};
          part_run(values, left[h], parts[h], rests[h]);
        }
        const unsigned all_parts[4] = {parts[0][0], parts[1][0], parts[0][1], parts[1][1]};
        const unsigned all_rests[4] = {rests[0][0], rests[1][0], rests[0][1], rests[1][1]};
#pragma unroll
        for (int b = 0; b < kBlocks; ++b)
          warp_multiply_add<bfloat16_t>(sums_[a][b], all_rests, right_parts[b][0],
                                        right_parts[b][1]);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b)
          warp_multiply_add<bfloat16_t>(sums_[a][b], all_parts, right_rests[b][0],
                                        right_rests[b][1]);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const float operand[4] = {left[0][i], left[1][i], left[0][i + 1], left[1][i + 1]};
#pragma unroll
          for (int b = 0; b < kBlocks; ++b)
            warp_multiply_add(sums_[a][b], operand, {right[b][i], right[b][i + 1]});
        }
      }
    }
    products_ += kN;
  }

  KRONOP_INLINE void end_tile() {
    if (products_ >= kMost) flush();
  }

  template <class Visit>
  KRONOP_INLINE void finish(const Visit& visit) {
    flush();
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int a = 0; a < kOperands; ++a) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = lane / 4 * run_of<T> + place<T, 8>(2 * a + e / 2);
          visit(0, row, 8 * b + lane % 4 * 2 + e % 2, totals_[a][b][e]);
        }
      }
    }
  }

 private:
  T sums_[kOperands][kBlocks][4] = {}, totals_[kOperands][kBlocks][4] = {};
  int products_ = 0;

  // Four numbers: their upper bits (TF32), these in bfloat16, and the remainders.
  KRONOP_INLINE static void part_run(const T (&from)[4], float (&whole)[4], unsigned (&parts)[2],
                                     unsigned (&rests)[2]) {
    float rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      whole[i] = from[i];
      rest[i] =
          from[i] - __builtin_bit_cast(float, __builtin_bit_cast(unsigned, from[i]) & 0xffffe000u);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      parts[i] = pack<bfloat16_t>(from[2 * i], from[2 * i + 1]);
      rests[i] = pack<bfloat16_t>(rest[2 * i], rest[2 * i + 1]);
    }
  }

  KRONOP_INLINE void flush() {
    products_ = 0;
#pragma unroll
    for (int a = 0; a < kOperands; ++a) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals_[a][b][e] += sums_[a][b][e];
          sums_[a][b][e] = T(0);
        }
      }
    }
  }
};

}  // namespace product
}  // namespace kronop
