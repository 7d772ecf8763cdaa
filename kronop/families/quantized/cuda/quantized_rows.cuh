// Quantizes rows of numbers: integers, and a scale for each row. Some warps share a row, which they
// read twice (the second time from a cache): for the largest magnitude, and to round it.
#pragma once

#include "quantized_numbers.cuh"

namespace kronop {

struct QuantizedRowsParameters {
  void* y;       // (rows, kColumns), contiguous
  void* q;       // the same, packed
  void* scales;  // (rows)
  long long rows;
  double clip;
};

namespace quantized {

// Eight numbers at a time if rows are whole vectors, else the numbers of one byte.
template <class Step>
struct Rows {
  using Input = typename Step::Input;
  using Bits = Magnitude<Input>;
  static constexpr int kLanes = 32 * Step::kWarps, kRows = Step::kThreads / kLanes;
  static constexpr int kOfByte = 8 / Step::kBits;
  static constexpr int kWidth = Step::kColumns % 8 == 0 ? 8 : kOfByte;
  static constexpr int kAccess = kWidth == 8 ? 16 / int(sizeof(Input)) : 1;

  KRONOP_INLINE static void read(Input (&values)[kWidth], const Input* from) {
    constexpr int access = kAccess < kWidth ? kAccess : kWidth;
#pragma unroll
    for (int i = 0; i < kWidth; i += access) {
      const auto piece = load<Input, access>(from + i);
#pragma unroll
      for (int v = 0; v < access; ++v) values[i + v] = piece.data[v];
    }
  }

  KRONOP_INLINE static unsigned largest(const Input* row, int lane) {
    unsigned most = 0;
    for (int column = kWidth * lane; column < Step::kColumns; column += kWidth * kLanes) {
      Input values[kWidth];
      read(values, row + column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) most = larger(most, Bits::of(values[i]));
    }
    return most;
  }

  KRONOP_INLINE static void round(const Input* row, unsigned char* to, int lane,
                                  const Rounding<Step::kBits>& rounding) {
    for (int column = kWidth * lane; column < Step::kColumns; column += kWidth * kLanes) {
      Input values[kWidth];
      read(values, row + column);
      unsigned bytes[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        bytes[i] = rounding.template byte<Input>(convert<float>(values[i])) & rounding.kept & 0xffu;
      unsigned char* place = to + column / kOfByte;
      if constexpr (kWidth == 8) {
        const unsigned first = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
        const unsigned second = bytes[4] | bytes[5] << 8 | bytes[6] << 16 | bytes[7] << 24;
        if constexpr (Step::kBits == 4) {
          store_bytes(place, nibbles(first, second));
        } else {
          store_bytes(place, first);
          store_bytes(place + 4, second);
        }
      } else if constexpr (kWidth == 2) {
        *place = (unsigned char)((bytes[0] & 0xfu) | (bytes[1] & 0xfu) << 4);
      } else {
        *place = (unsigned char)bytes[0];
      }
    }
  }

  // NOTE: q may start at any byte; a 4-byte access needs it to be aligned.
  KRONOP_INLINE static void store_bytes(unsigned char* to, unsigned word) {
    if ((unsigned long long)to % 4 == 0) {
      *reinterpret_cast<unsigned*>(to) = word;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = (unsigned char)(word >> 8 * i);
    }
  }
};

// The maximum over the threads of a warp.
KRONOP_INLINE unsigned largest_of_warp(unsigned value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value = larger(value, from_lane(value, int(threadIdx.x % 32) ^ step));
  return value;
}

}  // namespace quantized

template <class Step, class Parameters>
KRONOP_INLINE void quantized_rows(const Parameters& parameters) {
  using namespace quantized;
  using Kernel = Rows<Step>;
  using Input = typename Step::Input;
  constexpr int warps = Step::kThreads / 32, columns = Step::kColumns;
  unsigned* const found = reinterpret_cast<unsigned*>(shared_memory());
  const int warp = int(threadIdx.x / 32), own = warp / Step::kWarps,
            lane = int(threadIdx.x % Kernel::kLanes);
  for (long long first = (long long)blockIdx.x * Kernel::kRows; first < parameters.rows;
       first += (long long)gridDim.x * Kernel::kRows) {
    const long long row = first + own;
    const bool exists = row < parameters.rows;
    const Input* const from = static_cast<const Input*>(parameters.y) + row * columns;
    unsigned most = exists ? Kernel::largest(from, lane) : 0;
    most = largest_of_warp(most);
    if constexpr (Step::kWarps > 1) {
      static_assert(Step::kWarps == warps);
      __syncthreads();  // The warps have read the values of the previous row.
      if (threadIdx.x % 32 == 0) found[warp] = most;
      __syncthreads();
#pragma unroll
      for (int other = 0; other < warps; ++other) most = larger(most, found[other]);
    }
    if (!exists) continue;
    const auto rounding = Rounding<Step::kBits>::template of<Input>(most, float(parameters.clip));
    if (lane == 0) static_cast<float*>(parameters.scales)[row] = rounding.scale;
    constexpr int bytes = columns / Kernel::kOfByte;
    Kernel::round(from, static_cast<unsigned char*>(parameters.q) + row * bytes, lane, rounding);
  }
}

}  // namespace kronop
