// Widens images of few channels. For each line of the images, and each column of the results, what
// a filter meets of the line becomes contiguous (all taps, of all channels), with zeros in the
// padding, and behind it up to whole pieces of 16 bytes. Lines of a column follow each other: all
// that a filter covers is then contiguous, as a pixel of many channels would be.
//
// Filters are images too, of which one column meets all taps. Indices have 32 bits but for
// addresses: what is written has less than 2^30 bytes.
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
  long long pitch, met;        // Elements of a line of a column: all, and those before the zeros.
  long long across, pixels;    // Columns of a tile, and the pixels of a line that they meet.
  long long tiles;             // of a line
  long long image, line, pixel, channel;  // strides in elements
  long long plane;  // Where values are split: from the first plane to the second.
};

// A tile of lines, with the pixels that some columns meet, in shared memory.
template <class Step>
class WidenedTile {
  using Element = typename Step::Element;
  using Piece = Vector<unsigned, 4>;
  static constexpr int kSize = int(sizeof(Element)), kLines = Step::kLines;
  static constexpr int kUnit = kSize < 4 ? 4 : kSize;
  // A warp reads whole lines, several at once.
  static constexpr int kWarp = 32, kWarps = Step::kThreads / kWarp, kRows = kLines / kWarps;

 public:
  KRONOP_INLINE explicit WidenedTile(const Conv2dWidenParameters& p)
      : p_(p), wide_(int(p.pixels * p.channels)),
        apart_(kUnit * ((wide_ * kSize + 23) / kUnit | 1)) {
    const unsigned pieces = unsigned(p.pitch) * kSize / 16, piece = threadIdx.x % pieces;
    offset_ = int(piece) * 16;
    // Behind the last piece that is met nothing is read, since all of it is masked.
    read_ = math::min(offset_, (int(p.met) * kSize - 1) / 16 * 16);
    writer_ = int(threadIdx.x / pieces);
    writers_ = int(Step::kThreads / pieces);
    // Masks are read from memory: in registers, the compiler computes them for each piece anew.
    const int met = int(p.met) * kSize, whole = met / 16;
    masks_ = Step::kMasksAt + math::min(2, math::max(0, int(piece) - whole + 1)) * 16;
    for (int i = int(threadIdx.x); i < 48; i += Step::kThreads)
      shared_memory()[Step::kMasksAt + i] = i < 16 + met % 16 ? 255 : 0;
  }

  KRONOP_INLINE void read(long long image, int first_line, int first_column) const {
    if (p_.channel == 1 && p_.pixel == p_.channels)
      read_as<true>(image, first_line, first_column);
    else
      read_as<false>(image, first_line, first_column);
  }

