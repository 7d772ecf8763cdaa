// Folds the columns of a dgrad into images. A row of columns has, for a pixel of the results, what
// that pixel adds to all pixels of an image that a filter covers: a line of taps, of all channels,
// after the other, each filled up to whole pieces of 16 bytes. A pixel of an image is the sum over
// the taps that meet it, always in the same order: of lines first, then along a line.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

// Arrays have a value for each axis, down and along an image. Pixels, results and tiles are counted
// in 32 bits: divisions of 64 bits are slow, and take many registers.
template <class Scalar, int kScalars>
struct Conv2dFoldParameters {
  void* columns;
  void* y;
  void* z;     // null if there is no source
  void* bias;  // null if there is none
  long long images, channels;
  long long pixels[2], results[2], taps[2];
  long long pad[2], stride[2], apart[2];
  // From one tap that meets a pixel to the next, and from its result back to the next one's.
  long long step[2], back[2];
  long long pitch;          // from line to line of taps
  long long across, tiles;  // Pixels of a tile, which is a part of a line, and tiles of a line.
  long long y_row, y_column, z_row, z_column, bias_column;
  Scalar scalars[kScalars];
};

// A tap, and the result for which it meets a pixel.
struct MeetingTap {
  int tap, result;
};

class FoldedAxis {
 public:
  template <class Parameters>
  KRONOP_INLINE FoldedAxis(const Parameters& p, int axis)
      : results_(int(p.results[axis])), taps_(int(p.taps[axis])), pad_(int(p.pad[axis])),
        stride_(unsigned(p.stride[axis])), apart_(int(p.apart[axis])), step_(int(p.step[axis])),
        back_(int(p.back[axis])) {}

  // The first tap that meets a pixel, if there is one, for a result that may be beyond the last.
  KRONOP_INLINE MeetingTap first(int pixel) const {
    int tap = 0, at = pixel + pad_, result = int(unsigned(at) / stride_);
    while (result * int(stride_) != at) {
      ++tap;
      at -= apart_;
      if (tap >= taps_ || at < 0) return {taps_, 0};
      result = int(unsigned(at) / stride_);
    }
    return {tap, result};
  }

  KRONOP_INLINE MeetingTap next(MeetingTap at) const { return {at.tap + step_, at.result - back_}; }

  KRONOP_INLINE bool has(MeetingTap at) const { return at.tap < taps_ && at.result >= 0; }

  // The results whose filters meet pixels from `pixel` on, and before it.
  KRONOP_INLINE int first_result(int pixel) const {
    return covering(math::max(0, pixel + pad_ - (taps_ - 1) * apart_));
  }
  KRONOP_INLINE int end_of_results(int pixel) const {
    return math::min(results_, covering(pixel + pad_));
  }

  KRONOP_INLINE int results() const { return results_; }

 private:
  KRONOP_INLINE int covering(int pixels) const {
    return int((unsigned(pixels) + stride_ - 1) / stride_);
  }

  const int results_, taps_, pad_;
  const unsigned stride_;
  const int apart_, step_, back_;
};

// A block adds up the lines that meet a part of a line of an image, in shared memory, and then
// what of them meets each pixel.
template <class Step, class Parameters>
KRONOP_INLINE void conv2d_fold(const Parameters& p) {
  using Output = typename Step::Output;
  using Sum = typename Step::Accumulator;
  constexpr int run = 16 / int(sizeof(Sum));
  auto* const line = reinterpret_cast<Sum*>(shared_memory());
  const FoldedAxis down(p, 0), along(p, 1);
  const Finish<Step> finish(p);
  const unsigned channels = unsigned(p.channels), pieces = unsigned(p.pitch) / run,
                 tiles = unsigned(p.tiles), height = unsigned(p.pixels[0]),
                 count = unsigned(p.images) * height * tiles;
  const int pitch = int(p.pitch), width = int(p.pixels[1]), across = int(p.across);
  const long long row = p.taps[0] * p.pitch;  // from result to result
  // From one tap that meets a line to the next.
  const long long further = p.step[0] * p.pitch - p.back[0] * p.results[1] * row;
#pragma unroll 1
  for (unsigned tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const unsigned line_of_all = tile / tiles, image = line_of_all / height;
    const int h = int(line_of_all - image * height), w = int(tile - line_of_all * tiles) * across,
              pixels = math::min(across, width - w), begin = along.first_result(w),
              end = along.end_of_results(w + pixels);
    MeetingTap top = down.first(h);
    while (top.result >= down.results() && down.has(top)) top = down.next(top);
    int lines = 0;
    for (MeetingTap tap = top; down.has(tap); tap = down.next(tap)) ++lines;
    const Sum* const from = static_cast<const Sum*>(p.columns) +
                            ((image * p.results[0] + top.result) * p.results[1] + begin) * row +
                            top.tap * p.pitch;
#pragma unroll 1
    for (int at = int(threadIdx.x); at < (end - begin) * int(pieces); at += Step::kThreads) {
      const unsigned result = unsigned(at) / pieces;
      const Sum* const place = from + result * row + (unsigned(at) - result * pieces) * run;
      Vector<Sum, run> sums{};
#pragma unroll 4
      for (int i = 0; i < lines; ++i) {
        const Vector<Sum, run> own = load<Sum, run>(place + i * further);
#pragma unroll
        for (int j = 0; j < run; ++j) sums.data[j] = sums.data[j] + own.data[j];
      }
      store(line + at * run, sums);
    }
    __syncthreads();
    const long long first = line_of_all * p.pixels[1] + w;
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < unsigned(pixels) * channels; at += Step::kThreads) {
      const unsigned pixel = at / channels, channel = at - pixel * channels;
      Sum sum{};
#pragma unroll 1
      for (MeetingTap tap = along.first(w + int(pixel)); along.has(tap); tap = along.next(tap))
        if (tap.result < end)
          sum = sum + line[(tap.result - begin) * pitch + tap.tap * int(channels) + int(channel)];
      const long long own = first + pixel;
      const auto* const z = static_cast<const Output*>(p.z);
      const auto* const bias = static_cast<const Output*>(p.bias);
      static_cast<Output*>(p.y)[own * p.y_row + channel * p.y_column] =
          finish(sum, z ? z[own * p.z_row + channel * p.z_column] : Output{},
                 bias ? bias[channel * p.bias_column] : convert<Output>(Finish<Step>::no_bias()));
    }
    __syncthreads();
  }
}

}  // namespace kronop
