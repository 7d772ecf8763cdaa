// Packs operands of a product of a kernel matrix, converted to the type of sums, in the order in
// which blocks read them:
//
//     [problem][row / tile][column][row % tile]
//
// Columns are zero-padded. Rows of points are padded with copies of the last one, for which the
// kernel's values are finite where they are for that one, and rows of v with zeros.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

struct ProductPackParameters {
  void *from[3], *to[3];
  long long rows[3], columns[3], depth[3];  // depth: columns with padding
  long long tile[3], tiles[3], blocks[3];   // rows of a tile; tiles of a problem; blocks in all
  long long row[3], column[3];              // strides, in elements
  long long extent[12], stride[12];         // of the batch of each operand
  long long zeros[3];                       // whether rows are padded with zeros
};

// A block packs kPiece columns of a tile.
template <class Step, class Parameters>
KRONOP_INLINE void product_pack(const Parameters& parameters) {
  using Input = typename Step::Input;
  using T = typename Step::Accumulator;
  long long block = blockIdx.x;
  int o = 0;
  while (o < 2 && block >= parameters.blocks[o]) block -= parameters.blocks[o++];
  const long long depth = parameters.depth[o], tile = parameters.tile[o],
                  pieces = ceil_div(depth, Step::kPiece);
  const long long piece = split(block, pieces), first = split(block, parameters.tiles[o]) * tile,
                  problem = block;
  long long at = 0;
  const long long extents[4] = {parameters.extent[4 * o], parameters.extent[4 * o + 1],
                                parameters.extent[4 * o + 2], parameters.extent[4 * o + 3]};
  for_each_digit<4>(problem, extents,
                    [&](int d, long long digit) { at += digit * parameters.stride[4 * o + d]; });
  const Input* from = static_cast<const Input*>(parameters.from[o]) + at;
  T* to =
      static_cast<T*>(parameters.to[o]) + (problem * parameters.tiles[o] * tile + first) * depth;
  const long long column0 = piece * Step::kPiece, left = depth - column0;
  const int columns = left < Step::kPiece ? int(left) : Step::kPiece, rows = int(tile);
  // Neighbouring threads read neighbours in memory.
  const bool along = parameters.column[o] == 1;
  for (int item = threadIdx.x; item < rows * columns; item += Step::kThreads) {
    const int row = along ? item / columns : item % rows,
              column = along ? item % columns : item / rows;
    long long source = first + row;
    const bool there = source < parameters.rows[o];
    if (!there) source = parameters.rows[o] - 1;
    T value = T(0);
    if (column0 + column < parameters.columns[o] && (there || !parameters.zeros[o])) {
      value =
          convert<T>(from[source * parameters.row[o] + (column0 + column) * parameters.column[o]]);
    }
    to[(column0 + column) * tile + row] = value;
  }
}

}  // namespace kronop
