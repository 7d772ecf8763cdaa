// Gradients of distances by direct differences:
//
//     Y[o, n, m] = epilogue(sum over k of c[o, k] a[k, m] s(d[n, m] - b[n, k]), Z[o, n, m]).
//
// For a Relative power, differences are divided by largest[k, m] first.
//
// A block has kTileN x kTileM results for kOutputs rows of c. It iterates over k in slabs of
// kDepth, with a pipeline of kStages stages. A thread has kItemsN x kItemsM of the differences, and
// all kOutputs sums of each.
#pragma once

#include "gradient_feed.cuh"

namespace kronop {
namespace powers_of_distances {

// Constants that follow from the decisions. Rows in shared memory are padded by one vector, so that
// writing along k has few bank conflicts.
template <class Decided>
struct TileStep : Decided {
  using T = typename Decided::Accumulator;
  static constexpr Power kKind = Power(Decided::kPower);
  static constexpr int kItemsM = Decided::kTileM / Decided::kThreadsM,
                       kItemsN = Decided::kTileN * Decided::kThreadsM / Decided::kThreads;
  static constexpr int kPadding = 16 / int(sizeof(T));
  static constexpr int kPitchM = Decided::kTileM + kPadding, kPitchN = Decided::kTileN + kPadding;
  static constexpr bool kIsRelative = kKind == Power::Relative;
  static constexpr int kOfB = Decided::kDepth * kPitchM, kOfC = kOfB + Decided::kDepth * kPitchN,
                       kOfLargest = kOfC + Decided::kDepth * Decided::kOutputs;
  static constexpr int kSlab = kOfLargest + kIsRelative * Decided::kDepth * kPitchM;
  // Shared memory holds slabs, and later results to be stored.
  static constexpr int kShared = Decided::kStages * kSlab > (Decided::kTileN * kPitchM)
                                     ? Decided::kStages * kSlab
                                     : Decided::kTileN * kPitchM;
  // Elements that need no conversion are copied to shared memory without registers.
  static constexpr bool kCopies = detail::same<T, typename Decided::Input>;
  // Signs of float32 are computed as saturated multiply-adds, which do not propagate NaN.
  static constexpr bool kSaturates = kKind == Power::One && detail::same<T, float>;
};

// Which rows of b have elements that are NaN, infinity and -infinity: signs of differences from
// them are NaN too, if d is NaN or the same infinity.
template <class Step>
struct Unordered {
  unsigned char has[3][Step::kTileN];

  KRONOP_INLINE void clear() {
    for (int i = threadIdx.x; i < 3 * Step::kTileN; i += Step::kThreads) has[0][i] = 0;
  }

  // Checks a slab of b; rows out of bounds are zeros.
  KRONOP_INLINE void look(const float* slab) {
    constexpr int kItems = ceil_div(Step::kDepth * Step::kTileN, Step::kThreads);
    float zero = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) zero = multiply_add(value_at(slab, i), 0.0f, zero);
    if (zero == 0) return;
    for (int i = 0; i < kItems; ++i) {
      const float value = value_at(slab, i);
      const int n = (threadIdx.x + i * Step::kThreads) % Step::kTileN;
      if (value != value) {
        has[0][n] = 1;
      } else if (value - value != 0) {
        has[value > 0 ? 1 : 2][n] = 1;
      }
    }
  }
  KRONOP_INLINE bool meets(int n, float d) const {
    if (d != d || has[0][n]) return true;
    return d - d != 0 && has[d > 0 ? 1 : 2][n];
  }

 private:
  KRONOP_INLINE static float value_at(const float* slab, int i) {
    const int at = threadIdx.x + i * Step::kThreads;
    return at < Step::kDepth * Step::kTileN
               ? slab[at / Step::kTileN * Step::kPitchN + at % Step::kTileN]
               : 0;
  }
};

// The sums of one thread.
template <class Step>
struct Sums {
  using T = typename Step::T;
  static constexpr int kItemsN = Step::kItemsN, kItemsM = Step::kItemsM, kOutputs = Step::kOutputs;
  T d[kItemsN][kItemsM];
  T sum[kOutputs][kItemsN][kItemsM];
  T whole[kItemsM];  // Sums of a c alone, which signs need.

