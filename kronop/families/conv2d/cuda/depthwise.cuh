// Depthwise convolutions by ordinary cores: fprop and dgrad, and wgrad.
//
// Memory limits them: a multiply-add is done for every byte or two. A thread has kVector channels
// of kRows x kColumns neighbouring results, so that a pixel of the source, once it is in registers,
// is used by all of these. A block has a chunk of channels, whose filters it keeps in shared
// memory, and walks over neighbouring tiles: rows that these have in common come from the cache.
#pragma once

#include "depthwise_wgrad.cuh"

namespace kronop {
namespace conv2d {

// Where a thread's channels of the results are, and what is added to them.
template <class Step, class Parameters>
class DepthwiseEnds {
  using Output = typename Step::Output;
  using Sum = typename Step::Accumulator;
  using Product = decltype(Parameters::product);
  static constexpr int kVector = Step::kVector, kMost = 16 / int(sizeof(Output)),
                       kWidth = kVector < kMost ? kVector : kMost;

 public:
  KRONOP_INLINE DepthwiseEnds(const Product& p, long long channel)
      : finish_(p), y_(static_cast<Output*>(p.y) + channel * p.y_column),
        z_(static_cast<const Output*>(p.z) + channel * p.z_column),
        whole_y_(p.y_column == 1 && aligned(y_, p.y_row)),
        whole_z_(p.z_column == 1 && aligned(z_, p.z_row)) {
    const auto* const bias = static_cast<const Output*>(p.bias);
#pragma unroll
    for (int v = 0; v < kVector; ++v)
      bias_[v] =
          bias ? bias[(channel + v) * p.bias_column] : convert<Output>(Finish<Step>::no_bias());
  }

  // Stores the results of a pixel, whose rows in the matrices begin so many elements behind their
  // first rows.
  template <bool kSource>
  KRONOP_INLINE void store(const Product& p, long long at_y, long long at_z,
                           const Sum (&sums)[kVector]) const {
    Output* const y = y_ + at_y;
    const Output* const z = z_ + at_z;
#pragma unroll
    for (int first = 0; first < kVector; first += kWidth) {
      Vector<Output, kWidth> values{};
      if (kSource && whole_z_) {
        values = load<Output, kWidth>(z + first);
      } else if (kSource) {
#pragma unroll
        for (int v = 0; v < kWidth; ++v) values.data[v] = z[(first + v) * p.z_column];
      }
#pragma unroll
      for (int v = 0; v < kWidth; ++v)
        values.data[v] = finish_(sums[first + v], values.data[v], bias_[first + v]);
      if (whole_y_) {
        store_whole<Output, kWidth>(y + first, values);
      } else {
#pragma unroll
        for (int v = 0; v < kWidth; ++v) y[(first + v) * p.y_column] = values.data[v];
      }
    }
  }

 private:
  // Whether all runs of kWidth elements are.
  KRONOP_INLINE static bool aligned(const Output* from, long long apart) {
    const auto bytes = (unsigned long long)from | (unsigned long long)apart * sizeof(Output);
    return bytes % (kWidth * sizeof(Output)) == 0;
  }

  const Finish<Step> finish_;
  Output* const y_;
  const Output* const z_;
  const bool whole_y_, whole_z_;
  Output bias_[kVector];
};

template <class Step, class Parameters>
class Depthwise : DepthwiseTiles<Step, Parameters> {
  using Base = DepthwiseTiles<Step, Parameters>;
  using Ends = DepthwiseEnds<Step, Parameters>;
  using typename Base::Across;
  using typename Base::Down;
  using typename Base::Input;
  using typename Base::Patch;
  using typename Base::Place;
  using typename Base::Row;
  using typename Base::Sum;
  using Base::kColumns, Base::kFilters, Base::kRead, Base::kRows, Base::kVector;
  using Base::lane_, Base::lanes_, Base::p_, Base::slot_, Base::slots_;
  static constexpr int kTaps = Step::kTaps[0] * Step::kTaps[1], kPitch = Step::kLanes * kFilters;
  // Rows of a patch whose code is unrolled.
  static constexpr int kUnrolled = Step::kUnrolled ? Down::kPixels : 1;

 public:
  KRONOP_INLINE explicit Depthwise(const Parameters& parameters) : Base(parameters) {}

  KRONOP_INLINE void run() const {
    const long long chunk = blockIdx.x % p_.chunks, first = chunk * lanes_ * kVector,
                    channel = first + lane_ * kVector;
    load_filters(first / kVector * kFilters);
    __syncthreads();
    if (channel >= p_.product.n || slot_ >= slots_) return;
    const Ends ends(p_.product, channel);
    const Input* const source =
        static_cast<const Input*>(p_.product.a) + Base::source_of(channel) * p_.a_strides[3];
    Base::for_each_tile(blockIdx.x / p_.chunks, [&](long long tile) {
      const Place at(p_, tile);
      Sum sums[kRows][kColumns][kVector] = {};
      add(Patch(p_, at, source, p_.a_strides, 0), sums);
      if (p_.product.z) {
        store<true>(ends, at, sums);
      } else {
        store<false>(ends, at, sums);
      }
    });
  }

