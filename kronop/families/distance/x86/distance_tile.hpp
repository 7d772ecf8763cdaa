// A register tile of sums over features, and the packing of its rows.
#pragma once

#include "distance_terms.hpp"
#include "kronop_x86/panels.hpp"

namespace kronop::distances {

template <class Step>
constexpr TermKind kind_of(int term) {
  return TermKind(Step::kTerm[term]);
}

template <class Step>
struct Shared;

// The index of the first term of a kind; the number of terms if there is none.
template <class Step>
constexpr int place_of(TermKind kind, int first = 0) {
  return first == count_of(Step::kTerm) || kind_of<Step>(first) == kind
             ? first
             : place_of<Step>(kind, first + 1);
}

// Constants that follow from the decisions. Rows of x1 are packed with leading dimension kPitch:
// kDepth features and a cache line, so that rows don't map to the same sets of a cache. Rows of x2
// are packed in panels of kPanel, feature by feature.
template <class Decided>
struct TileStep : Decided {
  using Compute = typename Decided::Accumulator;
  using Together = Shared<TileStep>;
  static constexpr int kTerms = count_of(Decided::kTerm);
  // Passes over the features: relative terms are summed in a second pass, when the largest
  // difference is known.
  static constexpr int kRounds = place_of<Decided>(TermKind::Relative) < kTerms ? 2 : 1;
  static constexpr int kVectorCount = Decided::kVectors, kVectors = Decided::kTileVectors;
  static constexpr int kPanel = Decided::kWidth * kVectors;
  static constexpr int kMostColumns = 8 * Decided::kBlockColumns;
  static constexpr int kPitch = Decided::kDepth + 64 / int(sizeof(Compute));
};

// Data that all pairs of a problem share: the values, as numbers and broadcast to all lanes, and
// reciprocals of vectors for the current features.
template <class Step>
struct Shared {
  using Compute = typename Step::Compute;
  Compute value[Step::kValues > 0 ? Step::kValues : 1];
  typename Step::Numbers of_kernel[Step::kValues > 0 ? Step::kValues : 1];
  Compute reciprocal[Step::kVectorCount > 0 ? Step::kVectorCount : 1][Step::kDepth];

  void take(int index, Compute number) {
    for (int term = 0; term < count_of(Step::kTerm); ++term) {
      if (kind_of<Step>(term) == TermKind::Relative && Step::kTermValue[term] == index)
        number = bounded_power(number);
    }
    of_kernel[index] = value[index] = number;
  }
};

// Loads the sums of a row's pairs from column v on, whose terms are `apart`. Lengths are loaded
// from a place that all pairs of a point share, so that functions of them alone are computed once.
template <class Step, int t = 0>
KRONOP_INLINE void read_sums(typename Step::Numbers* of_pairs, const typename Step::Compute* row,
                             const typename Step::Compute* first_row, index_t apart, int v) {
  constexpr TermKind kKind = kind_of<Step>(t);
  if constexpr (kKind == TermKind::NormA) {
    of_pairs[t] = row[t * apart];
  } else {
    of_pairs[t] = load<typename Step::Compute, Step::kWidth>(
        (kKind == TermKind::NormB ? first_row : row) + t * apart + v);
  }
  if constexpr (t + 1 < Step::kTerms) read_sums<Step, t + 1>(of_pairs, row, first_row, apart, v);
}

// Whether a - b is computed as the multiply-add 1 a - b: additions would use only two of the pipes
// while those of multiply-adds are idle. (On Zen 3, |d| takes 0.041 ns for each number so, else
// 0.047.)
#if defined(__FMA__)
template <TermKind kKind>
inline constexpr bool kMultiplies = kKind == TermKind::One;
#else
template <TermKind kKind>
inline constexpr bool kMultiplies = false;
#endif

// 1, opaque to the compiler.
template <class T>
KRONOP_INLINE T hidden_one() {
  T one = 1;
  asm("" : "+m"(one));
  return one;
}

// Sums of one term over a slab of features, for kRows rows of x1 and the rows of x2 in a panel.
// Sums of a NormA or NormB depend on one of the two only, and exist once. Empty in a pass that is
// not the term's.
template <class Step, int kTerm, int kRows, int kRound>
struct Sums {
  using Compute = typename Step::Compute;
  using V = Vector<Compute, Step::kWidth>;
  static constexpr TermKind kKind = kind_of<Step>(kTerm);
  static constexpr int kOwnRows = kKind == TermKind::NormB ? 1 : kRows;
  static constexpr int kOwnVectors = kKind == TermKind::NormA ? 1 : Step::kVectors;
  static constexpr bool kIsRelative = kKind == TermKind::Relative,
                        kIsSummed = kIsRelative == (kRound > 0);
  V at[kOwnRows][kOwnVectors] = {};
  V of_largest[kIsRelative ? kRows : 1][kIsRelative ? Step::kVectors : 1];

