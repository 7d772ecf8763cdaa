// Gradients of distances: the work of a block, and copies of parts of strided matrices to shared
// memory.
#pragma once

#include "gradient_terms.cuh"

namespace kronop {
namespace powers_of_distances {

// Copies kDepth x kExtent parts of a matrix to shared memory, one after the other along k.
template <class Step, int kExtent, int kPitch>
class Feed {
  using T = typename Step::T;
  using Input = typename Step::Input;
  static constexpr int kDepth = Step::kDepth, kThreads = Step::kThreads,
                       kItems = ceil_div(kDepth * kExtent, kThreads);
  // kAcross: elements of a thread along the extent; kDown: rows k that the threads cover at once.
  static constexpr int kAcross = kExtent > kThreads ? kExtent / kThreads : 1,
                       kDown = kExtent > kThreads ? 1 : kThreads / kExtent;
  static_assert(kThreads % kDepth == 0 && kExtent % (kThreads / kDepth) == 0 &&
                (kExtent % kThreads == 0 || kThreads % kExtent == 0));

 public:
  // `from`: start of the first part; `k_stride` and `stride`: strides along k and across.
  KRONOP_INLINE Feed(const Input* from, long long k_stride, long long stride, long long count) {
    const bool is_along_k = size(k_stride) < size(stride);
    const int thread = threadIdx.x;
    k_ = is_along_k ? thread % kDepth : thread / kExtent;
    x_ = is_along_k ? thread / kDepth : thread % kExtent;
    k_step_ = is_along_k ? 0 : kDown;
    x_step_ = is_along_k ? kThreads / kDepth : kAcross > 1 ? kThreads : 0;
    x_back_ = is_along_k || kAcross == 1 ? x_step_ : -(kAcross - 1) * kThreads;
    from_ = from + k_ * k_stride + x_ * stride;
    step_ = x_step_ * stride;
    turn_ = k_step_ * k_stride + x_back_ * stride;
    slab_step_ = kDepth * k_stride;
    count_ = int(count < kExtent ? count : kExtent);
  }

  // Starts to copy the next part, of which `depth` rows exist. The others become zeros.
  KRONOP_INLINE void begin(T* to, int depth) {
    if (depth == kDepth && count_ == kExtent) {
      begin_as<true>(to, depth);
    } else {
      begin_as<false>(to, depth);
    }
    from_ += slab_step_;
  }

  // Stores the elements that are in registers.
  KRONOP_INLINE void end(T* to) const {
    if constexpr (!Step::kCopies) {
      for_each([&](int k, int x, T value) { to[k * kPitch + x] = value; });
    }
  }

  // Calls visit(k, x, value) for the elements in registers.
  template <class Visit>
  KRONOP_INLINE void for_each(Visit visit) const {
    for_each_item([&](int i, int k, int x, const Input*) { visit(k, x, values_[i]); });
  }

 private:
  KRONOP_INLINE static long long size(long long stride) { return stride < 0 ? -stride : stride; }

  template <class Visit>
  KRONOP_INLINE void for_each_item(Visit visit) const {
    int k = k_, x = x_;
    const Input* from = from_;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (kDepth * kExtent % kThreads != 0 && (k >= kDepth || x >= kExtent)) break;
      visit(i, k, x, from);
      const bool turns = (i + 1) % kAcross == 0;
      k += turns ? k_step_ : 0;
      x += turns ? x_back_ : x_step_;
      from += turns ? turn_ : step_;
    }
  }

  template <bool kWhole>
  KRONOP_INLINE void begin_as(T* to, int depth) {
    for_each_item([&](int i, int k, int x, const Input* from) {
      const bool is_there = kWhole || (k < depth && x < count_);
      if constexpr (!Step::kCopies) {
        values_[i] = is_there ? convert<T>(*from) : T(0);
      } else if constexpr (kWhole) {
        copy_asynchronously<int(sizeof(T))>(to + k * kPitch + x, from);
      } else {
        copy_or_clear<int(sizeof(T))>(to + k * kPitch + x, from, is_there ? int(sizeof(T)) : 0);
      }
    });
  }

  const Input* from_;
  long long step_, turn_, slab_step_;
  int k_, x_, k_step_, x_step_, x_back_, count_;
  T values_[kItems];
};

// The work of a block: a problem of the batch, rows of c, and a tile.
template <class Step, class Parameters>
struct Place {
  long long problem, o, n, m;

  KRONOP_INLINE Place(long long item, const Parameters& p) {
    const long long tiles_m = ceil_div(p.m, Step::kTileM), tiles_n = ceil_div(p.n, Step::kTileN);
    m = split(item, tiles_m) * Step::kTileM;
    n = split(item, tiles_n) * Step::kTileN;
    o = split(item, ceil_div(p.o, Step::kOutputs)) * Step::kOutputs;
    problem = item;
  }
  KRONOP_INLINE static long long count(const Parameters& p) {
    long long items =
        ceil_div(p.m, Step::kTileM) * ceil_div(p.n, Step::kTileN) * ceil_div(p.o, Step::kOutputs);
#pragma unroll
    for (int d = 0; d < kBatchDims; ++d) items *= p.batch[d];
    return items;
  }
};

// Calls visit(n, m) for all pairs of a tile that exist; neighbouring threads get neighbours along
// the smaller stride.
template <class Step, class Visit>
KRONOP_INLINE void for_each_pair(long long rows, long long columns, long long row, long long column,
                                 Visit visit) {
  const bool is_along_n = (row < 0 ? -row : row) < (column < 0 ? -column : column);
#pragma unroll 4
  for (int i = threadIdx.x; i < Step::kTileN * Step::kTileM; i += Step::kThreads) {
    const int n = is_along_n ? i % Step::kTileN : i / Step::kTileM,
              m = is_along_n ? i / Step::kTileN : i % Step::kTileM;
    if (n < rows && m < columns) visit(n, m);
  }
}

}  // namespace powers_of_distances
}  // namespace kronop