  // Adds one index k.
  KRONOP_INLINE void add(const T* a_row, const T* b_row, const T* c_row, const T* largest_row,
                         T less) {
    T a[kItemsM], b[kItemsN], c[kOutputs], reciprocal[kItemsM];
    if constexpr (Step::kIsRelative) {
      read<kItemsM>(reciprocal, largest_row);
#pragma unroll
      for (int i = 0; i < kItemsM; ++i)
        reciprocal[i] = distance::reciprocal_of_largest(reciprocal[i]);
    }
    read<kItemsM>(a, a_row);
    read<kItemsN>(b, b_row);
    read<kOutputs>(c, c_row);
    if constexpr (kOutputs == 1) {
#pragma unroll
      for (int i = 0; i < kItemsM; ++i) a[i] *= c[0];
    }
    if constexpr (Step::kSaturates) {
#pragma unroll
      for (int i = 0; i < kItemsM; ++i) {
        if constexpr (kOutputs == 1) whole[i] += a[i];
        a[i] *= 2;
      }
    }
#pragma unroll
    for (int j = 0; j < kItemsN; ++j) {
#pragma unroll
      for (int i = 0; i < kItemsM; ++i) {
        T t = d[j][i] - b[j];
        if constexpr (Step::kIsRelative) t *= reciprocal[i];
        add_one(j, i, t, a[i], c, less);
      }
    }
  }

  KRONOP_INLINE void add_one(int j, int i, T t, T a, const T (&c)[kOutputs], T less) {
    if constexpr (Step::kSaturates) {
      // 1 for positive t, 0 for negative ones, and 1/2 for 0.
      const T side = multiply_add_saturated(t, T(0x1p127f), T(0.5f));
      if constexpr (kOutputs == 1) {
        sum[0][j][i] = multiply_add(a, side, sum[0][j][i]);
      } else {
        add_products(j, i, multiply_add(a, side, T(-0.5f) * a), c);
      }
    } else if constexpr (kOutputs == 1) {
      sum[0][j][i] = multiply_add(a, slope<Step::kKind>(t, less), sum[0][j][i]);
    } else {
      add_products(j, i, a * slope<Step::kKind>(t, less), c);
    }
  }
  KRONOP_INLINE void add_products(int j, int i, T product, const T (&c)[kOutputs]) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) sum[o][j][i] = multiply_add(c[o], product, sum[o][j][i]);
  }

  template <int kCount>
  KRONOP_INLINE static void read(T (&to)[kCount], const T* from) {
    constexpr int kVector = kCount * int(sizeof(T)) < 16 ? kCount : 16 / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < kCount; i += kVector) {
      const Vector<T, kVector> values = load<T, kVector>(from + i);
#pragma unroll
      for (int v = 0; v < kVector; ++v) to[i + v] = values.data[v];
    }
  }
  template <int kCount>
  KRONOP_INLINE static void write(T* to, const T (&from)[kCount]) {
    constexpr int kVector = kCount * int(sizeof(T)) < 16 ? kCount : 16 / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < kCount; i += kVector) {
      Vector<T, kVector> values;
#pragma unroll
      for (int v = 0; v < kVector; ++v) values.data[v] = from[i + v];
      store<T, kVector>(to + i, values);
    }
  }
};

template <class Step, class Parameters>
class Block {
  using T = typename Step::T;
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  static constexpr int kDepth = Step::kDepth, kOutputs = Step::kOutputs, kItemsN = Step::kItemsN,
                       kItemsM = Step::kItemsM;