  // A thread writes pieces of one offset.
  KRONOP_INLINE void write(long long image, int first_line, int first_column) const {
    if (writer_ >= writers_) return;
    const int all = int(p_.lines), pitch = int(p_.pitch) * kSize,
              rows = math::min(kLines, all - first_line),
              columns = math::min(int(p_.across), int(p_.columns) - first_column),
              next = int(p_.stride_w * p_.channels) * kSize;
    const bool follow = p_.apart == 1;
    auto* const to = static_cast<unsigned char*>(p_.to) + offset_ +
                     ((image * p_.columns + first_column) * p_.lines + first_line) * pitch;
    int row = int(unsigned(writer_) % kLines), column = int(unsigned(writer_) / kLines);
    const int down = int(unsigned(writers_) % kLines), along = int(unsigned(writers_) / kLines);
#pragma unroll 1
    for (; column < columns; advance(row, column, down, along)) {
      if (row >= rows) continue;
      const int from = row * apart_ + column * next;
      const Piece masks =
          load<unsigned, 4>(reinterpret_cast<const unsigned*>(shared_memory() + masks_));
      Piece piece = follow ? run(from + read_) : gathered(from), rest;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        piece.data[i] &= masks.data[i];
        if constexpr (Step::kSplit) {
          const float value = __builtin_bit_cast(float, piece.data[i]),
                      rounded = round_to_tf32(value);
          piece.data[i] = bits_of(rounded);
          rest.data[i] = bits_of(value - rounded);
        }
      }
      auto* const place = reinterpret_cast<unsigned*>(to + (column * all + row) * pitch);
      store(place, piece);
      if constexpr (Step::kSplit) store(place + p_.plane, rest);
    }
  }

 private:
  // Steps by as many pieces of an offset as a block writes at once, of which lines come first.
  KRONOP_INLINE static void advance(int& row, int& column, int down, int along) {
    row += down;
    column += along;
    if (row >= kLines) {
      row -= kLines;
      ++column;
    }
  }

  template <bool kContiguous>
  KRONOP_INLINE void read_as(long long image, int first_line, int first_column) const {
    constexpr int at_once = kContiguous ? 32 / kUnit : 1;
    const int channels = int(p_.channels), lane = int(threadIdx.x) % kWarp,
              warp = int(threadIdx.x) / kWarp,
              w = first_column * int(p_.stride_w) + int(p_.first_w);
    // Elements of a line of the tile that are in the image. Lines of padding have none.
    const int begin = -w * channels, end = (int(p_.width) - w) * channels;
    const Element* from[kRows];
    int ends[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int h = first_line + warp + i * kWarps + int(p_.first_h);
      ends[i] = h >= 0 && h < p_.height ? math::min(end, wide_) : begin;
      from[i] =
          static_cast<const Element*>(p_.from) + image * p_.image + h * p_.line + w * p_.pixel;
    }
#pragma unroll 1
    for (int first = lane; first < wide_; first += at_once * kWarp) {
      Element values[kRows][at_once];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Element* const place =
            from[i] + (kContiguous ? first : apart_in_memory(first, channels));
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          const int at = first + j * kWarp;
          const bool there = at >= begin && at < ends[i];
          values[i][j] = there ? place[j * kWarp] : Element{};
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          const int at = first + j * kWarp;
          if (at < wide_) line(warp + i * kWarps)[at] = values[i][j];
        }
    }
  }

  KRONOP_INLINE long long apart_in_memory(int at, int channels) const {
    const int pixel = at / channels;
    return pixel * p_.pixel + (at - pixel * channels) * p_.channel;
  }

  KRONOP_INLINE static Element* line_at(int byte) {
    return reinterpret_cast<Element*>(shared_memory() + byte);
  }
  KRONOP_INLINE Element* line(int row) const { return line_at(row * apart_); }

  // Neighbours from some byte on. Those of less than a word are shifted out of two words each.
  KRONOP_INLINE Piece run(int byte) const {
    const auto* const from = reinterpret_cast<const unsigned*>(shared_memory() + (byte & ~3));
    Piece piece;
    if constexpr (kSize >= 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) piece.data[i] = from[i];
    } else {
      const int shift = byte % 4 * 8;
      unsigned word = from[0];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned next = from[i + 1];
        piece.data[i] = unsigned(((unsigned long long)next << 32 | word) >> shift);
        word = next;
      }
    }
    return piece;
  }

  // The thread's piece of a column whose taps are apart.
  KRONOP_INLINE Piece gathered(int byte) const {
    const int channels = int(p_.channels), further = int(p_.apart - 1) * channels;
    const unsigned char* const from = shared_memory() + byte;
    Piece piece;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      piece.data[i] = 0;
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        const int at = offset_ + 4 * i + j, element = at / kSize;
        if (element < p_.met)
          piece.data[i] |= unsigned(from[at + element / channels * further * kSize]) << 8 * j;
      }
    }
    return piece;
  }

  const Conv2dWidenParameters& p_;
  // Elements of a line of the tile, and the bytes to the next line: an odd number of words, or of
  // longer elements, as lanes read several lines at once. There is room for all words that the last
  // piece touches.
  const int wide_, apart_;
  int offset_, read_, writer_, writers_, masks_;
};

template <class Step>
KRONOP_INLINE void conv2d_widen(const Conv2dWidenParameters& p) {
  const WidenedTile<Step> tile(p);
  const unsigned down = unsigned(ceil_div(p.lines, Step::kLines)), across = unsigned(p.tiles),
                 count = unsigned(p.images) * down * across;
#pragma unroll 1
  for (unsigned at = blockIdx.x; at < count; at += gridDim.x) {
    const unsigned of_all = at / across, image = of_all / down;
    const int line = int(of_all - image * down) * Step::kLines,
              column = int(at - of_all * across) * int(p.across);
    tile.read(image, line, column);
    __syncthreads();
    tile.write(image, line, column);
    __syncthreads();
  }
}

}  // namespace kronop
