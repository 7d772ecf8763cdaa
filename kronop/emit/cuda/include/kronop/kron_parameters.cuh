// What the passes of a Kronecker matmul share: their parameters, and the walk over their tiles.
#pragma once

#include "memory.cuh"

namespace kronop {

template <class Scalar, int Factors>
struct KronTileParameters {
  void* x;
  void* y;
  void* z;
  long long x_vector, y_vector;  // whether pointers and strides allow the step's vector accesses
  long long outer_extent[2], outer_x[2], outer_y[2], outer_z[2];
  long long inner_extent, inner_x, inner_y, inner_z;
  long long digit_x, digit_y, digit_z;
  long long batch_extent[4], batch_x[4], batch_y[4], batch_z[4];
  void* factor[Factors];
  long long factor_row[Factors], factor_column[Factors], factor_batch[Factors * 4];
  Scalar scalars[4];
};

namespace kron {

// Offset in the tile of the group's linear index k, over contracted or produced sizes.
template <class Step, bool Produced, int Digit = Step::kDigits - 1>
KRONOP_INLINE int spread(int k) {
  if constexpr (Produced ? Step::kDenseOut : Step::kDenseIn) {
    return k * Step::kColumns;
  } else if constexpr (Digit == 0) {
    return k * Step::kStride[0];
  } else {
    constexpr int size = Produced ? Step::kProduced[Digit] : Step::kContracted[Digit];
    return k % size * Step::kStride[Digit] + spread<Step, Produced, Digit - 1>(k / size);
  }
}

// One chunk of kVector elements of the tile's outside: (row, k, column) of the first of them.
template <class Step, int Group, int VectorSize>
struct Chunk {
  static constexpr bool kAlongDigits = Step::kColumns == 1;
  static constexpr int kColumnChunks = kAlongDigits ? 1 : Step::kColumns / VectorSize;
  static constexpr int kDigitChunks = kAlongDigits ? Group / VectorSize : Group;
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

// A tile's rows in memory and how much of it exists.
struct Window {
  RowOffsets offsets;
  int rows, columns;
};

// Blocks walk over (batch, tile of rows, tile of columns), columns fastest; visit(window, batch, its index).
// Row offsets are written here: visit synchronises before it reads them, and when it is done.
template <class Step, class Parameters, class Visit>
KRONOP_INLINE void for_each_tile(const Parameters& parameters, const RowOffsets& offsets, Visit visit) {
  const long long outer = parameters.outer_extent[0] * parameters.outer_extent[1];
  const long long inner_tiles = ceil_div(parameters.inner_extent, Step::kColumns);
  const long long outer_tiles = ceil_div(outer, Step::kRows);
  const long long batches = parameters.batch_extent[0] * parameters.batch_extent[1] *
                            parameters.batch_extent[2] * parameters.batch_extent[3];
#pragma unroll 1
  for (long long block = blockIdx.x; block < inner_tiles * outer_tiles * batches; block += gridDim.x) {
    const long long column = block % inner_tiles * Step::kColumns, rest = block / inner_tiles;
    const long long row = rest % outer_tiles * Step::kRows;
    long long batch[4] = {}, x = 0, y = 0, z = 0;
    for_each_digit<4>(rest / outer_tiles, parameters.batch_extent, [&](int axis, long long digit) {
      batch[axis] = digit;
      x += digit * parameters.batch_x[axis];
      y += digit * parameters.batch_y[axis];
      z += digit * parameters.batch_z[axis];
    });
    const int rows = int(outer - row < Step::kRows ? outer - row : Step::kRows);
    const int columns = int(parameters.inner_extent - column < Step::kColumns ? parameters.inner_extent - column
                                                                              : Step::kColumns);
    for (int r = threadIdx.x; r < rows; r += Step::kThreads) {
      long long at_x = x + column * parameters.inner_x, at_y = y + column * parameters.inner_y,
                at_z = z + column * parameters.inner_z;
      for_each_digit<2>(row + r, parameters.outer_extent, [&](int axis, long long digit) {
        at_x += digit * parameters.outer_x[axis];
        at_y += digit * parameters.outer_y[axis];
        at_z += digit * parameters.outer_z[axis];
      });
      offsets.x[r] = at_x;
      offsets.y[r] = at_y;
      offsets.z[r] = at_z;
    }
    visit(Window{offsets, rows, columns}, batch, rest / outer_tiles);
  }
}

}  // namespace kron
}  // namespace kronop
