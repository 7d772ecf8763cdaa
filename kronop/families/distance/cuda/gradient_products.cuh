// Gradients of squared distances, expanded to matrix products on tensor cores:
//
//     sum over k of c[o, k] a[k, m] (d[n, m] - b[n, k]) = d'[n, m] S[o, m] - P[o, n, m],
//     S[o, m] = sum over k of c[o, k] a[k, m], P[o, n, m] = sum over k of c[o, k] b'[n, k] a[k, m],
//
// where b[n, 0] is subtracted in d' and b', so that errors are relative to differences in the data,
// not to their distance from the origin. Float32 operands are split into two TF32 numbers each.
//
// A block has two warp groups of 64 rows n each, times 64 columns m, for kOutputs rows of c. The
// left operand is in registers, the right one in shared memory.
#pragma once

#include "gradient_feed.cuh"
#include "kronop/warp_group_mma.cuh"

namespace kronop {
namespace powers_of_distances {

template <class Decided>
struct ProductStep : Decided {
  using T = float;
  static constexpr int kTileN = 128, kTileM = 64, kProductN = 64, kPitchM = kTileM + 4;
  // The pitch of rows of b: a quarter of a warp accesses different banks.
  static constexpr int kPitchB = Decided::kDepth + 8;
  static constexpr int kOfRest = Decided::kDepth * kTileM, kOfB = 2 * kOfRest,
                       kOfC = kOfB + kTileN * kPitchB;
  static constexpr int kSlab = kOfC + Decided::kOutputs * Decided::kDepth;
  static constexpr int kItems = kTileM / 2;
  static constexpr bool kCopies = false;
  static_assert(Decided::kThreads == 256 && Decided::kOutputs <= 4 && Decided::kDepth % 8 == 0 &&
                2 * kSlab >= kTileN * kPitchM);
};

// The position of index k of 8 in an MMA: a thread holds two neighbouring indices, which the tensor
// cores treat as indices that are 4 apart.
KRONOP_INLINE constexpr int place_of_k(int k) { return k / 8 * 8 + k % 8 / 2 + k % 2 * 4; }

template <class Step, class Parameters>
class ProductBlock {
  static constexpr int kDepth = Step::kDepth, kOutputs = Step::kOutputs, kItems = Step::kItems,
                       kThreads = Step::kThreads;
  using Input = typename Step::Input;
  using Output = typename Step::Output;

 public:
  KRONOP_INLINE ProductBlock(const Parameters& parameters, const Place<Step, Parameters>& place)
      : p(parameters), at_(place), rows_(p.n - place.n), columns_(p.m - place.m),
        shared_(reinterpret_cast<float*>(shared_memory())), sums_(shared_ + 2 * Step::kSlab),
        whole_(sums_ + kOutputs * kItems * kThreads), centre_(whole_ + kOutputs * Step::kTileM) {
    const int thread = threadIdx.x, lane = thread % 32;
    quad_ = lane / 4;
    in_quad_ = lane % 4;
    row_ = thread / 32 * 16 + quad_;
  }

  KRONOP_INLINE void run() {
    const int thread = threadIdx.x;
    const Input* const b = input(p.b, p.b_batch) + at_.n * p.b_row;
    if (thread < Step::kTileN)
      centre_[thread] = p.k > 0 && thread < rows_ ? b[thread * p.b_row] : 0.0f;
#pragma unroll
    for (int i = 0; i < kOutputs * kItems; ++i) sums_[i * kThreads + thread] = 0;
    __syncthreads();
    add_all(b);
    if (thread < kOutputs * Step::kTileM) whole_[thread] = whole_sum_;
    const Finish<Step> finish(p);
    for (int o = 0; o < kOutputs; ++o) {
      if (at_.o + o < p.o) store_output(o, finish);
    }
  }

 private:
  KRONOP_INLINE const Input* input(const void* of, const long long (&strides)[kBatchDims]) const {
    return static_cast<const Input*>(of) + offset_of(at_.problem, p.batch, strides);
  }

  KRONOP_INLINE void add_all(const Input* from_b) {
    Feed<Step, Step::kTileM, 0> a(input(p.a, p.a_batch) + at_.m * p.a_column, p.a_row, p.a_column,
                                  columns_);
    Feed<Step, Step::kTileN, 0> b(from_b, p.b_column, p.b_row, rows_);
    const int thread = threadIdx.x, c_k = thread % kDepth, c_o = thread / kDepth;
    const bool has_c = c_o < kOutputs && at_.o + c_o < p.o;
    const Input* const c =
        p.c && has_c ? input(p.c, p.c_batch) + (at_.o + c_o) * p.c_row + c_k * p.c_column : nullptr;
    float c_value = has_c ? 1.0f : 0.0f;
    const auto begin = [&](long long k) {
      const int depth = int(p.k - k < kDepth ? p.k - k : kDepth);
      a.begin(nullptr, depth);
      b.begin(nullptr, depth);
      if (c && c_k < depth) c_value = c[k * p.c_column];
    };
    const auto end = [&](float* slab) {
      a.for_each([&](int k, int m, float value) {
        const unsigned place = place_in_cores(place_of_k(k), m, Step::kTileM);
        const float rounded = round_to_tf32(value);
        slab[place] = rounded;
        slab[Step::kOfRest + place] = value - rounded;
      });
      b.for_each([&](int k, int n, float value) {
        slab[Step::kOfB + n * Step::kPitchB + k] = value - centre_[n];
      });
      if (c_o < kOutputs) slab[Step::kOfC + c_o * kDepth + c_k] = c_value;
      publish_to_warp_group_products();
    };
    begin(0);
    end(shared_);
    __syncthreads();
    int slab = 0, since = 0;
    float sums[kOutputs][Step::kTileM / 8][4];
    for (long long k = 0; k < p.k; k += kDepth) {
      const bool is_last = k + kDepth >= p.k;
      if (!is_last) begin(k + kDepth);
      const float* const from = shared_ + slab * Step::kSlab;
#pragma unroll
      for (int i = 0; i < kDepth; i += 8) add_products(sums, from, i, since > 0 || i > 0);
      add_whole(from);
      // NOTE: tensor cores truncate instead of rounding, so long sums are accumulated here.
      if (++since == Step::kTogether || is_last) {
        keep(sums);
        since = 0;
      }
      slab ^= 1;
      if (!is_last) end(shared_ + slab * Step::kSlab);
      __syncthreads();
    }
  }

