// Kernels of lengths and inner products alone, such as the cosine, are recomputed in double
// precision if the square of a length exceeds the range of float32.
#pragma once

#include "distance_tile.hpp"

namespace kronop::distances {

template <class Step>
class Lengths {
  using Compute = typename Step::Compute;
  using Input = typename Step::Input;
  using V = Vector<Compute, Step::kWidth>;
  static constexpr float kLeast = 0x1p-80f, kMost = 0x1p126f;

  static constexpr int place_of(TermKind kind) {
    int place = -1;
    for (int t = 0; t < Step::kTerms; ++t) place = kind_of<Step>(t) == kind ? t : place;
    return place;
  }
  static constexpr int kOfA = place_of(TermKind::NormA), kOfB = place_of(TermKind::NormB),
                       kDot = place_of(TermKind::Dot);

 public:
  // Points with a common stride of their features.
  struct Points {
    const Input* from;
    index_t row, column;
  };

  // Whether the form has lengths, and nothing but products besides, in float32.
  static constexpr bool are_all() {
    return sizeof(Compute) == 4 && (kOfA >= 0 || kOfB >= 0) &&
           Step::kTerms == (kOfA >= 0) + (kOfB >= 0) + (kDot >= 0);
  }

  // Whether a pair of a row may need `mend`. Sums of the next term are `apart` elements further on;
  // the first row of the tile has the same points b.
  KRONOP_INLINE static bool has_unusual(const Compute* sums, const Compute* first_row,
                                        index_t apart) {
    if (kOfA >= 0 && is_unusual(sums[kOfA * apart])) return true;
    decltype(V{} < V{}) found{};
    KRONOP_UNROLL
    for (int i = 0; kOfB >= 0 && i < Step::kPanel; i += Step::kWidth) {
      const V squares = load<Compute, Step::kWidth>(first_row + kOfB * apart + i);
      found |= (squares > kMost) | (squares < kLeast);
    }
    const auto words = bit_cast<Vector<int64_t, sizeof(found) / 8>>(found);
    int64_t some = 0;
    KRONOP_UNROLL
    for (int i = 0; i < int(sizeof(found) / 8); ++i) some |= words[i];
    return some != 0;
  }

  // Recomputes the kernel's values for point a and `count` points b if they need it. The panel's
  // values after these become 0.
  __attribute__((noinline)) static void mend(Compute* values, const Compute* sums, index_t apart,
                                             Points a, Points b, index_t count, index_t k,
                                             const Shared<Step>& shared) {
    const bool of_a = kOfA >= 0 && has_left(sums[kOfA * apart], a, k);
    index_t c = 0;
    for (; c < count; ++c, b.from += b.row) {
      if (of_a || (kOfB >= 0 && has_left(sums[kOfB * apart + c], b, k)))
        values[c] = value(a, b, k, shared);
    }
    for (; c < Step::kPanel; ++c) values[c] = 0;
  }

 private:
  // Whether a square has overflowed or lost bits; NaN has not.
  static constexpr bool is_unusual(Compute square) { return (square > kMost) | (square < kLeast); }
  // The square of a point that is 0 is exact.
  static bool has_left(Compute square, Points point, index_t k) {
    bool is_zero = true;
    for (index_t at = 0; square == 0 && at < k; ++at)
      is_zero &= convert<Compute>(point.from[at * point.column]) == 0;
    return square == 0 ? !is_zero : is_unusual(square);
  }
  static Compute value(Points a, Points b, index_t k, const Shared<Step>& shared) {
    double s[Step::kTerms] = {}, h[Step::kValues > 0 ? Step::kValues : 1];
    for (index_t at = 0; at < k; ++at) {
      const double x = convert<Compute>(a.from[at * a.column]),
                   y = convert<Compute>(b.from[at * b.column]);
      if constexpr (kDot >= 0) s[kDot] += x * y;
      if constexpr (kOfA >= 0) s[kOfA] += x * x;
      if constexpr (kOfB >= 0) s[kOfB] += y * y;
    }
    for (int i = 0; i < Step::kValues; ++i) h[i] = shared.value[i];
    return Compute(Step::WideKernel::value(s, h));
  }
};

}  // namespace kronop::distances
