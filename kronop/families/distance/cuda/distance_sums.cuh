// A thread's sums over k for its pairs of rows and columns, and the kernel's values of these sums.
#pragma once

#include "distance_lengths.cuh"
#include "distance_terms.cuh"

namespace kronop {
namespace distance {

// A thread's sums and their updates.
template <class Step>
class Sums {
 public:
  using Scalar = typename Step::Accumulator;
  static constexpr int kTerms = count_of(Step::kTerm), kM = Step::kThreadM, kN = Step::kThreadN;
  KRONOP_INLINE static constexpr TermKind kind(int term) { return TermKind(Step::kTerm[term]); }
  // The index of the first term of a kind; kTerms if there is none.
  KRONOP_INLINE static constexpr int place_of(TermKind wanted, int first = 0) {
    return first == kTerms || kind(first) == wanted ? first : place_of(wanted, first + 1);
  }
  KRONOP_INLINE static constexpr bool has(TermKind wanted) { return place_of(wanted) < kTerms; }
  // Passes over the features: relative terms are summed in a second pass, when the largest
  // difference is known.
  static constexpr int kRounds = has(TermKind::kRelative) ? 2 : 1;
  KRONOP_INLINE static constexpr bool is_of_round(int term, int round) {
    return (kind(term) == TermKind::kRelative) == (round > 0);
  }

  // `values` are numbers that all terms may use.
  KRONOP_INLINE explicit Sums(const Scalar* values) { begin<0>(values); }

