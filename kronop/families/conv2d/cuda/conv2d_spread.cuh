// Spreads the filters of small groups over the channels of several groups side by side, with zeros
// for those of the other groups: several convolutions become one.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

struct Conv2dSpreadParameters {
  void* from;
  void* to;
  long long filters, height, width;       // filters of all groups, and their pixels
  long long channels, each, together;     // of a filter; filters of a group; groups side by side
  long long filter, row, pixel, channel;  // strides of what is read, in elements
};

// A thread writes pieces of 16 bytes. What is written is contiguous, channels last.
template <class Step>
KRONOP_INLINE void conv2d_spread(const Conv2dSpreadParameters& p) {
  using Element = typename Step::Element;
  constexpr int kRun = 16 / int(sizeof(Element));
  const long long pieces = p.channels * p.together / kRun, pixels = p.height * p.width,
                  count = p.filters * pixels * pieces;
  auto* const to = static_cast<Element*>(p.to);
#pragma unroll 1
  for (long long at = (long long)blockIdx.x * Step::kThreads + threadIdx.x; at < count;
       at += (long long)gridDim.x * Step::kThreads) {
    const long long line = at / pieces, filter = line / pixels, pixel = line - filter * pixels,
                    y = pixel / p.width, x = pixel - y * p.width;
    // The first channel of the piece, counted from the filter's own first one.
    const long long first = (at - line * pieces) * kRun - filter / p.each % p.together * p.channels;
    const auto* const from = static_cast<const Element*>(p.from) + filter * p.filter + y * p.row +
                             x * p.pixel + first * p.channel;
    Vector<Element, kRun> values;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const bool own = (unsigned long long)(first + i) < (unsigned long long)p.channels;
      values.data[i] = own ? from[i * p.channel] : Element{};
    }
    store(to + at * kRun, values);
  }
}

}  // namespace kronop
