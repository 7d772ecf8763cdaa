// What all kinds of depthwise convolutions share: their parameters, the tiles of their results, and
// which pixels a tile reads.
//
// A group has one channel and kMultiplier filters. What is read with a border of padding are the
// images, or, of dgrad, the results; it is called the source here.
#pragma once

#include "gemm_results.cuh"

namespace kronop {

// The numbers of tiles along both axes of an image.
struct alignas(8) TilesOfImage {
  gemm::Divisor down, across;
};

// The product's result is a matrix with a row for each pixel and a column for each channel; that of
// wgrad has a row for each filter and a column for each of its pixels (taps).
template <class Product>
struct DepthwiseParameters {
  Product product;
  long long a_strides[4], b_strides[4];  // in elements, channels last; of filters: K, R, S, C
  long long extents[2];                  // of an image of the source
  long long results[2];                  // of a tiled image: of the results, of dgrad the images
  long long before[2];                   // the first tile begins so many pixels before the image
  long long first[2];                    // the source's pixel where the first tile's patch begins
  long long tiles, each;                 // of all images; of a walker
  // Blocks: chunks of kVector channels for each of `lanes` threads; parts of the filters' rows.
  long long chunks, lanes, parts;
  long long flipped;
  TilesOfImage divisors;
};

namespace conv2d {

enum class Kind { Fprop, Dgrad, Wgrad };

// Results and pixels of the source along an axis of a tile. Each result takes kTaps pixels; if
// results are spread (dgrad), those for which a division by the stride leaves no remainder.
template <bool kSpread, int kTaps, int kStride, int kDilation, int kResults>
struct DepthwiseAxis {
  static_assert(!kSpread || kResults % kStride == 0);
  // Pixels of a patch before that of the first result's first tap.
  static constexpr int kBefore = kSpread ? ((kTaps - 1) * kDilation + kStride - 1) / kStride : 0;
  static constexpr int kPixels = kSpread ? kBefore + (kResults - 1) / kStride + 1
                                         : (kResults - 1) * kStride + (kTaps - 1) * kDilation + 1;
  // From the patch of a tile to that of the next one.
  static constexpr int kAdvance = kSpread ? kResults / kStride : kResults * kStride;

  // The tap by which a result takes a pixel; -1 if there is none.
  KRONOP_INLINE static constexpr int tap(int result, int pixel) {
    const int apart = kSpread ? result - (pixel - kBefore) * kStride : pixel - result * kStride;
    if (apart < 0 || apart % kDilation != 0 || apart / kDilation >= kTaps) return -1;
    return apart / kDilation;
  }
  // Whether it is the first result, in the order of pixels, that takes one by its tap.
  KRONOP_INLINE static constexpr bool is_first(int result) {
    return result < (kSpread ? kStride : 1);
  }
};

template <class Step, class Parameters>
class DepthwiseTiles {
 protected:
  using Input = typename Step::Input;
  using Sum = typename Step::Accumulator;
  static constexpr bool kSpread = Kind(Step::kKind) == Kind::Dgrad;
  static constexpr int kVector = Step::kVector, kMultiplier = Step::kMultiplier;
  // Channels of the source, and filters, that belong to a thread's channels of the result.
  static constexpr int kRead = kSpread                 ? kVector * kMultiplier
                               : kVector > kMultiplier ? kVector / kMultiplier
                                                       : 1,
                       kFilters = kSpread ? kRead : kVector;
  static_assert(kSpread || kVector % kMultiplier == 0 || kMultiplier % kVector == 0);
  static constexpr int kRows = Step::kRows, kColumns = Step::kColumns;
  using Down =
      DepthwiseAxis<kSpread, Step::kTapRows, Step::kStrides[0], Step::kDilations[0], kRows>;
  using Across =
      DepthwiseAxis<kSpread, Step::kTaps[1], Step::kStrides[1], Step::kDilations[1], kColumns>;

  KRONOP_INLINE explicit DepthwiseTiles(const Parameters& parameters)
      : p_(parameters), lanes_(int(p_.lanes)), slots_(Step::kThreads / lanes_),
        lane_(int(threadIdx.x) % lanes_), slot_(int(threadIdx.x) / lanes_) {}

