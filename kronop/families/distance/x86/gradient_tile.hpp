// A register tile of gradients of distances, and the derivatives of powers that it adds up,
//
//     s(t) = sgn(t) |t|^(p - 1), with s(0) = 0; for a Relative power, |t| is at most 1.
#pragma once

#include "distance_terms.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop::powers_of_distances {

constexpr int kBatchDims = 4;

template <int kScalars, class Scalar>
struct Parameters {
  void *a, *b, *c, *d, *y, *z, *largest,
      *power;  // Coefficients c are ones if null; a power that is null is in `number`.
  index_t m, n, k, o;
  index_t batch[kBatchDims];
  index_t a_batch[kBatchDims], b_batch[kBatchDims], c_batch[kBatchDims], d_batch[kBatchDims],
      y_batch[kBatchDims], z_batch[kBatchDims], largest_batch[kBatchDims], power_batch[kBatchDims];
  index_t a_row, a_column, b_row, b_column, c_row, c_column, d_row, d_column, y_row, y_column,
      z_row, z_column, largest_row, largest_column;
  index_t y_output, z_output, threads;
  double number;
  Scalar scalars[kScalars];
};

// The numbers are those of TermKind in form.py.
enum class Power : int {
  Half = 1,
  One,
  ThreeHalves,
  Two,
  FiveHalves,
  Three,
  Four,
  General,
  Relative = 14
};

template <class V>
KRONOP_INLINE V with_sign_of(V x, V t) {
  return bit_cast<V>(powers::bits_of(x) | (powers::bits_of(t) & powers::FormatOf<V>::kSign));
}

template <class V>
KRONOP_INLINE V root(V x) {
  return math::sqrt(Numbers<V>(x)).value;
}

// |t|^less for |t| > 0.
template <class V, class T>
KRONOP_INLINE V powered(V size, T less) {
  // Infinity to the power `less`: a power of 0 is 1.
  const V infinite = powers::all<V>(less > 0    ? __builtin_inf()
                                    : less < 0  ? T(0)
                                    : less == 0 ? T(1)
                                                : less);
  const V special = size == size ? infinite : size;
  return powers::is_ordinary(size) ? powers::power_of_ordinary(size, less) : special;
}

template <Power kPower, class V, class T>
KRONOP_INLINE V slope(V t, T less) {
  if constexpr (kPower == Power::One) {
    const V one = powers::all<V>(1);
    const V other = t < 0 ? -one : t;
    return t > 0 ? one : other;
  } else if constexpr (kPower == Power::Two) {
    return t;
  } else if constexpr (kPower == Power::Three) {
    return t * powers::absolute(t);
  } else if constexpr (kPower == Power::Four) {
    return t * t * t;
  } else if constexpr (kPower == Power::ThreeHalves) {
    return with_sign_of(root(powers::absolute(t)), t);
  } else if constexpr (kPower == Power::FiveHalves) {
    return t * root(powers::absolute(t));
  } else {
    V size = powers::absolute(t);
    if constexpr (kPower == Power::Relative) size = size > T(1) ? powers::all<V>(1) : size;
    V value;
    if constexpr (kPower == Power::Half) {
      value = T(1) / root(size);
    } else {
      value = powered(size, less);
    }
    return t == 0 ? V{} : with_sign_of(value, t);
  }
}

// Constants that follow from the decisions. Lanes are columns m or, if kAlongN, rows n.
template <class Decided, bool kAlongN>
struct TileStep : Decided {
  using Compute = typename Decided::Accumulator;
  using V = Vector<Compute, Decided::kWidth>;
  static constexpr bool kLanesAreRows = kAlongN;
  static constexpr Power kKind = Power(Decided::kPower);
  static constexpr bool kIsRelative = kKind == Power::Relative;
  static constexpr int kPanel = Decided::kWidth * Decided::kVectors;
  // The leading dimension is padded by a cache line, so that rows don't map to the same cache sets.
  static constexpr int kPitch = Decided::kDepth + 64 / int(sizeof(Compute));
};

// Adds `depth` indices k to the sums of kRows rows and a panel.
//
// If lanes are columns, `panel` has elements of a, and `rows` those of b; if they are rows, the
// other way round. `c`: rows of coefficients, kPitch apart. `reciprocals`: of the largest
// differences, laid out as elements of a. Sums are [row][output][lane]. NOTE: a separate function,
// because GCC keeps the sums in registers only in small functions.
template <class Step, int kRows>
__attribute__((noinline)) void add_tile(typename Step::Compute* __restrict sums,
                                        const typename Step::Compute* __restrict d,
                                        const typename Step::Compute* __restrict panel,
                                        const typename Step::Compute* __restrict rows,
                                        const typename Step::Compute* __restrict c,
                                        const typename Step::Compute* __restrict reciprocals,
                                        index_t depth, typename Step::Compute less) {
  using V = typename Step::V;
  using T = typename Step::Compute;
  constexpr int kVectors = Step::kVectors, kWidth = Step::kWidth, kOutputs = Step::kOutputs,
                kPanel = Step::kPanel;
  V sum[kRows][kOutputs][kVectors], from[kRows][kVectors];
  KRONOP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      from[r][v] = load<T, kWidth>(d + r * kPanel + v * kWidth);
      KRONOP_UNROLL
      for (int o = 0; o < kOutputs; ++o)
        sum[r][o][v] = load<T, kWidth>(sums + (r * kOutputs + o) * kPanel + v * kWidth);
    }
  }
  for (index_t k = 0; k < depth; ++k) {
    V lane[kVectors];
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) lane[v] = load<T, kWidth>(panel + k * kPanel + v * kWidth);
    KRONOP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V row = powers::all<V>(rows[r * Step::kPitch + k]);
      V product[kVectors];
      KRONOP_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        V t = from[r][v] - (Step::kLanesAreRows ? lane[v] : row);
        if constexpr (Step::kIsRelative) {
          t *= Step::kLanesAreRows ? powers::all<V>(reciprocals[r * Step::kPitch + k])
                                   : load<T, kWidth>(reciprocals + k * kPanel + v * kWidth);
        }
        product[v] = slope<Step::kKind>(t, less);
        const V a = Step::kLanesAreRows ? row : lane[v];
        if constexpr (kOutputs == 1) {
          sum[r][0][v] += a * product[v];
        } else {
          product[v] *= a;
        }
      }
      if constexpr (kOutputs > 1) {
        KRONOP_UNROLL
        for (int o = 0; o < kOutputs; ++o) {
          const V coefficient = powers::all<V>(c[o * Step::kPitch + k]);
          KRONOP_UNROLL
          for (int v = 0; v < kVectors; ++v) sum[r][o][v] += coefficient * product[v];
        }
      }
    }
  }
  KRONOP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KRONOP_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      KRONOP_UNROLL
      for (int o = 0; o < kOutputs; ++o)
        store(sums + (r * kOutputs + o) * kPanel + v * kWidth, sum[r][o][v]);
    }
  }
}

}  // namespace kronop::powers_of_distances
