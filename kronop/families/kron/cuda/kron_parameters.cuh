// What the passes of a Kronecker matmul share: their parameters, and the iteration over tiles.
#pragma once

#include "kron_steps.cuh"

namespace kronop {

template <class Scalar, int Factors>
struct KronTileParameters {
  void* x;
  void* y;
  void* z;
  long long x_vector, y_vector;  // whether pointers and strides allow the step's vector accesses
  long long tiles[3];            // of columns, of rows, and in all
  long long outer_extent[2], outer_x[2], outer_y[2], outer_z[2];
  long long inner_extent, inner_x, inner_y, inner_z;
  long long digit_x, digit_y, digit_z;
  long long batch_extent[4], batch_x[4], batch_y[4], batch_z[4];
  void* factor[Factors];
  long long factor_row[Factors], factor_column[Factors], factor_batch[Factors * 4];
  Scalar scalars[4];
};

namespace kron {

// The element type of the tile: that of the accumulators or, if kHalf, of the 16-bit operands.
template <class Step>
using TileElement = Either<Step::kHalf, typename Step::Input, typename Step::Accumulator>;

// Offset in the tile of linear index k of the digits with their produced or contracted sizes.
template <class Step, bool Produced, int Digit = Step::kDigits - 1>
KRONOP_INLINE int spread(int k) {
  if constexpr (Produced ? Step::kDenseOut : Step::kDenseIn) {
    return k * Step::kColumns;
  } else if constexpr (Digit == 0) {
    constexpr int stride = Step::kStride[0];
    return k * stride;
  } else {
    constexpr int size = Produced ? Step::kProduced[Digit] : Step::kContracted[Digit];
    constexpr int stride = Step::kStride[Digit];
    return k % size * stride + spread<Step, Produced, Digit - 1>(k / size);
  }
}

// A chunk of VectorSize elements that are contiguous in global memory: (row, k, column) of the
// first one.
template <class Step, int Size, int VectorSize>
struct Chunk {
  static constexpr bool kAlongDigits = Step::kColumns == 1;
  static constexpr int kColumnChunks = kAlongDigits ? 1 : Step::kColumns / VectorSize;
  static constexpr int kDigitChunks = kAlongDigits ? Size / VectorSize : Size;
  static constexpr int kCount = Step::kRows * kDigitChunks * kColumnChunks;
  int row, k, column;
  KRONOP_INLINE explicit Chunk(int index)
      : row(index / (kDigitChunks * kColumnChunks)),
        k(index / kColumnChunks % kDigitChunks * (kAlongDigits ? VectorSize : 1)),
        column(index % kColumnChunks * VectorSize) {}
  // Element v of the chunk.
  KRONOP_INLINE int digit(int v) const { return kAlongDigits ? k + v : k; }
  KRONOP_INLINE int column_of(int v) const { return kAlongDigits ? column : column + v; }
};

// The blocks of a cluster share a tile: each has an equal part of the first digit. The last phase
// contracts that digit, and each block stores the results that it computes.
template <class Step>
KRONOP_INLINE int rank_of_block() {
  if constexpr (Step::kCluster > 1) return cluster_rank();
  return 0;
}
template <class Step, bool kAll>
KRONOP_INLINE void wait_for_threads() {
  if constexpr (Step::kCluster > 1 && kAll) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
}

// A tile's rows in global memory, and how much of the tile exists. The offsets of rows are in
// shared memory, from byte `at` on.
template <class Step>
struct Window {
  int at, rows, columns;
  long long batch;  // linear index
  KRONOP_INLINE long long* offsets(int operand) const {
    return reinterpret_cast<long long*>(shared_memory() + at) + operand * Step::kRows;
  }
  KRONOP_INLINE long long x(int row) const { return offsets(0)[row]; }
  KRONOP_INLINE long long y(int row) const { return offsets(1)[row]; }
  KRONOP_INLINE long long z(int row) const { return offsets(2)[row]; }
};

// The buffer of a window's tile. With two buffers, one is filled while the other one is contracted.
template <class Step>
KRONOP_INLINE TileElement<Step>* tile_of(unsigned char* shared, const Window<Step>& window) {
  const int at = Step::kBuffers > 1 && window.at != 0 ? Step::kTileBytes : 0;
  return reinterpret_cast<TileElement<Step>*>(shared + Step::kTileBytesAt + at);
}

// Calls visit for the digits of a batch's linear index. Most problems have one batch, without
// digits. The loop is not unrolled, since a block runs it once or twice: four copies of a division
// would have to be fetched from memory first.
template <class Parameters, class Visit>
KRONOP_INLINE void for_each_batch_digit(long long batch, const Parameters& parameters,
                                        Visit visit) {
#pragma unroll 1
  for (int axis = 3; batch != 0; --axis) visit(axis, split(batch, parameters.batch_extent[axis]));
}

// The tiles of a launch, in the order (batch, tile of rows, tile of columns), columns fastest.
// Little state is kept between tiles, to save registers.
template <class Step, class Parameters>
struct Tiles {
  const Parameters& parameters;

  KRONOP_INLINE explicit Tiles(const Parameters& from) : parameters(from) {}
  KRONOP_INLINE long long outer() const {
    return parameters.outer_extent[0] * parameters.outer_extent[1];
  }
  KRONOP_INLINE long long count() const { return parameters.tiles[2]; }

  // Writes the row offsets of tile `index` to shared memory from byte `at` on; a barrier has to
  // make them visible.
  KRONOP_INLINE Window<Step> open(long long index, int at) const {
    long long batch = index, x = 0, y = 0, z = 0;
    const long long column = split(batch, parameters.tiles[0]) * Step::kColumns,
                    row = split(batch, parameters.tiles[1]) * Step::kRows;
    for_each_batch_digit(batch, parameters, [&](int axis, long long digit) {
      x += digit * parameters.batch_x[axis];
      y += digit * parameters.batch_y[axis];
      z += digit * parameters.batch_z[axis];
    });
    const long long rows = outer() - row, columns = parameters.inner_extent - column;
    const Window<Step> window{at, int(rows < Step::kRows ? rows : Step::kRows),
                              int(columns < Step::kColumns ? columns : Step::kColumns), batch};
#pragma unroll 1
    for (int first = 0; first < Step::kRows; first += Step::kThreads) {
      const int r = first + threadIdx.x;
      if (r >= window.rows) break;
      long long at_x = x + column * parameters.inner_x, at_y = y + column * parameters.inner_y,
                at_z = z + column * parameters.inner_z;
      for_each_digit<2>(row + r, parameters.outer_extent, [&](int axis, long long digit) {
        at_x += digit * parameters.outer_x[axis];
        at_y += digit * parameters.outer_y[axis];
        at_z += digit * parameters.outer_z[axis];
      });
      window.offsets(0)[r] = at_x;
      window.offsets(1)[r] = at_y;
      window.offsets(2)[r] = at_z;
    }
    return window;
  }
};

// Offsets of the factors `first` ... from batch 0 to the batch with this linear index.
template <int N, class Parameters>
KRONOP_INLINE void factor_offsets(long long (&offsets)[N], const Parameters& parameters, int first,
                                  long long batch) {
#pragma unroll
  for (int i = 0; i < N; ++i) offsets[i] = 0;
  for_each_batch_digit(batch, parameters, [&](int axis, long long digit) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      offsets[i] += digit * parameters.factor_batch[(first + i) * 4 + axis];
  });
}

}  // namespace kron
}  // namespace kronop
