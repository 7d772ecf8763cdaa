// Splits float32 operands for three TF32 products: for each problem two planes in the workspace,
// contiguous along the contracted index, with values rounded to TF32 and the remainders.
#pragma once

#include "kronop/mma.cuh"

namespace kronop {

struct GemmSplitParameters {
  void* from;
  void* to;
  long long lines, depth, pitch, problems;
  // Distances of the two planes of a problem, whose lines are `pitch` apart, and of problems'
  // planes.
  long long plane, planes;
  // Strides in elements: from a line to the next, along the contracted index, between problems.
  long long line, along, batch;
};

// Tiles of 32 lines x 32 contracted elements are transposed through shared memory, so that loads
// and stores are coalesced.
template <class Step>
KRONOP_INLINE void gemm_split(const GemmSplitParameters& p) {
  constexpr int size = 32, rows = Step::kThreads / size;
  auto& tile = *reinterpret_cast<float (*)[size][size + 1]>(shared_memory());
  const int x = threadIdx.x % size, y = threadIdx.x / size;
  const long long across = ceil_div(p.lines, size), along = ceil_div(p.depth, size),
                  count = across * along * p.problems;
  const bool by_lines = p.line == 1 && p.along != 1;
#pragma unroll 1
  for (long long at = blockIdx.x; at < count; at += gridDim.x) {
    const long long problem = at / (across * along), within = at % (across * along);
    const long long line = within % across * size, k = within / across * size;
    const auto* const from = static_cast<const float*>(p.from) + problem * p.batch;
#pragma unroll
    for (int i = y; i < size; i += rows) {
      const int l = by_lines ? x : i, d = by_lines ? i : x;
      if (line + l < p.lines && k + d < p.depth)
        tile[l][d] = from[(line + l) * p.line + (k + d) * p.along];
    }
    __syncthreads();
    auto* const to = static_cast<float*>(p.to) + problem * p.planes;
#pragma unroll
    for (int i = y; i < size; i += rows) {
      if (line + i < p.lines && k + x < p.depth) {
        const float value = tile[i][x], rounded = round_to_tf32(value);
        const long long place = (line + i) * p.pitch + k + x;
        to[place] = rounded;
        to[place + p.plane] = value - rounded;
      }
    }
    __syncthreads();
  }
}

}  // namespace kronop
