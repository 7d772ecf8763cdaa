// What all products of kernel matrices share: their parameters, the start of a block's problem,
// copies of operands, and storing sums.
#pragma once

#include "product_weigh.cuh"

namespace kronop {

// Operands are packed: see product_pack.cuh and, for `halves`, product_halves.cuh.
template <int kValues, int kVectors>
struct ProductParameters {
  void *x1, *x2, *v, *partial;
  void *halves1, *halves2, *norms1, *norms2;  // norms: squares of the lengths of centred points
  void* largest;             // [points][operand][kParts] norms; null: no halves are multiplied
  long long m, c, k, depth;  // depth: features with padding
  long long row_tiles, column_tiles, shares, chunks;  // chunks of kColumns columns of v
  long long batch[4], x1_batch[4], x2_batch[4], v_batch[4];
  long long
      points_batch[4];  // Problems with the same points share halves, norms and the largest ones.
  void *value[kValues], *vector[kVectors];  // A value that is null is in `number`.
  long long value_batch[4 * kValues], vector_batch[4 * kVectors], vector_column[kVectors];
  double number[kValues];
};

namespace product {

// The largest norms are found separately for so many parts.
inline constexpr int kParts = 64;

// The work of a block, and the start of its problem of the batch.
template <class Step, class Parameters>
struct Place {
  using T = typename Step::Accumulator;
  const Parameters& p;
  long long row_tile, chunk, share, problem, points;
  const T *x1, *x2, *v, *vector[Step::kVectors > 0 ? Step::kVectors : 1];
  T h[Step::kValues > 0 ? Step::kValues : 1];

  KRONOP_INLINE explicit Place(const Parameters& p) : p(p) {
    long long block = blockIdx.x;
    row_tile = split(block, p.row_tiles);
    share = split(block, p.shares);
    chunk = split(block, p.chunks);
    problem = block;
    points = 0;
    long long of_x1 = 0, of_x2 = 0, of_v = 0, of_value[Step::kValues > 0 ? Step::kValues : 1] = {},
              of_vector[Step::kVectors > 0 ? Step::kVectors : 1] = {};
    for_each_digit<4>(problem, p.batch, [&](int d, long long digit) {
      of_x1 += digit * p.x1_batch[d];
      of_x2 += digit * p.x2_batch[d];
      of_v += digit * p.v_batch[d];
      points += digit * p.points_batch[d];
#pragma unroll
      for (int i = 0; i < Step::kValues; ++i) of_value[i] += digit * p.value_batch[4 * i + d];
#pragma unroll
      for (int i = 0; i < Step::kVectors; ++i) of_vector[i] += digit * p.vector_batch[4 * i + d];
    });
    x1 = static_cast<const T*>(p.x1) + of_x1;
    x2 = static_cast<const T*>(p.x2) + of_x2;
    v = static_cast<const T*>(p.v) + of_v;
#pragma unroll
    for (int i = 0; i < Step::kValues; ++i)
      h[i] = p.value[i] ? static_cast<const T*>(p.value[i])[of_value[i]] : T(p.number[i]);
#pragma unroll
    for (int i = 0; i < Step::kVectors; ++i)
      vector[i] = static_cast<const T*>(p.vector[i]) + of_vector[i];
  }

  KRONOP_INLINE long long first_tile() const { return share * p.column_tiles / p.shares; }
  KRONOP_INLINE long long end_tile() const { return (share + 1) * p.column_tiles / p.shares; }
};

// Copies kCount numbers; each thread copies vectors of 16 bytes.
template <class Step, int kCount, class T>
KRONOP_INLINE void copy_all(T* to, const T* from) {
  constexpr int kRun = run_of<T>;
#pragma unroll
  for (int i = 0; i < kCount; i += Step::kThreads * kRun) {
    const int at = i + int(threadIdx.x) * kRun;
    if (kCount % (Step::kThreads * kRun) == 0 || at < kCount)
      copy_asynchronously<16>(to + at, from + at);
  }
}

// Adds up the totals of a block's threads in a fixed order, and stores them in the workspace.
template <class Step, class Weigh, class Parameters, class T>
KRONOP_INLINE void leave(Weigh& weigh, const Place<Step, Parameters>& place, T* shared) {
  const Parameters& p = place.p;
  constexpr int kParts = Weigh::kSums * Step::kWarpsN, kPart = Step::kTileM * Step::kColumns;
  const int warp = threadIdx.x / 32, first = warp / Step::kWarpsN * (8 * Step::kThreadM);
  __syncthreads();
  weigh.finish([&](int thread, int row, int column, T total) {
    shared[(warp % Step::kWarpsN * Weigh::kSums + thread) * kPart + (first + row) * Step::kColumns +
           column] = total;
  });
  __syncthreads();
  long long problems = 1;
#pragma unroll
  for (int d = 0; d < 4; ++d) problems *= p.batch[d];
  T* const to = static_cast<T*>(p.partial) + (place.share * problems + place.problem) * p.m * p.c;
  for (int item = threadIdx.x; item < kPart; item += Step::kThreads) {
    const long long row = place.row_tile * Step::kTileM + item / Step::kColumns,
                    column = place.chunk * Step::kColumns + item % Step::kColumns;
    T sum = shared[item];
#pragma unroll
    for (int part = 1; part < kParts; ++part) sum += shared[part * kPart + item];
    if (row < p.m && column < p.c) to[row * p.c + column] = sum;
  }
}

// The largest square of a length among the points of an operand (0 or 1), relative to their centre.
template <class Step, class Parameters>
KRONOP_INLINE float largest_norm(const Place<Step, Parameters>& place, int operand) {
  const float* from =
      static_cast<const float*>(place.p.largest) + (place.points * 2 + operand) * kParts;
  float most = 0;
  for (int i = 0; i < kParts; ++i) most = from[i] > most ? from[i] : most;
  return most;
}

// Whether squared distances are accurate enough for this kernel if they are computed from products
// of halves. Their errors are about 2^-22 times the sum of the largest squares of lengths: no value
// of the kernel may change much by that.
template <class Step, class Parameters>
KRONOP_INLINE bool is_expanded(const Place<Step, Parameters>& place) {
  using T = typename Step::Accumulator;
  if constexpr (!Step::kEither) {
    return false;
  } else {
    if (place.p.largest == nullptr) return false;
    constexpr float kError = 0x1p-22f, kChange = 2e-5f, kNothing = 1e-30f, kMost = 1e30f;
    const float most = largest_norm(place, 0) + largest_norm(place, 1), error = most * kError;
    typename Numbers<T>::type h[Step::kValues > 0 ? Step::kValues : 1];
#pragma unroll
    for (int i = 0; i < Step::kValues; ++i) h[i] = Numbers<T>::uniform(place.h[i]);
    const auto kernel = [&](float distance) {
      const typename Numbers<T>::type s[1] = {Numbers<T>::varying(distance)};
      return value_of(Step::Kernel::value(s, h));
    };
    const float first = kernel(0);
    bool accurate = most < kMost && most > 1 / kMost;
    float distance = 0;
#pragma unroll 1
    for (int i = 0; i < 12; ++i, distance = i == 1 ? most / 512 : 2 * distance) {
      const float value = kernel(distance),
                  bound = kChange * magnitude(value) + kNothing * magnitude(first);
      // NOTE: comparisons with NaN fail.
      accurate = accurate && magnitude(kernel(distance + error) - value) <= bound &&
                 magnitude(kernel(distance - error) - value) <= bound;
    }
    return accurate;
  }
}

}  // namespace product
}  // namespace kronop