  // `sums`: those of the terms so far, as stored by `store_to`, `apart` from each other.
  KRONOP_INLINE void begin(const Compute* sums, index_t pitch, index_t apart) {
    if constexpr (kIsRelative && kIsSummed) {
      const Compute* largest = sums + place_of<Step>(TermKind::Largest) * apart;
      KRONOP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        KRONOP_UNROLL
        for (int v = 0; v < Step::kVectors; ++v) {
          of_largest[r][v] = reciprocal_of_largest(
              load<Compute, Step::kWidth>(largest + r * pitch + v * Step::kWidth));
        }
      }
    }
  }

  KRONOP_INLINE void add(V a, V b, int r, int v, const V* reciprocal, const Compute* values,
                         V one) {
    if constexpr (!kIsSummed) {
    } else if constexpr (is_of_difference(kKind)) {
      V difference = kMultiplies<kKind> ? V(a * one - b) : V(a - b);
      if constexpr (Step::kTermVector[kTerm] >= 0)
        difference *= reciprocal[Step::kTermVector[kTerm]];
      if constexpr (kIsRelative) difference *= of_largest[r][v];
      const Compute exponent =
          Step::kTermValue[kTerm] < 0 ? Compute(0) : values[Step::kTermValue[kTerm]];
      at[r][v] = joined_with<kKind>(at[r][v], term<kKind>(difference, exponent));
    } else if constexpr (kKind == TermKind::Dot) {
      at[r][v] += a * b;
    } else if constexpr (kKind == TermKind::NormA) {
      if (v == 0) at[r][0] += a * a;
    } else {
      if (r == 0) at[0][v] += b * b;
    }
  }

  // Stores the sums with leading dimension `pitch`, or adds them to those in memory.
  template <bool kJoins>
  KRONOP_INLINE void store_to(Compute* to, index_t pitch) const {
    KRONOP_UNROLL
    for (int r = 0; kIsSummed && r < kRows; ++r) {
      KRONOP_UNROLL
      for (int v = 0; v < Step::kVectors; ++v) {
        Compute* place = to + r * pitch + v * Step::kWidth;
        const V sum = at[kOwnRows == 1 ? 0 : r][kOwnVectors == 1 ? 0 : v];
        store(place, kJoins ? joined_with<kKind>(load<Compute, Step::kWidth>(place), sum) : sum);
      }
    }
  }
};

// The sums of every term, each in a base class of its own.
template <class Step, int kRows, int kRound, class Terms>
struct TileSums;
template <class Step, int kRows, int kRound, int... kTerm>
struct TileSums<Step, kRows, kRound, Indices<kTerm...>> : Sums<Step, kTerm, kRows, kRound>... {
  using Compute = typename Step::Compute;
  using V = Vector<Compute, Step::kWidth>;

