// Kronecker-sparse matmul: for every i and l a dense product over lanes of the batch,
//
//     Y[n, i, j, l] = sum over k of X[n, i, k, l] W[i, j, k, l].
//
// One item of work is an i, a range of l (kSlices), a range of j (kOutputs) and a range of the
// batch. Its weights are packed once for all of its rows; X comes in as [k][l][lanes], kDepth of the
// k at a time, and results leave as [j][l][lanes].
#pragma once

#include "kronop_x86/parallel.hpp"
#include "kronop_x86/tile.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {

// Strides in elements; features are the columns. Scratch of one thread is `slice` bytes, in whole
// cache lines: weight panels, bias, the state of X and that of the results.
template <int kScalars, class Scalar>
struct KSparseParameters {
  const void* x;
  const void* weights;
  const void* z;
  const void* bias;
  void* y;
  void* workspace;
  index_t rows, row_tile, threads;
  index_t x_strides[2], z_strides[2], y_strides[2], weight_strides[4], bias_stride;
  index_t slice;
  Scalar scalars[kScalars];
};

namespace ksparse {

template <class Step>
inline constexpr int kLanesOf = Step::kWidth * Step::kVectors;

template <class Step>
inline constexpr index_t kPanelElements = panel_elements(Step::kC, Step::kOutputs, Step::kTile);

constexpr index_t parts(index_t count, index_t size) { return (count + size - 1) / size; }

// The weights that an item needs: one i, `slices` of l from `slice`, kOutputs of j from `output`.
// Results before `fresh` belong to the range of j before this one, which overlaps it.
struct Patch {
  index_t i, slice, slices, output, fresh;
};

template <class Step>
KRONOP_INLINE Patch patch_of(index_t index) {
  constexpr index_t kSliceParts = parts(Step::kD, Step::kSlices), kOutputParts = parts(Step::kB, Step::kOutputs);
  const index_t j = index % kOutputParts * Step::kOutputs, l = index / kOutputParts % kSliceParts * Step::kSlices;
  const index_t start = j + Step::kOutputs <= Step::kB ? j : Step::kB - Step::kOutputs;
  const index_t slices = l + Step::kSlices <= Step::kD ? Step::kSlices : Step::kD - l;
  return {index / kOutputParts / kSliceParts, l, slices, start, j - start};
}

template <class Step>
struct Scratch {
  typename Step::Compute* panels;
  typename Step::Epilogue::Compute* bias;
  typename Step::Compute* input;
  typename Step::Compute* output;
};

template <class Step, class Parameters>
KRONOP_INLINE Scratch<Step> scratch_of(const Parameters& parameters, index_t share) {
  using Compute = typename Step::Compute;
  constexpr index_t kInputBytes =
      whole_lines(index_t(Step::kDepth) * Step::kSlices * kLanesOf<Step> * sizeof(Compute));
  char* base = static_cast<char*>(parameters.workspace) + share * parameters.slice;
  char* bias = base + whole_lines(Step::kSlices * kPanelElements<Step> * sizeof(Compute));
  char* input = bias + whole_lines(index_t(Step::kOutputs) * Step::kSlices * sizeof(*Scratch<Step>::bias));
  return {reinterpret_cast<Compute*>(base), reinterpret_cast<typename Step::Epilogue::Compute*>(bias),
          reinterpret_cast<Compute*>(input), reinterpret_cast<Compute*>(input + kInputBytes)};
}

template <class Step, class Parameters>
void pack_patch(const Parameters& parameters, const Patch& patch, const Scratch<Step>& scratch) {
  using Compute = typename Step::Compute;
  const index_t* strides = parameters.weight_strides;
  const auto* weights = static_cast<const typename Step::Element*>(parameters.weights);
  for (index_t l = 0; l < patch.slices; ++l) {
    const auto* from =
        weights + patch.i * strides[0] + patch.output * strides[1] + (patch.slice + l) * strides[3];
    pack_panels(scratch.panels + l * kPanelElements<Step>, Step::kC, Step::kOutputs, Step::kTile,
                [&](index_t k, index_t j) { return convert<Compute>(from[j * strides[1] + k * strides[2]]); });
  }
  if (!parameters.bias) return;
  const auto* bias = static_cast<const typename Step::Output*>(parameters.bias);
  for (index_t j = 0; j < Step::kOutputs; ++j) {
    const index_t feature = (patch.i * Step::kB + patch.output + j) * Step::kD + patch.slice;
    for (index_t l = 0; l < patch.slices; ++l) {
      scratch.bias[j * patch.slices + l] =
          convert<typename Step::Epilogue::Compute>(bias[(feature + l) * parameters.bias_stride]);
    }
  }
}

// X as the register tile reads it: from k to k + 1, and from l to l + 1.
template <class Compute>
struct Input {
  const Compute* data;
  index_t k_step, l_step;
};

// [depth][slices][lanes] of X from its element (k, slice): in place where lanes are contiguous and it is read
// only once (strides of powers of two collide in the cache).
template <class Step, class LaneSet>
KRONOP_INLINE Input<typename Step::Compute> load_input(const typename Step::Element* x, const LaneSet& lanes,
                                                       index_t column, const Patch& patch, index_t k, index_t depth,
                                                       typename Step::Compute* state) {
  using Compute = typename Step::Compute;
  constexpr int kLanes = kLanesOf<Step>;
  const auto* from = x + ((patch.i * Step::kC + k) * Step::kD + patch.slice) * column;
  if constexpr (detail::is_same<typename Step::Element, Compute>) {
    if (lanes.contiguous && Step::kOutputs <= Step::kTile) {
      return {from + lanes.offset[0], Step::kD * column, column};
    }
  }
  if (patch.slices == Step::kD) {
    load_block<Step>(state, from, lanes, column, depth * Step::kD);
  } else if (patch.slices == 1) {
    load_block<Step>(state, from, lanes, Step::kD * column, depth);
  } else {
    for (index_t d = 0; d < depth; ++d) {
      load_block<Step>(state + d * patch.slices * kLanes, from + d * Step::kD * column, lanes, column, patch.slices);
    }
  }
  return {state, patch.slices * kLanes, kLanes};
}

template <class Step>
KRONOP_INLINE void multiply(const Input<typename Step::Compute>& input, const Patch& patch, index_t k, index_t depth,
                            const Scratch<Step>& scratch) {
  constexpr int kLanes = kLanesOf<Step>;
  for (index_t l = 0; l < patch.slices; ++l) {
    const auto* panels = scratch.panels + l * kPanelElements<Step> + k * Step::kTile;
    for (index_t block = 0; block < block_count(Step::kOutputs, Step::kTile); ++block) {
      const index_t j = block_start(block, Step::kOutputs, Step::kTile);
      register_tile<Step::kTile, Step::kVectors, Step::kWidth, Step::kUnroll>(
          panels + block * Step::kC * Step::kTile, 1, Step::kTile, input.data + l * input.l_step, input.k_step,
          scratch.output + (j * patch.slices + l) * kLanes, patch.slices * kLanes, depth, k > 0);
    }
  }
}

template <class Step, class LaneSet>
KRONOP_INLINE void store_output(OutputSink<Step> sink, const typename Step::Compute* state, const LaneSet& y,
                                index_t y_column, const LaneSet& z, index_t z_column, const Patch& patch,
                                const Block& block) {
  constexpr int kLanes = kLanesOf<Step>;
  const index_t feature = (patch.i * Step::kB + patch.output + patch.fresh) * Step::kD + patch.slice;
  const index_t outputs = Step::kOutputs - patch.fresh, skipped = patch.fresh * patch.slices;
  state += skipped * kLanes;
  sink = sink.at(feature * y_column, feature * z_column);
  if (sink.bias) sink.bias += skipped;
  if (patch.slices == Step::kD) {
    store_block<Step>(sink, state, y, y_column, z, z_column, outputs * Step::kD, block);
  } else if (patch.slices == 1) {
    store_block<Step>(sink, state, y, Step::kD * y_column, z, Step::kD * z_column, outputs, block);
  } else {
    for (index_t j = 0; j < outputs; ++j) {
      store_block<Step>(sink, state + j * patch.slices * kLanes, y, y_column, z, z_column, patch.slices, block);
      sink = sink.at(Step::kD * y_column, Step::kD * z_column);
      if (sink.bias) sink.bias += patch.slices;
    }
  }
}

// All rows [row, row + rows) of a patch whose weights are packed.
template <class Step, class Parameters>
void run_patch(const Parameters& parameters, const Patch& patch, const Scratch<Step>& scratch, index_t row,
               index_t rows) {
  constexpr int kLanes = kLanesOf<Step>;
  using Output = typename Step::Output;
  const index_t *xs = parameters.x_strides, *ys = parameters.y_strides, *zs = parameters.z_strides;
  const auto* x = static_cast<const typename Step::Element*>(parameters.x) + row * xs[0];
  const auto* z = static_cast<const Output*>(parameters.z);
  const OutputSink<Step> sink{typename Step::Epilogue(parameters.scalars),
                              static_cast<Output*>(parameters.y) + row * ys[0], z ? z + row * zs[0] : z,
                              parameters.bias ? scratch.bias : nullptr};
  Lanes<kLanes> from, to, source;
  for (index_t index = 0; index * kLanes < rows; ++index) {
    const Block block = lane_block(index, rows, kLanes);
    place_lanes(from, block, 1, xs[0], 0);
    place_lanes(to, block, 1, ys[0], 0);
    place_lanes(source, block, 1, zs[0], 0);
    for (index_t k = 0; k < Step::kC; k += Step::kDepth) {
      const index_t depth = k + Step::kDepth <= Step::kC ? Step::kDepth : Step::kC - k;
      multiply<Step>(load_input<Step>(x, from, xs[1], patch, k, depth, scratch.input), patch, k, depth, scratch);
    }
    store_output<Step>(sink, scratch.output, to, ys[1], source, zs[1], patch, block);
  }
}

}  // namespace ksparse

template <class Step, class Parameters>
int ksparse_matmul(const Parameters& parameters, bool alone) {
  using namespace ksparse;
  const index_t tiles = parts(parameters.rows, parameters.row_tile);
  const index_t patches = index_t(Step::kA) * parts(Step::kD, Step::kSlices) * parts(Step::kB, Step::kOutputs);
  share_out(patches * tiles, parameters.threads, alone, [&](index_t share, index_t first, index_t end) {
    const auto scratch = scratch_of<Step>(parameters, share);
    for (index_t index = first; index < end; ++index) {
      const Patch patch = patch_of<Step>(index / tiles);
      if (index == first || index % tiles == 0) pack_patch<Step>(parameters, patch, scratch);
      const index_t row = index % tiles * parameters.row_tile;
      const index_t left = parameters.rows - row;
      run_patch<Step>(parameters, patch, scratch, row, left < parameters.row_tile ? left : parameters.row_tile);
    }
  });
  return 0;
}

}  // namespace kronop
