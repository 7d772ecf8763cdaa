// Products of kernel matrices by direct differences of features. A block has kTileM rows of x1 and
// iterates over a share of the columns n, tile by tile: it sums over features in registers, applies
// the kernel to the sums, and multiplies the values by the rows of v. Slabs of kSlab features are
// double-buffered in shared memory.
#pragma once

#include "distance_lengths.cuh"
#include "product_block.cuh"

namespace kronop {

namespace product {

// A thread's sums over features.
template <class Step>
class Sums {
 public:
  using T = typename Step::Accumulator;
  static constexpr int kTerms = count_of(Step::kTerm), kM = Step::kThreadM, kN = Step::kThreadN;
  // The index of the first term of a kind; kTerms if there is none.
  KRONOP_INLINE static constexpr int place_of(int kind, int first = 0) {
    return first == kTerms || Step::kTerm[first] == kind ? first : place_of(kind, first + 1);
  }
  // Passes over the features: relative terms are summed in a second pass, when the largest
  // difference is known.
  static constexpr int kRounds = place_of(kRelative) < kTerms ? 2 : 1;

  template <int t = 0>
  KRONOP_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) sums_[t][i][j] = T(0);
    }
    if constexpr (t + 1 < kTerms) clear<t + 1>();
  }

  // Called before the second pass over the features.
  KRONOP_INLINE void take_largest() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j)
        of_largest_[i][j] = distance::reciprocal_of_largest(sums_[place_of(kLargest)][i][j]);
    }
  }

  // Adds the terms of a pass, of one feature of all pairs. `reciprocals` are those of the vectors'
  // elements.
  template <int t = 0>
  KRONOP_INLINE void add(int round, const T (&a)[kM], const T (&b)[kN], const T* reciprocals,
                         const T* h) {
    constexpr bool in_second = Step::kTerm[t] == kRelative;
    if (kRounds == 1 || in_second == (round > 0)) add_one<t>(a, b, reciprocals, h);
    if constexpr (t + 1 < kTerms) add<t + 1>(round, a, b, reciprocals, h);
  }

  // The kernel's values of all pairs.
  template <class Values>
  KRONOP_INLINE void apply(const Values* h, T (&of)[kM][kN]) const {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        Values s[kTerms];
        take<0>(i, j, s);
        of[i][j] = value_of(Step::Kernel::value(s, h));
      }
    }
  }

  // Whether a length exceeds the range of float32.
  KRONOP_INLINE bool has_unusual() const {
    bool found = false;
#pragma unroll
    for (int i = 0; i < kM; ++i) found = found || is_unusual(square<kNormA>(i, 0));
#pragma unroll
    for (int j = 0; j < kN; ++j) found = found || is_unusual(square<kNormB>(0, j));
    return found;
  }

  // Recomputes such values; see distance_lengths.cuh.
  template <class First, class Second>
  KRONOP_INLINE void mend(const T* h, T (&of)[kM][kN], long long features, const First& first,
                          const Second& second) const {
    T squares1[kM], squares2[kN];
#pragma unroll
    for (int i = 0; i < kM; ++i) squares1[i] = square<kNormA>(i, 0);
#pragma unroll
    for (int j = 0; j < kN; ++j) squares2[j] = square<kNormB>(0, j);
    Lengths<Step>::mend(of, squares1, squares2, features, h, first, second);
  }

 private:
  T sums_[kTerms][kM][kN], of_largest_[kM][kN];

  template <int t>
  KRONOP_INLINE void add_one(const T (&a)[kM], const T (&b)[kN], const T* reciprocals, const T* h) {
    constexpr int kind = Step::kTerm[t], vector = Step::kTermVector[t], value = Step::kTermValue[t];
    T scale = T(1);
    if constexpr (vector >= 0) scale = reciprocals[vector * Step::kSlab];
    const T p = value >= 0 ? h[value < 0 ? 0 : value] : T(0);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        T& sum = sums_[t][i][j];
        if constexpr (kind == kDot) {
          sum = multiply_add(a[i], b[j], sum);
        } else if constexpr (kind == kNormA) {
          if (j == 0) sum = multiply_add(a[i], a[i], sum);
        } else if constexpr (kind == kNormB) {
          if (i == 0) sum = multiply_add(b[j], b[j], sum);
        } else {
          T d = a[i] - b[j];
          if constexpr (vector >= 0) d *= scale;
          if constexpr (kind == kRelative) d = distance::relative(d, of_largest_[i][j]);
          sum = add_term<kind>(sum, d, p);
        }
      }
    }
  }

  template <int kKind, int t = 0>
  KRONOP_INLINE T square(int i, int j) const {
    if constexpr (t == kTerms) {
      return 1;  // There is none.
    } else if constexpr (Step::kTerm[t] == kKind) {
      return sums_[t][i][j];
    } else {
      return square<kKind, t + 1>(i, j);
    }
  }

  template <int t, class Values>
  KRONOP_INLINE void take(int i, int j, Values (&s)[kTerms]) const {
    s[t] = Numbers<T>::varying(
        sums_[t][Step::kTerm[t] == kNormB ? 0 : i][Step::kTerm[t] == kNormA ? 0 : j]);
    if constexpr (t + 1 < kTerms) take<t + 1>(i, j, s);
  }
};

}  // namespace product

