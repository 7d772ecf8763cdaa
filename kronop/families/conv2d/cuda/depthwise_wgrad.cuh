// Gradients of the filters of depthwise convolutions.
//
// A block adds up the products of the pixels that it walks over, for a chunk of filters and some of
// their rows, and leaves the sums in the workspace, a slice for each walker. A second launch adds
// the slices up, always in the same order.
#pragma once

#include "depthwise_tiles.cuh"

namespace kronop {
namespace conv2d {

// A is the gradient of the results, B the images.
template <class Step, class Parameters>
class DepthwiseWgrad : DepthwiseTiles<Step, Parameters> {
  using Base = DepthwiseTiles<Step, Parameters>;
  using typename Base::Across;
  using typename Base::Down;
  using typename Base::Input;
  using typename Base::Patch;
  using typename Base::Place;
  using typename Base::Row;
  using typename Base::Sum;
  using Base::kColumns, Base::kRead, Base::kRows, Base::kVector;
  using Base::lane_, Base::lanes_, Base::p_, Base::slot_, Base::slots_;
  static constexpr int kAcross = Step::kTaps[1], kTaps = Step::kTaps[0] * kAcross;
  // Of the launch that adds up slices: neighbouring results of a block, and threads of each.
  static constexpr int kRun = 8, kShares = Step::kThreads / kRun;

 public:
  KRONOP_INLINE explicit DepthwiseWgrad(const Parameters& parameters) : Base(parameters) {}

  KRONOP_INLINE void run() const {
    if (p_.product.adds_up) {
      add_up();
      return;
    }
    const long long chunk = blockIdx.x % p_.chunks, rest = blockIdx.x / p_.chunks;
    const long long part = rest % p_.parts, walker = rest / p_.parts;
    const long long first = chunk * lanes_ * kVector, filter = first + lane_ * kVector;
    Sum sums[Step::kTapRows][kAcross][kVector] = {};
    if (filter < p_.product.m && slot_ < slots_) add_tiles(filter, part, walker, sums);
    leave(first, part, walker, sums);
  }

 private:
  KRONOP_INLINE void add_tiles(long long filter, long long part, long long walker,
                               Sum (&sums)[Step::kTapRows][kAcross][kVector]) const {
    const Input* const gradients =
        static_cast<const Input*>(p_.product.a) + filter * p_.a_strides[3];
    const Input* const images =
        static_cast<const Input*>(p_.product.b) + Base::source_of(filter) * p_.b_strides[3];
    const int rows_before = int(part) * Step::kTapRows * Step::kDilations[0];
    Base::for_each_tile(walker, [&](long long tile) {
      const Place at(p_, tile);
      bool there[kRows][kColumns];
      Sum results[kRows][kColumns][kVector];
      read(gradients, at, there, results);
      const Patch patch(p_, at, images, p_.b_strides, rows_before);
#pragma unroll
      for (int y = 0; y < Down::kPixels; ++y) {
        Row row;
        patch.load(p_, p_.b_strides, y, row);
        Sum pixels[Across::kPixels][kRead];
        row.widen(pixels);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const int tap = Down::tap(i, y);
          if (tap >= 0) add_row(there[i], results[i], pixels, sums[tap]);
        }
      }
    });
  }

  KRONOP_INLINE void read(const Input* gradients, const Place& at, bool (&there)[kRows][kColumns],
                          Sum (&results)[kRows][kColumns][kVector]) const {
    const long long row = at.row * (long long)kRows, column = at.column * (long long)kColumns;
    const Input* const from =
        gradients + at.image * p_.a_strides[0] + row * p_.a_strides[1] + column * p_.a_strides[2];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        there[i][j] = row + i < p_.results[0] && column + j < p_.results[1];
        Vector<Input, Step::kResultWidth> runs[kVector / Step::kResultWidth];
        Base::load_channels(from + i * p_.a_strides[1] + j * p_.a_strides[2], p_.a_strides[3],
                            there[i][j], runs);
        Base::widen(runs, results[i][j]);
      }
    }
  }

  // A result that does not exist is left out: a pixel that is infinite would make a NaN of it.
  KRONOP_INLINE static void add_row(const bool (&there)[kColumns],
                                    const Sum (&results)[kColumns][kVector],
                                    const Sum (&pixels)[Across::kPixels][kRead],
                                    Sum (&sums)[kAcross][kVector]) {
#pragma unroll
    for (int x = 0; x < Across::kPixels; ++x) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int tap = Across::tap(j, x);
        if (tap < 0) continue;
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          if (there[j])
            sums[tap][v] =
                multiply_add(results[j][v], pixels[x][v * kRead / kVector], sums[tap][v]);
        }
      }
    }
  }

  // Adds up the sums of all slots through shared memory, one row of taps after the other.
  KRONOP_INLINE void leave(long long first, long long part, long long walker,
                           const Sum (&sums)[Step::kTapRows][kAcross][kVector]) const {
    Sum* const shared = reinterpret_cast<Sum*>(shared_memory());
#pragma unroll
    for (int row = 0; row < Step::kTapRows; ++row) {
      const int r = int(part) * Step::kTapRows + row;
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kAcross; ++s) {
#pragma unroll
        for (int v = 0; v < kVector; ++v)
          shared[(s * kVector + v) * Step::kThreads + threadIdx.x] = sums[row][s][v];
      }
      __syncthreads();
#pragma unroll 1
      for (int at = threadIdx.x; at < kAcross * kVector * lanes_; at += Step::kThreads) {
        const int line = at / lanes_, lane = at - line * lanes_;
        const long long filter = first + lane * kVector + line % kVector;
        if (filter >= p_.product.m || r >= Step::kTaps[0]) continue;
        const Sum* const from = shared + line * Step::kThreads + lane;
        Sum sum = Sum(0);
        for (int slot = 0; slot < slots_; ++slot) sum = sum + from[slot * lanes_];
        const long long tap = r * kAcross + line / kVector;
        slices()[(walker * kTaps + tap) * p_.product.m + filter] = sum;
      }
    }
  }

  // As [walker][tap][filter].
  KRONOP_INLINE Sum* slices() const { return static_cast<Sum*>(p_.product.partial); }

  // Each thread has the sum of every kShares-th slice.
  KRONOP_INLINE void add_up() const {
    const long long count = p_.product.m * kTaps,
                    result = (long long)blockIdx.x * kRun + threadIdx.x % kRun;
    Sum sum = Sum(0);
    if (result < count) {
#pragma unroll 8
      for (long long slice = threadIdx.x / kRun; slice < p_.product.slices; slice += kShares)
        sum = sum + slices()[slice * count + result];
    }
    Sum* const shared = reinterpret_cast<Sum*>(shared_memory());
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= kRun || result >= count) return;
#pragma unroll
    for (int share = 1; share < kShares; ++share) sum = sum + shared[share * kRun + threadIdx.x];
    const long long tap = result / p_.product.m;
    gemm::Results<Step, decltype(p_.product)> results(p_.product, 0);
    results.begin(result - tap * p_.product.m, p_.flipped ? kTaps - 1 - tap : tap);
    const Sum own[1][1] = {{sum}};
    results.store(0, 0, own);
  }
};

}  // namespace conv2d
}  // namespace kronop