  // Begins the second pass.
  KRONOP_INLINE void take_largest() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j)
        of_largest_[i][j] = reciprocal_of_largest(sums_[place_of(TermKind::kLargest)][i][j]);
    }
  }

  // Adds the terms of a pass, of all pairs, for one k.
  template <int kRound, bool kPlain, int t = 0>
  KRONOP_INLINE void add(const Scalar (&x1)[kM], const Scalar (&x2)[kN], const Scalar* weights) {
    if constexpr (is_of_round(t, kRound)) add_one<kPlain, t>(x1, x2, weights);
    if constexpr (t + 1 < kTerms) add<kRound, kPlain, t + 1>(x1, x2, weights);
  }

  template <bool kPlain, int t>
  KRONOP_INLINE void add_one(const Scalar (&x1)[kM], const Scalar (&x2)[kN],
                             const Scalar* weights) {
    constexpr TermKind kind_of = kind(t);
    constexpr int vector = Step::kTermVector[t];
    const Scalar weight = vector >= 0 ? weights[vector * Step::kTileK] : Scalar(1);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        Scalar& sum = sums_[t][i][j];
        const Scalar a = x1[i], b = x2[j];
        if constexpr (kind_of == TermKind::kDot) {
          sum = multiply_add(a, b, sum);
        } else if constexpr (kind_of == TermKind::kNormA) {
          if (j == 0) sum = multiply_add(a, a, sum);
        } else if constexpr (kind_of == TermKind::kNormB) {
          if (i == 0) sum = multiply_add(b, b, sum);
        } else {
          Scalar d = a - b;
          if constexpr (vector >= 0) d *= weight;
          if constexpr (kind_of == TermKind::kGeneral) {
            sum = powers_[t].template add_to<kPlain>(sum, d, i * kN + j);
          } else if constexpr (kind_of == TermKind::kRelative) {
            sum = powers_[t].template add_to<false, true>(sum, relative(d, of_largest_[i][j]),
                                                          i * kN + j);
          } else {
            sum = add_term<kind_of>(sum, d);
          }
        }
      }
    }
  }

  // How many sums have rounding errors: a thread has as many totals of chains in shared memory.
  KRONOP_INLINE static constexpr int rounded(int first = 0) {
    if (first == kTerms) return 0;
    const int own = kind(first) == TermKind::kNormA   ? kM
                    : kind(first) == TermKind::kNormB ? kN
                                                      : kM * kN;
    return (rounds(kind(first)) ? own : 0) + rounded(first + 1);
  }
  // Ends a chain of additions: adds it to the totals, or makes it the totals if it is the first
  // one.
  template <int kRound>
  KRONOP_INLINE void end_chain(Scalar* totals, bool is_first) {
    for_each_rounded<kRound>([&](Scalar& sum, int at) {
      Scalar& total = totals[at * Step::kThreads + int(threadIdx.x)];
      total = is_first ? sum : total + sum;
      sum = 0;
    });
  }
  // Adds the totals to the last chain.
  template <int kRound>
  KRONOP_INLINE void add_totals(const Scalar* totals) {
    for_each_rounded<kRound>(
        [&](Scalar& sum, int at) { sum += totals[at * Step::kThreads + int(threadIdx.x)]; });
  }

  // Replaces the sums of each pair by the kernel's value, which is in `of` afterwards.
  KRONOP_INLINE void finish(const Scalar* values) {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        Scalar s[kTerms];
        take<0>(i, j, s);
        of[i][j] = Step::Kernel::value(s, values);
      }
    }
  }
  Scalar of[kM][kN];

  // Recomputes values whose lengths exceed the range of float32; see distance_lengths.cuh.
  template <class First, class Second>
  KRONOP_INLINE void mend(const Scalar* values, long long features, const First& first,
                          const Second& second) {
    Scalar squares1[kM], squares2[kN];
#pragma unroll
    for (int i = 0; i < kM; ++i) squares1[i] = square<TermKind::kNormA>(i, 0);
#pragma unroll
    for (int j = 0; j < kN; ++j) squares2[j] = square<TermKind::kNormB>(0, j);
    Lengths<Step>::mend(of, squares1, squares2, features, values, first, second);
  }

  // Whether powers of differences of such elements need no range checks.
  KRONOP_INLINE bool is_plain(Scalar x) const { return plain_from<0>(x); }

 private:
  // Counts and maxima are exact.
  KRONOP_INLINE static constexpr bool rounds(TermKind kind) {
    return kind != TermKind::kZero && kind != TermKind::kInfinity && kind != TermKind::kLargest;
  }

  // Calls visit(sum, number of rounded sums before it) for the sums of a pass.
  template <int kRound, int t = 0, class Visit>
  KRONOP_INLINE void for_each_rounded(const Visit& visit, int before = 0) {
    constexpr int rows = kind(t) == TermKind::kNormB ? 1 : kM,
                  columns = kind(t) == TermKind::kNormA ? 1 : kN;
    if constexpr (rounds(kind(t)) && is_of_round(t, kRound)) {
#pragma unroll
      for (int i = 0; i < rows; ++i) {
#pragma unroll
        for (int j = 0; j < columns; ++j) visit(sums_[t][i][j], before + i * columns + j);
      }
    }
    if constexpr (rounds(kind(t))) before += rows * columns;
    if constexpr (t + 1 < kTerms) for_each_rounded<kRound, t + 1>(visit, before);
  }

  Scalar sums_[kTerms][kM][kN], of_largest_[kM][kN];
  Power<Scalar> powers_[kTerms];

  template <TermKind kKind, int t = 0>
  KRONOP_INLINE Scalar square(int i, int j) const {
    if constexpr (t == kTerms) {
      return 1;  // There is none.
    } else if constexpr (kind(t) == kKind) {
      return sums_[t][i][j];
    } else {
      return square<kKind, t + 1>(i, j);
    }
  }
  template <int t>
  KRONOP_INLINE void begin(const Scalar* values) {
    constexpr int value = Step::kTermValue[t];
    if constexpr (value >= 0) powers_[t] = Power<Scalar>(values[value]);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) sums_[t][i][j] = 0;
    }
    if constexpr (t + 1 < kTerms) begin<t + 1>(values);
  }
  template <int t>
  KRONOP_INLINE void take(int i, int j, Scalar (&s)[kTerms]) const {
    s[t] = sums_[t][kind(t) == TermKind::kNormB ? 0 : i][kind(t) == TermKind::kNormA ? 0 : j];
    if constexpr (t + 1 < kTerms) take<t + 1>(i, j, s);
  }
  template <int t>
  KRONOP_INLINE bool plain_from(Scalar x) const {
    bool plain = true;
    if constexpr (kind(t) == TermKind::kGeneral) plain = powers_[t].is_plain(x);
    if constexpr (t + 1 < kTerms) plain = plain && plain_from<t + 1>(x);
    return plain;
  }
};

}  // namespace distance
}  // namespace kronop
