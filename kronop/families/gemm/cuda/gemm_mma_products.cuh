// How tensor cores multiply a warp's fragments.
#pragma once

#include "gemm_mma_words.cuh"

namespace kronop {
namespace gemm {

// The numbers are those of the Python enumeration.
enum class Way : int {
  kPlain,      // elements unchanged
  kTf32,       // float32, rounded
  kSplitTf32,  // float32 split in two TF32 numbers, three products
  kRounded,    // float32, rounded to Step::Rounded
};

template <class Step, class RoomOfA, class RoomOfB>
using Operands =
    Either<RoomOfA::kSize == 8, Doubles<Step, RoomOfA, RoomOfB>,
           Either<Way(Step::kWay) == Way::kRounded, RoundedWords<Step, RoomOfA, RoomOfB>,
                  Words<Step, RoomOfA, RoomOfB>>>;

using detail::bits_to_float;

// A thread's sums of kM x 16 rows and kN x 8 columns, as in mma.cuh. Sums of float16 are packed in
// pairs.
template <class Step, int kM, int kN>
class Products {
  using Sum = typename Step::Accumulator;
  using Input = typename Step::Input;
  static constexpr bool kHalves = detail::same<Sum, half_t>;
  static constexpr Way kWay = Way(Step::kWay);

 public:
  KRONOP_INLINE Products() {
#pragma unroll
    for (int i = 0; i < kM * kN * (kHalves ? 2 : 4); ++i)
      sums_[i / (kN * kWords)][i / kWords % kN][i % kWords] = Held(0);
  }

  KRONOP_INLINE Sum sum(int i, int j, int e) const {
    if constexpr (kHalves) {
      half_t half;
      half.bits = (unsigned short)(sums_[i][j][e / 2] >> 16 * (e % 2));
      return half;
    } else {
      return sums_[i][j][e];
    }
  }

  template <class Of>
  KRONOP_INLINE void add(const Of& of) {
    if constexpr (kWay == Way::kSplitTf32) {
      add_split(of);
    } else if constexpr (kWay == Way::kTf32) {
      Split<float, 2, false> b[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j)
        b[j] = Split<float, 2, false>({bits_to_float(of.b[j][0]), bits_to_float(of.b[j][1])});
#pragma unroll
      for (int i = 0; i < kM; ++i) add_row(sums_[i], split_of<false>(of.a[i]), b);
    } else {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j) add_plain(sums_[i][j], of.a[i], of.b[j]);
      }
    }
  }

 private:
  using Held = Either<kHalves, unsigned, Sum>;
  static constexpr int kWords = kHalves ? 2 : 4;

  template <bool kSplit>
  KRONOP_INLINE static Split<float, 4, kSplit> split_of(const unsigned (&words)[4]) {
    return Split<float, 4, kSplit>({bits_to_float(words[0]), bits_to_float(words[1]),
                                    bits_to_float(words[2]), bits_to_float(words[3])});
  }

  // Small products first. NOTE: the tensor cores truncate instead of rounding, so the products of a
  // step are a chain of their own, whose sum is added in ordinary arithmetic.
  template <class Of>
  KRONOP_INLINE void add_split(const Of& of) {
    Split<float, 2, true> b[kN][1];
#pragma unroll
    for (int j = 0; j < kN; ++j)
      b[j][0] = Split<float, 2, true>({bits_to_float(of.b[j][0]), bits_to_float(of.b[j][1])});
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      const Split<float, 4, true> a = split_of<true>(of.a[i]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        float chain[1][4] = {};
        add_row(chain, a, b[j]);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[i][j][e] += chain[0][e];
      }
    }
  }

  template <class T>
  KRONOP_INLINE static void add_plain(Held (&sums)[kWords], const T (&a)[4], const T (&b)[2]) {
    if constexpr (detail::same<Input, double>) {
      warp_multiply_add(sums, a, b);
    } else if constexpr (detail::same<Input, int8_t>) {
      warp_multiply_add(sums, a, b, true);
    } else if constexpr (sizeof(Input) == 1) {
      warp_multiply_add_quarters<Input>(sums, a, b);
    } else if constexpr (kHalves) {
      warp_multiply_add_halves(sums, a, b);
    } else {
      warp_multiply_add<typename Step::Rounded>(sums, a, b[0], b[1]);
    }
  }

  Held sums_[kM][kN][kWords];
};

}  // namespace gemm
}  // namespace kronop
