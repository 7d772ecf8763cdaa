// Widens images of few channels. For each line of the images, and each column of the results, what
// a filter meets of the line becomes contiguous (all taps, of all channels), with zeros in the
// padding, and behind it up to whole pieces of 16 bytes. Lines of a column follow each other: all
// that a filter covers is then contiguous, as a pixel of many channels would be.
//
// Filters are images too, of which one column meets all taps.
#pragma once

#include "kronop/mma.cuh"

namespace kronop {

struct Conv2dWidenParameters {
  void* from;
  void* to;
  long long images, lines, columns;  // of what is written
  long long height, width, channels;
  long long first_h, first_w;  // Where line 0, and the first tap of column 0, are in an image.
  long long stride_w, apart;   // Distances of columns, and of taps.
  long long met, pitch;        // What a column meets of a line, and that with zeros behind it.
  long long across, pixels;    // Columns of a tile, and the pixels of a line that they meet.
  long long image, line, pixel, channel;  // strides in elements
  long long plane;  // Where values are split: from the first plane to the second.
};

// A tile of lines, with the pixels that some columns meet, in shared memory.
template <class Step>
class WidenedTile {
  using Element = typename Step::Element;
  static constexpr int kRun = 16 / int(sizeof(Element)), kLines = Step::kLines;
  // Threads of a line, and how many elements each of them reads at once.
  static constexpr int kReaders = Step::kThreads / kLines, kAtOnce = 8;

 public:
  KRONOP_INLINE explicit WidenedTile(const Conv2dWidenParameters& p)
      : p_(p), tile_(reinterpret_cast<Element*>(shared_memory())),
        wide_(int(p.pixels * p.channels)) {
    const int pieces = int(p.pitch) / kRun, piece = int(threadIdx.x) % pieces;
    offset_ = piece * kRun;
    writer_ = int(threadIdx.x) / pieces;
    writers_ = Step::kThreads / pieces;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const int at = offset_ + i, tap = at / int(p.channels);
      places_[i] = at < p.met ? at + tap * int((p.apart - 1) * p.channels) : -1;
    }
  }

  KRONOP_INLINE void read(long long image, long long first_line, long long first_column) {
    const int channels = int(p_.channels), row = int(threadIdx.x) / kReaders;
    const long long h = first_line + row + p_.first_h;
    // Pixels are inside if they are below this as unsigned numbers; lines of padding have none.
    const unsigned width = h >= 0 && h < p_.height ? unsigned(p_.width) : 0;
    const int w = int(first_column * p_.stride_w + p_.first_w);
    const auto* const from = static_cast<const Element*>(p_.from) + image * p_.image + h * p_.line;
    Element* const to = tile_ + row * apart();
    constexpr int step = kReaders;
    const int further = step / channels, rest = step % channels;
    int at = int(threadIdx.x) % kReaders, pixel = at / channels, channel = at % channels;
#pragma unroll 1
    while (at < wide_) {
      Element values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int x = w + pixel;
        const bool there = unsigned(x) < width && at + i * step < wide_;
        values[i] = there ? from[x * p_.pixel + channel * p_.channel] : Element{};
        pixel += further;
        channel += rest;
        if (channel >= channels) {
          channel -= channels;
          ++pixel;
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (at + i * step < wide_) to[at + i * step] = values[i];
      at += kAtOnce * step;
    }
  }

  // A thread writes pieces of one offset.
  KRONOP_INLINE void write(long long image, long long first_line, long long first_column) const {
    if (writer_ >= writers_) return;
    auto* const to = static_cast<Element*>(p_.to) + offset_;
#pragma unroll 1
    for (int at = writer_; at < kLines * int(p_.across); at += writers_) {
      const int row = at % kLines, of_tile = at / kLines;
      const long long line = first_line + row, column = first_column + of_tile;
      if (line >= p_.lines || column >= p_.columns) continue;
      const Element* const from = tile_ + row * apart() + of_tile * int(p_.stride_w * p_.channels);
      Vector<Element, kRun> values, rest;
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        values.data[i] = places_[i] < 0 ? Element{} : from[places_[i]];
        if constexpr (Step::kSplit) {
          const Element value = values.data[i];
          values.data[i] = round_to_tf32(value);
          rest.data[i] = value - values.data[i];
        }
      }
      Element* const place = to + ((image * p_.columns + column) * p_.lines + line) * p_.pitch;
      store(place, values);
      if constexpr (Step::kSplit) store(place + p_.plane, rest);
    }
  }

 private:
  // An odd number, as lanes read several lines at once.
  KRONOP_INLINE int apart() const { return wide_ | 1; }

  const Conv2dWidenParameters& p_;
  Element* const tile_;
  const int wide_;
  int offset_, writer_, writers_, places_[kRun];
};

template <class Step>
KRONOP_INLINE void conv2d_widen(const Conv2dWidenParameters& p) {
  WidenedTile<Step> tile(p);
  const long long down = ceil_div(p.lines, Step::kLines), across = ceil_div(p.columns, p.across),
                  count = p.images * down * across;
#pragma unroll 1
  for (long long at = blockIdx.x; at < count; at += gridDim.x) {
    const long long image = at / (down * across), within = at - image * down * across,
                    line = within / across * Step::kLines, column = within % across * p.across;
    tile.read(image, line, column);
    __syncthreads();
    tile.write(image, line, column);
    __syncthreads();
  }
}

}  // namespace kronop
