// The parameters of a contraction, and the tile of it that a block works on.
#pragma once

#include "memory.cuh"

namespace kronop {

template <class Scalar>
struct ContractParameters {
  void* x;
  void* w;
  void* y;
  void* z;
  void* bias;
  long long x_vector, w_vector, y_vector;  // whether pointers and strides allow vector accesses
  long long row_extent[3], row_x[3], row_y[3], row_z[3];
  long long contracted_x, contracted_w;
  long long produced_w, produced_y, produced_z, produced_bias;
  long long lane_extent, lane_x, lane_w, lane_y, lane_z, lane_bias;
  long long section_extent[4], section_x[4], section_w[4], section_y[4], section_z[4],
      section_bias[4];
  Scalar scalars[4];
};

// Which index of an operand is contiguous in memory: (contraction | outputs), rows, or lanes.
enum Order { kAlongOwn = 0, kAlongRows = 1, kAlongLanes = 2 };

namespace contract {

// The tile that a block computes: its start, in elements from the operands' starts, and how much of
// it exists.
struct Place {
  long long x = 0, w = 0, y = 0, z = 0, bias = 0;
  int rows = 0, outputs = 0, lanes = 0;
};

// Computes the place of a block's tile, and writes the offsets of its rows to shared memory.
template <class Step, class Parameters>
KRONOP_INLINE Place locate(const Parameters& parameters, const RowOffsets& offsets,
                           long long block) {
  constexpr int output_tiles = (Step::kProduced + Step::kTileN - 1) / Step::kTileN;
  const long long rows =
      parameters.row_extent[0] * parameters.row_extent[1] * parameters.row_extent[2];
  const long long row_tiles = ceil_div(rows, Step::kTileM);
  const long long lane_tiles = ceil_div(parameters.lane_extent, Step::kLanes);
  const int output = int(split(block, output_tiles)) * Step::kTileN;
  const long long row = split(block, row_tiles) * Step::kTileM;
  const long long lane = split(block, lane_tiles) * Step::kLanes;
  Place place;
  place.rows = int(rows - row < Step::kTileM ? rows - row : Step::kTileM);
  place.outputs = Step::kProduced - output < Step::kTileN ? Step::kProduced - output : Step::kTileN;
  place.lanes = int(parameters.lane_extent - lane < Step::kLanes ? parameters.lane_extent - lane
                                                                 : Step::kLanes);
  place.x = lane * parameters.lane_x;
  place.w = lane * parameters.lane_w + output * parameters.produced_w;
  place.y = lane * parameters.lane_y + output * parameters.produced_y;
  place.z = lane * parameters.lane_z + output * parameters.produced_z;
  place.bias = lane * parameters.lane_bias + output * parameters.produced_bias;
  for_each_digit<4>(block, parameters.section_extent, [&](int axis, long long digit) {
    place.x += digit * parameters.section_x[axis];
    place.w += digit * parameters.section_w[axis];
    place.y += digit * parameters.section_y[axis];
    place.z += digit * parameters.section_z[axis];
    place.bias += digit * parameters.section_bias[axis];
  });
  // Entries beyond the last row repeat it, so that they can be read without a check.
  for (int r = threadIdx.x; r < Step::kTileM; r += Step::kThreads) {
    long long x = 0, y = 0, z = 0;
    for_each_digit<3>(row + (r < place.rows ? r : place.rows - 1), parameters.row_extent,
                      [&](int axis, long long digit) {
                        x += digit * parameters.row_x[axis];
                        y += digit * parameters.row_y[axis];
                        z += digit * parameters.row_z[axis];
                      });
    offsets.x[r] = x;
    offsets.y[r] = y;
    offsets.z[r] = z;
  }
  return place;
}

template <class Step, class Parameters>
KRONOP_INLINE long long count_blocks(const Parameters& parameters) {
  const long long rows =
      parameters.row_extent[0] * parameters.row_extent[1] * parameters.row_extent[2];
  const long long sections = parameters.section_extent[0] * parameters.section_extent[1] *
                             parameters.section_extent[2] * parameters.section_extent[3];
  return ceil_div(Step::kProduced, Step::kTileN) * ceil_div(rows, Step::kTileM) *
         ceil_div(parameters.lane_extent, Step::kLanes) * sections;
}

}  // namespace contract
}  // namespace kronop