 private:
  // As [tap][filter], in the type of sums.
  KRONOP_INLINE static Sum* filters() { return reinterpret_cast<Sum*>(shared_memory()); }

  KRONOP_INLINE void load_filters(long long first) const {
    const long long left =
        (Base::kSpread ? p_.product.n * Step::kMultiplier : p_.product.n) - first;
    const int most = lanes_ * kFilters, count = left < most ? int(left) : most;
    const Input* const from = static_cast<const Input*>(p_.product.b) + first * p_.b_strides[0];
    // Loads of so many rounds are in flight: filters of 3 x 3 take 9, or twice as many.
#pragma unroll 9
    for (int at = threadIdx.x; at < count * kTaps; at += Step::kThreads) {
      const int filter = at / kTaps, tap = at - filter * kTaps,
                own = p_.flipped ? kTaps - 1 - tap : tap;
      const int row = own / Step::kTaps[1], column = own - row * Step::kTaps[1];
      filters()[tap * kPitch + filter] = convert<Sum>(
          from[filter * p_.b_strides[0] + row * p_.b_strides[1] + column * p_.b_strides[2]]);
    }
  }

  KRONOP_INLINE void add(const Patch& patch, Sum (&sums)[kRows][kColumns][kVector]) const {
    const Sum* const own = filters() + lane_ * kFilters;
    // A row is on its way while the one before it is added.
    Row next;
    patch.load(p_, p_.a_strides, 0, next);
#pragma unroll kUnrolled
    for (int y = 0; y < Down::kPixels; ++y) {
      Sum pixels[Across::kPixels][kRead];
      next.widen(pixels);
      if (y + 1 < Down::kPixels) patch.load(p_, p_.a_strides, y + 1, next);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int tap = Down::tap(i, y);
        if (tap >= 0) add_row(own + tap * (Step::kTaps[1] * kPitch), pixels, sums[i]);
      }
    }
  }

  // Adds the products of a row of pixels and a row of taps. Filters are loaded where they are first
  // used, so that few of a long row are in registers at once.
  KRONOP_INLINE static void add_row(const Sum* taps, const Sum (&pixels)[Across::kPixels][kRead],
                                    Sum (&sums)[kColumns][kVector]) {
    Sum filter[Step::kTaps[1]][kFilters];
#pragma unroll
    for (int x = 0; x < Across::kPixels; ++x) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int tap = Across::tap(j, x);
        if (tap < 0) continue;
        if (Across::is_first(j)) load_filter(taps + tap * kPitch, filter[tap]);
#pragma unroll
        for (int f = 0; f < kFilters; ++f) {
          Sum& sum = sums[j][f * kVector / kFilters];
          sum = multiply_add(filter[tap][f], pixels[x][f * kRead / kFilters], sum);
        }
      }
    }
  }

  KRONOP_INLINE static void load_filter(const Sum* from, Sum (&to)[kFilters]) {
    constexpr int most = 16 / int(sizeof(Sum)), width = kFilters % most == 0 ? most
                                                        : kFilters % 2 == 0  ? 2
                                                                             : 1;
#pragma unroll
    for (int f = 0; f < kFilters; f += width) {
      const auto run = load<Sum, width>(from + f);
#pragma unroll
      for (int v = 0; v < width; ++v) to[f + v] = run.data[v];
    }
  }

  template <bool kSource>
  KRONOP_INLINE void store(const Ends& ends, const Place& at,
                           const Sum (&sums)[kRows][kColumns][kVector]) const {
    const int row = int(at.row) * kRows - int(p_.before[0]),
              column = int(at.column) * kColumns - int(p_.before[1]);
    const long long width = p_.results[1],
                    first = (at.image * p_.results[0] + row) * width + column;
    const auto& p = p_.product;
    // Sums that stay ones, as in `Patch`.
    const long long at_y = renewed(first * p.y_row), at_z = kSource ? renewed(first * p.z_row) : 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool is_row = unsigned(row + i) < unsigned(p_.results[0]);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (is_row && unsigned(column + j) < unsigned(width))
          ends.template store<kSource>(p, at_y + i * width * p.y_row + j * p.y_row,
                                       at_z + i * width * p.z_row + j * p.z_row, sums[i][j]);
      }
    }
  }
};

}  // namespace conv2d

template <class Step, class Parameters>
KRONOP_INLINE void depthwise(const Parameters& parameters) {
  if constexpr (conv2d::Kind(Step::kKind) == conv2d::Kind::Wgrad) {
    conv2d::DepthwiseWgrad<Step, Parameters>(parameters).run();
  } else {
    conv2d::Depthwise<Step, Parameters>(parameters).run();
  }
}

}  // namespace kronop