  KRONOP_INLINE void begin(const Compute* sums, index_t pitch, index_t apart) {
    (Sums<Step, kTerm, kRows, kRound>::begin(sums, pitch, apart), ...);
  }
  KRONOP_INLINE void add(V a, V b, int r, int v, const V* reciprocal, const Compute* values,
                         V one) {
    (Sums<Step, kTerm, kRows, kRound>::add(a, b, r, v, reciprocal, values, one), ...);
  }
  template <bool kJoins>
  KRONOP_INLINE void store_to(Compute* to, index_t pitch, index_t apart) const {
    (Sums<Step, kTerm, kRows, kRound>::template store_to<kJoins>(to + kTerm * apart, pitch), ...);
  }
};

// Sums over features `k` to `end` of a slab; stores them with leading dimension `pitch`, those of
// the terms `apart` from each other, or adds them to those in memory. NOTE: a separate function,
// because GCC keeps the sums in registers only in small functions.
template <class Step, int kRows, int kRound>
__attribute__((noinline)) void sum_tile(const typename Step::Compute* __restrict rows,
                                        const typename Step::Compute* __restrict panel, index_t k,
                                        index_t end, const typename Step::Together& shared,
                                        typename Step::Compute* __restrict to, index_t pitch,
                                        index_t apart, bool joins) {
  using Compute = typename Step::Compute;
  using V = Vector<Compute, Step::kWidth>;
  TileSums<Step, kRows, kRound, decltype(FirstIndices<Step::kTerms>{})> sums;
  sums.begin(to, pitch, apart);
  Compute values[Step::kValues > 0 ? Step::kValues : 1];
  KRONOP_UNROLL
  for (int i = 0; i < Step::kValues; ++i) values[i] = shared.value[i];
  const V one = powers::all<V>(hidden_one<Compute>());
  for (; k < end; ++k) {
    V b[Step::kVectors], reciprocal[Step::kVectorCount > 0 ? Step::kVectorCount : 1];
    KRONOP_UNROLL
    for (int v = 0; v < Step::kVectors; ++v) {
      b[v] = load<Compute, Step::kWidth>(panel + k * Step::kPanel + v * Step::kWidth);
    }
    KRONOP_UNROLL
    for (int i = 0; i < Step::kVectorCount; ++i)
      reciprocal[i] = powers::all<V>(shared.reciprocal[i][k]);
    KRONOP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V a = powers::all<V>(rows[r * Step::kPitch + k]);
      KRONOP_UNROLL
      for (int v = 0; v < Step::kVectors; ++v) sums.add(a, b[v], r, v, reciprocal, values, one);
    }
  }
  if (joins) {
    sums.template store_to<true>(to, pitch, apart);
  } else {
    sums.template store_to<false>(to, pitch, apart);
  }
}

// Sums over a slab, as `sum_tile`, in chains of additions that are short enough for small errors.
template <class Step, int kRows, int kRound = 0>
KRONOP_INLINE void sum_slab(const typename Step::Compute* rows, const typename Step::Compute* panel,
                            index_t depth, const typename Step::Together& shared,
                            typename Step::Compute* to, index_t pitch, index_t apart, bool joins) {
  constexpr index_t kChain = Step::kDepth / 2;
  for (index_t k = 0; k == 0 || k < depth; k += kChain) {
    sum_tile<Step, kRows, kRound>(rows, panel, k, lesser(k + kChain, depth), shared, to, pitch,
                                  apart, joins || k > 0);
  }
}

// Sums over a slab that has all features, in one pass after the other.
template <class Step, int kRows, int kRound = 0>
KRONOP_INLINE void sum_whole(const typename Step::Compute* rows,
                             const typename Step::Compute* panel, index_t depth,
                             const typename Step::Together& shared, typename Step::Compute* to,
                             index_t pitch, index_t apart) {
  sum_slab<Step, kRows, kRound>(rows, panel, depth, shared, to, pitch, apart, false);
  if constexpr (kRound + 1 < Step::kRounds)
    sum_whole<Step, kRows, kRound + 1>(rows, panel, depth, shared, to, pitch, apart);
}

}  // namespace kronop::distances