  // Where a tile lies: its image, and its place among the tiles of the image.
  struct Place {
    unsigned image, row, column;
    KRONOP_INLINE Place(const Parameters& p, long long tile) {
      const unsigned line = p.divisors.across.quotient(unsigned(tile));
      image = p.divisors.down.quotient(line);
      row = line - image * p.divisors.down.divisor;
      column = unsigned(tile) - line * p.divisors.across.divisor;
    }
  };

  // A row of a patch, as it is in memory.
  struct Row {
    static_assert(kRead % Step::kReadWidth == 0);
    Vector<Input, Step::kReadWidth> runs[Across::kPixels][kRead / Step::kReadWidth];

    KRONOP_INLINE void widen(Sum (&pixels)[Across::kPixels][kRead]) const {
#pragma unroll
      for (int j = 0; j < Across::kPixels; ++j) DepthwiseTiles::widen(runs[j], pixels[j]);
    }
  };

  // The patch of the source that a tile reads.
  struct Patch {
    const Input* from;  // its first pixel, which need not exist
    int row, column;
    bool there[Across::kPixels];

    KRONOP_INLINE Patch(const Parameters& p, const Place& at, const Input* source,
                        const long long (&strides)[4], int rows_before)
        : row(int(p.first[0]) + int(at.row) * Down::kAdvance + rows_before),
          column(int(p.first[1]) + int(at.column) * Across::kAdvance) {
      // A sum that stays one: it would otherwise be made anew for each pixel.
      const long long offset =
          renewed(at.image * strides[0] + row * strides[1] + column * strides[2]);
      from = source + offset;
#pragma unroll
      for (int j = 0; j < Across::kPixels; ++j)
        there[j] = unsigned(column + j) < unsigned(p.extents[1]);
    }
    // Loads a row of pixels; those out of bounds are zeros.
    KRONOP_INLINE void load(const Parameters& p, const long long (&strides)[4], int i,
                            Row& pixels) const {
      const bool is_row = unsigned(row + i) < unsigned(p.extents[0]);
      const Input* const line = from + i * strides[1];
#pragma unroll
      for (int j = 0; j < Across::kPixels; ++j)
        load_channels(line + j * strides[2], strides[3], is_row && there[j], pixels.runs[j]);
    }
  };

  // Neighbours, or zeros if !there. As words they stay in the registers into which they are loaded:
  // compilers take apart what either is loaded or is 0, and wait for each load before the next one.
  template <int kWidth>
  KRONOP_INLINE static Vector<Input, kWidth> load_run(bool there, const Input* from) {
    constexpr int kBytes = kWidth * int(sizeof(Input));
    if constexpr (kBytes % 4 == 0) {
      using Words = Vector<unsigned, kBytes / 4>;
      Words words{};
      if (there) words = *reinterpret_cast<const Words*>(from);
      return __builtin_bit_cast(Vector<Input, kWidth>, words);
    } else {
      return load_if<Input, kWidth>(there, from);
    }
  }

  // Loads neighbouring channels, some at once, or zeros if !there.
  template <int kWidth, int kRuns>
  KRONOP_INLINE static void load_channels(const Input* from, long long apart, bool there,
                                          Vector<Input, kWidth> (&to)[kRuns]) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i)
      to[i] = load_run<kWidth>(there, from + (kWidth == 1 ? i * apart : i * kWidth));
  }

  template <int kWidth, int kRuns, int kCount>
  KRONOP_INLINE static void widen(const Vector<Input, kWidth> (&from)[kRuns], Sum (&to)[kCount]) {
    static_assert(kRuns * kWidth == kCount);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = convert<Sum>(from[i / kWidth].data[i % kWidth]);
  }

  // The first channel of the source that belongs to a channel of the result.
  KRONOP_INLINE static long long source_of(long long channel) {
    return kSpread ? channel * kMultiplier : channel / kMultiplier;
  }

  // Calls visit(tile) for the tiles of this thread.
  template <class Visit>
  KRONOP_INLINE void for_each_tile(long long walker, Visit visit) const {
    const long long start = walker * p_.each, left = p_.tiles - start;
    const long long end = start + (left < p_.each ? left : p_.each);
#pragma unroll 1
    for (long long tile = start + slot_; tile < end; tile += slots_) visit(tile);
  }

  const Parameters& p_;
  // Threads next to each other have neighbouring channels, those of different slots other tiles.
  const int lanes_, slots_, lane_, slot_;
};

}  // namespace conv2d
}  // namespace kronop