template <class Step, class Parameters>
KRONOP_INLINE void product_tile(const Parameters& parameters) {
  using namespace product;
  using T = typename Step::Accumulator;
  constexpr int kM = Step::kThreadM, kN = Step::kThreadN, kVectors = Step::kVectors;
  using Weigh = Either<Step::kTogether, WeighTogether<T, kM, kN, Step::kColumns, Step::kTileN>,
                       WeighAlone<T, kM, kN, Step::kColumns, Step::kTileN>>;
  // Two slabs of x1, x2 and reciprocals, and two tiles of v.
  constexpr int kSlab1 = Step::kSlab * Step::kTileM, kSlab2 = Step::kSlab * Step::kTileN,
                kOfV = Step::kColumns * Step::kTileN;
  T* const shared = reinterpret_cast<T*>(shared_memory());
  T *const slabs1 = shared, *const slabs2 = slabs1 + 2 * kSlab1, *const of_v = slabs2 + 2 * kSlab2,
           *const reciprocals = of_v + 2 * kOfV;

  Place<Step, Parameters> place(parameters);
  distance::bound_powers<Step, kRelative>(place.h);
  if (is_expanded<Step>(place)) return;
  constexpr int kRounds = Sums<Step>::kRounds;
  const int slabs = int(parameters.depth / Step::kSlab);
  const long long first = place.first_tile(), tiles = place.end_tile() - first;
  const T* const x1 = place.x1 + place.row_tile * slabs * kSlab1;
  const T* x2 = place.x2 + first * slabs * kSlab2;
  const T* v = place.v + (first * parameters.chunks + place.chunk) * kOfV;
  const auto copy = [&](int round, int slab, int buffer, int buffer_of_v, bool again) {
    if (round > 0 && slab == 0) x2 -= slabs * kSlab2;
    if (again) copy_all<Step, kSlab1>(slabs1 + buffer * kSlab1, x1 + slab * kSlab1);
    copy_all<Step, kSlab2>(slabs2 + buffer * kSlab2, x2);
    x2 += kSlab2;
    if (round == 0 && slab == 0) {
      copy_all<Step, kOfV>(of_v + buffer_of_v * kOfV, v);
      v += parameters.chunks * kOfV;
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const long long k = slab * Step::kSlab + threadIdx.x;
      if (int(threadIdx.x) < Step::kSlab) {
        reciprocals[(buffer * kVectors + i) * Step::kSlab + threadIdx.x] =
            k < parameters.k ? T(1) / place.vector[i][k * parameters.vector_column[i]] : T(1);
      }
    }
  };

  typename Numbers<T>::type h[Step::kValues > 0 ? Step::kValues : 1];
#pragma unroll
  for (int i = 0; i < Step::kValues; ++i) h[i] = Numbers<T>::uniform(place.h[i]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / Step::kWarpsN * (8 * kM) + lane / 4 * run_of<T>,
            warp_column = warp % Step::kWarpsN * (4 * kN),
            column = warp_column + lane % 4 * run_of<T>;
  Sums<Step> sums;
  Weigh weigh;
  if (tiles > 0) copy(0, 0, 0, 0, true);
  int buffer = 0;
#pragma unroll 1
  for (long long tile = 0; tile < tiles; ++tile) {
    sums.clear();
#pragma unroll 1
    for (int step = 0; step < kRounds * slabs; ++step, buffer ^= 1) {
      wait_for_copies();
      __syncthreads();
      const int round = kRounds > 1 && step >= slabs, slab = step - round * slabs;
      const bool last = slab + 1 == slabs, last_of_all = last && round + 1 == kRounds;
      // The only slab of x1 is copied once.
      if (!last_of_all || tile + 1 < tiles) {
        copy(last_of_all ? 0 : round + last, last ? 0 : slab + 1, buffer ^ 1,
             int(tile + last_of_all) & 1, slabs > 1);
      }
      if (round > 0 && slab == 0) sums.take_largest();
      const T *from1 = slabs1 + (slabs > 1 ? buffer : 0) * kSlab1 + row,
              *from2 = slabs2 + buffer * kSlab2 + column;
      const long long left = parameters.k - (long long)slab * Step::kSlab;
#pragma unroll
      for (int k = 0; k < Step::kSlab; ++k) {
        if (k >= left) break;
        T a[kM], b[kN];
        load_runs<T, 8>(from1 + k * Step::kTileM, a);
        load_runs<T, 4>(from2 + k * Step::kTileN, b);
        sums.add(round, a, b, reciprocals + buffer * kVectors * Step::kSlab + k, place.h);
      }
    }
    T of[kM][kN];
    sums.apply(h, of);
    const T* const weights = of_v + (int(tile) & 1) * kOfV + warp_column;
    bool is_weighed = false;
    if constexpr (Lengths<Step>::kAreAll) {
      is_weighed = sums.has_unusual();
      if (is_weighed) {
        const T* const of_x2 = place.x2 + (first + tile) * slabs * kSlab2;
        const auto first_point = [&](int i, long long k) {
          return x1[k * Step::kTileM + row + product::place<T, 8>(i)];
        };
        const auto second_point = [&](int j, long long k) {
          return of_x2[k * Step::kTileN + column + product::place<T, 4>(j)];
        };
        sums.mend(place.h, of, parameters.k, first_point, second_point);
        weigh.add(of, weights);
      }
    }
    if (!is_weighed) weigh.add(of, weights);
    weigh.end_tile();
  }
  leave<Step>(weigh, place, shared);
}

}  // namespace kronop