  KRONOP_INLINE void add_products(float (&sums)[kOutputs][Step::kTileM / 8][4], const float* slab,
                                  int k, bool more) const {
    Split<float, 4, true> left[kOutputs];
    const float* const b = slab + Step::kOfB + row_ * Step::kPitchB + k + 2 * in_quad_;
    const Vector<float, 2> upper = load<float, 2>(b), lower = load<float, 2>(b + 8 * Step::kPitchB);
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const Vector<float, 2> c = load<float, 2>(slab + Step::kOfC + o * kDepth + k + 2 * in_quad_);
      const float products[4] = {upper.data[0] * c.data[0], lower.data[0] * c.data[0],
                                 upper.data[1] * c.data[1], lower.data[1] * c.data[1]};
      left[o] = Split<float, 4, true>(products);
    }
    const float* const value = slab + k * Step::kTileM;
    begin_warp_group_products();
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      warp_group_multiply_add(sums[o], left[o].rest, value, Step::kTileM, more);
      warp_group_multiply_add(sums[o], left[o].value, value + Step::kOfRest, Step::kTileM, true);
      warp_group_multiply_add(sums[o], left[o].value, value, Step::kTileM, true);
    }
    commit_warp_group_products();
    wait_for_warp_group_products();
  }

  // Adds to this thread's sum of c a, for a row of c and a column m.
  KRONOP_INLINE void add_whole(const float* slab) {
    const int m = threadIdx.x % Step::kTileM, o = threadIdx.x / Step::kTileM;
    if (o >= kOutputs) return;
    const float* const c = slab + Step::kOfC + o * kDepth;
#pragma unroll
    for (int k = 0; k < kDepth; k += 4) {
      const unsigned place = place_in_cores(k, m, Step::kTileM);
      const Vector<float, 4> value = load<float, 4>(slab + place),
                             rest = load<float, 4>(slab + Step::kOfRest + place);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        whole_sum_ = multiply_add(c[k / 8 * 8 + 2 * i + k % 8 / 4], value.data[i] + rest.data[i],
                                  whole_sum_);
    }
  }

  KRONOP_INLINE void keep(const float (&sums)[kOutputs][Step::kTileM / 8][4]) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        sums_[(o * kItems + i) * kThreads + threadIdx.x] += sums[o][i / 4][i % 4];
    }
  }

  KRONOP_INLINE void store_output(int o, const Finish<Step>& finish) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int n = row_ + i % 4 / 2 * 8, m = i / 4 * 8 + 2 * in_quad_ + i % 2;
      shared_[n * Step::kPitchM + m] = sums_[(o * kItems + i) * kThreads + threadIdx.x];
    }
    __syncthreads();
    const Input* const d = input(p.d, p.d_batch) + at_.n * p.d_row + at_.m * p.d_column;
    Output* const y = static_cast<Output*>(p.y) + offset_of(at_.problem, p.batch, p.y_batch) +
                      (at_.o + o) * p.y_output + at_.n * p.y_row + at_.m * p.y_column;
    const Output* const z =
        p.z ? static_cast<const Output*>(p.z) + offset_of(at_.problem, p.batch, p.z_batch) +
                  (at_.o + o) * p.z_output + at_.n * p.z_row + at_.m * p.z_column
            : nullptr;
    for_each_pair<Step>(rows_, columns_, p.y_row, p.y_column, [&](int n, int m) {
      const float from = d[n * p.d_row + m * p.d_column] - centre_[n];
      const float value =
          multiply_add(from, whole_[o * Step::kTileM + m], -shared_[n * Step::kPitchM + m]);
      y[n * p.y_row + m * p.y_column] =
          finish(value, z ? z[n * p.z_row + m * p.z_column] : Output{});
    });
    __syncthreads();
  }

  const Parameters& p;
  const Place<Step, Parameters> at_;
  const long long rows_, columns_;
  // Slabs, later results; sums; sums of c a; what is subtracted from b and d.
  float *const shared_, *const sums_, *const whole_, *const centre_;
  int row_, quad_, in_quad_;
  float whole_sum_ = 0;
};

}  // namespace powers_of_distances

template <class Decided, class Parameters>
KRONOP_INLINE void gradient_products(const Parameters& parameters) {
  using Step = powers_of_distances::ProductStep<Decided>;
  using Place = powers_of_distances::Place<Step, Parameters>;
  const long long items = Place::count(parameters);
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    powers_of_distances::ProductBlock<Step, Parameters>(parameters, Place(item, parameters)).run();
  }
}

}  // namespace kronop
