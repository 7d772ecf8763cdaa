// Kernels of lengths and inner products alone, such as the cosine, are recomputed in double
// precision if the square of a length exceeds the range of float32.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

// Whether the square of a length has overflowed or lost bits; NaN has not.
KRONOP_INLINE bool is_unusual(float square) { return square > 0x1p126f || square < 0x1p-80f; }

template <class Step>
class Lengths {
  // The numbers are those of the Python enumeration.
  enum : int { kDotKind = 10, kNormAKind, kNormBKind };
  KRONOP_INLINE static constexpr int place_of(int kind) {
    int place = -1;
    for (int t = 0; t < count_of(Step::kTerm); ++t) place = Step::kTerm[t] == kind ? t : place;
    return place;
  }
  static constexpr int kOfA = place_of(kNormAKind), kOfB = place_of(kNormBKind),
                       kDot = place_of(kDotKind);

 public:
  // Whether the kernel has lengths, and nothing but inner products besides, in float32.
  static constexpr bool kAreAll = sizeof(typename Step::Accumulator) == 4 &&
                                  (kOfA >= 0 || kOfB >= 0) &&
                                  count_of(Step::kTerm) == (kOfA >= 0) + (kOfB >= 0) + (kDot >= 0);

  // The kernel's value from double precision sums.
  KRONOP_INLINE static float value(double dot, double of_a, double of_b, const float* h) {
    constexpr int kValues = Step::kValues > 0 ? Step::kValues : 1;
    double s[count_of(Step::kTerm)], wide[kValues];
    if constexpr (kDot >= 0) s[kDot] = dot;
    if constexpr (kOfA >= 0) s[kOfA] = of_a;
    if constexpr (kOfB >= 0) s[kOfB] = of_b;
#pragma unroll
    for (int i = 0; i < Step::kValues; ++i) wide[i] = h[i];
    return float(Step::WideKernel::value(s, wide));
  }

  // Recomputes those of a thread's values that need it. `first(i, k)` and `second(j, k)` are
  // elements of its points, 0 out of bounds.
  template <int kM, int kN, class First, class Second>
  KRONOP_INLINE static void mend(float (&of)[kM][kN], const float (&squares1)[kM],
                                 const float (&squares2)[kN], long long features, const float* h,
                                 const First& first, const Second& second) {
    unsigned left1 = kOfA >= 0 ? unusual(squares1) : 0, left2 = kOfB >= 0 ? unusual(squares2) : 0;
    if ((left1 | left2) == 0) return;
    left1 &= ~zeros<kM>(left1, features, first);
    left2 &= ~zeros<kN>(left2, features, second);
#pragma unroll 1
    for (int pair = 0; pair < kM * kN; ++pair) {
      const int i = pair / kN, j = pair % kN;
      if (((left1 >> i | left2 >> j) & 1) == 0) continue;
      double dot = 0, of_a = 0, of_b = 0;
#pragma unroll 1
      for (long long k = 0; k < features; ++k) {
        const double a = first(i, k), b = second(j, k);
        dot += a * b;
        of_a += a * a;
        of_b += b * b;
      }
      const float again = value(dot, of_a, of_b, h);
#pragma unroll
      for (int r = 0; r < kM; ++r) {
#pragma unroll
        for (int c = 0; c < kN; ++c) of[r][c] = r == i && c == j ? again : of[r][c];
      }
    }
  }

 private:
  template <int kCount>
  KRONOP_INLINE static unsigned unusual(const float (&squares)[kCount]) {
    unsigned found = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) found |= unsigned(is_unusual(squares[i])) << i;
    return found;
  }
  // Which of these points are 0: their squares are exact.
  template <int kCount, class Points>
  KRONOP_INLINE static unsigned zeros(unsigned among, long long features, const Points& points) {
    unsigned found = 0;
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      if ((among >> i & 1) == 0) continue;
      bool is_zero = true;
#pragma unroll 1
      for (long long k = 0; k < features && is_zero; ++k) is_zero = points(i, k) == 0;
      found |= unsigned(is_zero) << i;
    }
    return found;
  }
};

}  // namespace kronop
