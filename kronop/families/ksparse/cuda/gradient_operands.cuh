// The operands of a gradient of weights (ksparse_gradient.cuh): copies to shared memory, and loads
// to registers.
#pragma once

#include "kronop/mma.cuh"

namespace kronop {
namespace gradient {

inline constexpr int kSlabBytes = 128, kChunkBytes = 16, kSlabChunks = kSlabBytes / kChunkBytes;

// A thread's next position along k, as digits, and its offset in an operand.
struct Walk {
  int digit[3];

  KRONOP_INLINE Walk(long long position, const long long (&extent)[3]) {
#pragma unroll
    for (int axis = 2; axis > 0; --axis) digit[axis] = int(split(position, extent[axis]));
    digit[0] = int(position);
  }
  KRONOP_INLINE void advance(const long long (&step)[3], const long long (&extent)[3]) {
#pragma unroll
    for (int axis = 2; axis > 0; --axis) {
      digit[axis] += int(step[axis]);
      const bool carries = digit[axis] >= int(extent[axis]);
      digit[axis] -= carries ? int(extent[axis]) : 0;
      digit[axis - 1] += carries;
    }
    digit[0] += int(step[0]);
  }
  KRONOP_INLINE long long offset(const long long (&stride)[3]) const {
    return digit[0] * stride[0] + digit[1] * stride[1] + digit[2] * stride[2];
  }
};

template <int Bytes>
KRONOP_INLINE void copy_part(unsigned char* to, const unsigned char* from, int bytes) {
  if constexpr (Bytes >= 4) {
    copy_or_clear<Bytes>(to, from, bytes);
  } else {
    unsigned short value = 0;
    if (bytes > 0) value = *reinterpret_cast<const unsigned short*>(from);
    *reinterpret_cast<unsigned short*>(to) = value;
  }
}

// A thread's copies of a tile: its position along k, and its slot along the digit.
template <class Step>
struct Slot {
  static constexpr int kSlots = Step::kAlongSums ? Step::kThreads / Step::kAcross : Step::kAcross;
  static constexpr int kPasses =
      Step::kAlongSums ? 1 : Step::kPositions * Step::kAcross / Step::kThreads;
  int position, slot;
  KRONOP_INLINE Slot() : position(threadIdx.x % Step::kAcross), slot(threadIdx.x / Step::kAcross) {
    if constexpr (!Step::kAlongSums) {
      const int across = position;
      position = slot, slot = across;
    }
  }
};

// One operand: a block has kTile indices of its digit, and a warp 8 times kHalves of them.
template <class Step, int kTile, int kHalves, int kPitch>
struct Operand {
  using Input = typename Step::Input;
  using Compute = typename Step::Accumulator;
  static constexpr int kBytesOf = int(sizeof(Input)), kChunk = kChunkBytes / kBytesOf;
  // Neighbours along the digit that a thread loads as a vector, each for another half.
  static constexpr int kWide = Step::kAlongSums || Step::kLanes > 1 ? 1
                               : kHalves < kChunk                   ? kHalves
                                                                    : kChunk;

  // The index of the digit, relative to the warp's first one, of row `quad` of half h.
  static KRONOP_INLINE int own(int h, int quad) {
    return h / kWide * (8 * kWide) + kWide * quad + h % kWide;
  }

  // Starts the copies of the thread's position: `count` indices of the digit exist, and `bytes`
  // bytes of each copy (0: zeros).
  static KRONOP_INLINE void copy(unsigned char* tile, const Input* from, long long own_stride,
                                 long long lane_stride, int position, int slot, int count,
                                 int bytes) {
    constexpr int vector = Step::kVector, slots = Slot<Step>::kSlots;
    // The digit may have more indices than the tile, and there may be more slots than pieces of it.
    if (count > kTile) count = kTile;
    if constexpr (Step::kAlongSums) {
      constexpr int slab = kSlabBytes / kBytesOf;
      const int k = position * vector, inner = k % slab;
      tile += k / slab * (kTile * kSlabBytes) + inner % kChunk * kBytesOf;
      from += slot * own_stride;
#pragma unroll
      for (int j = 0; j < (kTile + slots - 1) / slots; ++j) {
        const int index = slot + j * slots;
        if (index < count) {
          unsigned char* to = tile + index * kSlabBytes +
                              (inner / kChunk ^ index % 2 * (kSlabChunks / 2)) * kChunkBytes;
          copy_part<vector * kBytesOf>(to, reinterpret_cast<const unsigned char*>(from), bytes);
        }
        from += slots * own_stride;
      }
    } else {
      tile += position * kPitch;
#pragma unroll
      for (int j = 0; j < (kTile * Step::kLanes / vector + slots - 1) / slots; ++j) {
        const int at = (slot + j * slots) * vector;
        if (at < count * Step::kLanes) {
          const Input* source =
              from + at / Step::kLanes * own_stride + at % Step::kLanes * lane_stride;
          copy_part<vector * kBytesOf>(tile + at * kBytesOf,
                                       reinterpret_cast<const unsigned char*>(source), bytes);
        }
      }
    }
  }

  // Loads the warp's fragment of one bite, from lane `lanes` on: [half][step][index of (t, r)].
  static KRONOP_INLINE void load(const unsigned char* tile, int first, int bite, int lanes,
                                 Compute (&values)[kHalves][Step::kSteps][2]) {
    const int quad = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if constexpr (Step::kAlongSums) {
      constexpr int chunks = kSlabChunks / 2;
      const int chunk = (bite % 2 * chunks + t ^ quad % 2 * chunks) * kChunkBytes;
      tile += (bite / 2 * kTile + first + quad) * kSlabBytes + chunk;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const auto part =
            kronop::load<Input, kChunk>(reinterpret_cast<const Input*>(tile + h * 8 * kSlabBytes));
#pragma unroll
        for (int i = 0; i < kChunk; ++i) values[h][i / 2][i % 2] = convert<Compute>(part.data[i]);
      }
    } else if constexpr (Step::kLanes == 1) {
      tile += (8 * Step::kSteps * bite + t) * kPitch + (first + kWide * quad) * kBytesOf;
#pragma unroll
      for (int row = 0; row < 2 * Step::kSteps; ++row) {
#pragma unroll
        for (int h = 0; h < kHalves; h += kWide) {
          const auto part = kronop::load<Input, kWide>(
              reinterpret_cast<const Input*>(tile + 4 * row * kPitch + 8 * h * kBytesOf));
#pragma unroll
          for (int i = 0; i < kWide; ++i)
            values[h + i][row / 2][row % 2] = convert<Compute>(part.data[i]);
        }
      }
    } else {
      tile += (8 * bite + t) * kPitch + ((first + quad) * Step::kLanes + lanes) * kBytesOf;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          const auto part = kronop::load<Input, Step::kSteps>(reinterpret_cast<const Input*>(
              tile + 4 * r * kPitch + 8 * h * Step::kLanes * kBytesOf));
#pragma unroll
          for (int i = 0; i < Step::kSteps; ++i) values[h][i][r] = convert<Compute>(part.data[i]);
        }
      }
    }
  }
};

template <class Step>
using OperandG = Operand<Step, Step::kTileP, Step::kHalvesP, Step::kPitchP>;
template <class Step>
using OperandX = Operand<Step, Step::kTileQ, Step::kHalvesQ, Step::kPitchQ>;

}  // namespace gradient
}  // namespace kronop