 public:
  KRONOP_INLINE Block(const Parameters& parameters, const Place<Step, Parameters>& place)
      : p(parameters), at_(place), rows_(p.n - place.n), columns_(p.m - place.m),
        shared_(reinterpret_cast<T*>(shared_memory())),
        unordered_(*reinterpret_cast<Unordered<Step>*>(shared_ + Step::kShared)) {
    const int thread = threadIdx.x;
    m_ = thread % Step::kThreadsM * kItemsM;
    n_ = thread / Step::kThreadsM * kItemsN;
  }

  KRONOP_INLINE void run() {
    take_points();
    add_all();
    __syncthreads();
    if constexpr (Step::kSaturates) settle_signs();
    const Finish<Step> finish(p);
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      if (at_.o + o < p.o) store_output(o, finish);
    }
  }

 private:
  KRONOP_INLINE const Input* input(const void* of, const long long (&strides)[kBatchDims]) const {
    return static_cast<const Input*>(of) + offset_of(at_.problem, p.batch, strides);
  }

  KRONOP_INLINE void take_points() {
    const Input* d = input(p.d, p.d_batch) + at_.n * p.d_row + at_.m * p.d_column;
    for_each_pair<Step>(rows_, columns_, p.d_row, p.d_column, [&](int n, int m) {
      shared_[n * Step::kPitchM + m] = convert<T>(d[n * p.d_row + m * p.d_column]);
    });
    if constexpr (Step::kSaturates) unordered_.clear();
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kItemsN; ++j) {
      sums_.template read<kItemsM>(sums_.d[j], shared_ + (n_ + j) * Step::kPitchM + m_);
#pragma unroll
      for (int i = 0; i < kItemsM; ++i) {
        sums_.whole[i] = T(0);
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) sums_.sum[o][j][i] = T(0);
      }
    }
    __syncthreads();
  }

  KRONOP_INLINE void add_all() {
    Feed<Step, Step::kTileM, Step::kPitchM> a(input(p.a, p.a_batch) + at_.m * p.a_column, p.a_row,
                                              p.a_column, columns_);
    Feed<Step, Step::kTileN, Step::kPitchN> b(input(p.b, p.b_batch) + at_.n * p.b_row, p.b_column,
                                              p.b_row, rows_);
    Feed<Step, Step::kTileM, Step::kPitchM> largest(
        Step::kIsRelative ? input(p.largest, p.largest_batch) + at_.m * p.largest_column : nullptr,
        p.largest_row, p.largest_column, columns_);
    static_assert(kDepth * kOutputs <= Step::kThreads);
    const int thread = threadIdx.x, c_k = thread % kDepth, c_o = thread / kDepth;
    const bool has_c = c_o < kOutputs && at_.o + c_o < p.o;
    const Input* c =
        p.c && has_c ? input(p.c, p.c_batch) + (at_.o + c_o) * p.c_row + c_k * p.c_column : nullptr;
    T c_value = has_c ? T(1) : T(0);
    T less = T(p.number) - T(1);
    if (p.power)
      less = static_cast<const T*>(p.power)[offset_of(at_.problem, p.batch, p.power_batch)] - T(1);

    const auto begin = [&](long long k, int stage) {
      T* const slab = shared_ + stage * Step::kSlab;
      const int depth = int(p.k - k < kDepth ? p.k - k : kDepth);
      a.begin(slab, depth);
      b.begin(slab + Step::kOfB, depth);
      if constexpr (Step::kIsRelative) largest.begin(slab + Step::kOfLargest, depth);
      if (c && c_k < depth) c_value = convert<T>(c[k * p.c_column]);
    };
    const auto end = [&](int stage) {
      T* const slab = shared_ + stage * Step::kSlab;
      a.end(slab);
      b.end(slab + Step::kOfB);
      if constexpr (Step::kIsRelative) largest.end(slab + Step::kOfLargest);
      if (c_o < kOutputs) slab[Step::kOfC + c_k * kOutputs + c_o] = c_value;
    };
    constexpr int kAhead = Step::kStages - 1;
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) {
      if (stage * kDepth < p.k) {
        begin(stage * kDepth, stage);
        end(stage);
      }
      commit_copies();
    }
    int stage = 0;
    for (long long k = 0; k < p.k; k += kDepth) {
      wait_for_older_copies<kAhead - 1>();
      __syncthreads();
      const int last = stage == 0 ? kAhead : stage - 1;
      const bool is_more = k + kAhead * kDepth < p.k;
      if (is_more) begin(k + kAhead * kDepth, last);
      commit_copies();
      const T* const slab = shared_ + stage * Step::kSlab;
      if constexpr (Step::kSaturates) unordered_.look(slab + Step::kOfB);
      const int depth = int(p.k - k < kDepth ? p.k - k : kDepth);
#pragma unroll 4
      for (int i = 0; i < depth; ++i) {
        const T* const row = slab + i * Step::kPitchM + m_;
        sums_.add(row, slab + Step::kOfB + i * Step::kPitchN + n_, slab + Step::kOfC + i * kOutputs,
                  row + Step::kOfLargest, less);
      }
      if (is_more) end(last);
      stage = stage == kAhead ? 0 : stage + 1;
    }
  }

  KRONOP_INLINE void settle_signs() {
#pragma unroll
    for (int j = 0; j < kItemsN; ++j) {
#pragma unroll
      for (int i = 0; i < kItemsM; ++i) {
        const bool is_nan = unordered_.meets(n_ + j, sums_.d[j][i]);
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) {
          if constexpr (kOutputs == 1) sums_.sum[o][j][i] -= sums_.whole[i];
          if (is_nan) sums_.sum[o][j][i] = detail::bits_to_float(0x7fc00000u);
        }
      }
    }
  }

  // Results are exchanged through shared memory, so that stores are coalesced whatever the strides.
  KRONOP_INLINE void store_output(int o, const Finish<Step>& finish) {
#pragma unroll
    for (int j = 0; j < kItemsN; ++j)
      sums_.template write<kItemsM>(shared_ + (n_ + j) * Step::kPitchM + m_, sums_.sum[o][j]);
    __syncthreads();
    Output* const y = static_cast<Output*>(p.y) + offset_of(at_.problem, p.batch, p.y_batch) +
                      (at_.o + o) * p.y_output + at_.n * p.y_row + at_.m * p.y_column;
    if (p.z) {
      const Output* const z = static_cast<const Output*>(p.z) +
                              offset_of(at_.problem, p.batch, p.z_batch) +
                              (at_.o + o) * p.z_output + at_.n * p.z_row + at_.m * p.z_column;
      for_each_pair<Step>(rows_, columns_, p.y_row, p.y_column, [&](int n, int m) {
        y[n * p.y_row + m * p.y_column] =
            finish(shared_[n * Step::kPitchM + m], z[n * p.z_row + m * p.z_column]);
      });
    } else {
      for_each_pair<Step>(rows_, columns_, p.y_row, p.y_column, [&](int n, int m) {
        y[n * p.y_row + m * p.y_column] = finish(shared_[n * Step::kPitchM + m], Output{});
      });
    }
    __syncthreads();
  }

  const Parameters& p;
  const Place<Step, Parameters> at_;
  const long long rows_, columns_;
  T* const shared_;
  Unordered<Step>& unordered_;
  int m_, n_;
  Sums<Step> sums_;
};

}  // namespace powers_of_distances

template <class Decided, class Parameters>
KRONOP_INLINE void gradient_tile(const Parameters& parameters) {
  using Step = powers_of_distances::TileStep<Decided>;
  using Place = powers_of_distances::Place<Step, Parameters>;
  const long long items = Place::count(parameters);
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    powers_of_distances::Block<Step, Parameters>(parameters, Place(item, parameters)).run();
  }
}

}  // namespace kronop
