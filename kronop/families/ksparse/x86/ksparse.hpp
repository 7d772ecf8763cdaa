// Kronecker-sparse matmul: for every i and l a dense product over the batch,
//
//     Y[n, i, j, l] = sum over k of X[n, i, k, l] W[i, j, k, l].
//
// A work item is kBlocks of i, kSlices of l, kOutputs of j and a tile of rows. Weights are packed
// once for all items that differ only in their rows. An item is contracted kDepth of k at a time.
// The plan chooses whether vectors are along the batch or along the outputs (ksparse_ways.hpp).
#pragma once

#include "ksparse_ways.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop {

// Strides are in elements; features are the columns. The scratch memory of one thread is `slice`
// bytes, whole cache lines: weight panels, and from kBiasAt, kInputAt and kResultsAt on bias, X and
// results. `stream`: results exceed the caches and are written with streaming stores. `ahead`: X
// exceeds the caches and is prefetched.
template <int kScalars, class Scalar>
struct KSparseParameters {
  const void* x;
  const void* weights;
  const void* z;
  const void* bias;
  void* y;
  void* workspace;
  index_t rows, row_tile, threads, stream, ahead;
  index_t x_strides[2], z_strides[2], y_strides[2], weight_strides[4], bias_stride;
  index_t slice;
  Scalar scalars[kScalars];
};

namespace ksparse {

constexpr index_t parts(index_t count, index_t size) { return (count + size - 1) / size; }

template <class Step>
constexpr index_t patch_count() {
  return parts(Step::kA, Step::kBlocks) * (Step::kD / Step::kSlices) *
         parts(Step::kB, Step::kOutputs);
}

template <class Step>
KRONOP_INLINE Patch patch_of(index_t index) {
  constexpr index_t kSliceParts = Step::kD / Step::kSlices,
                    kOutputParts = parts(Step::kB, Step::kOutputs);
  const index_t block = index / kOutputParts / kSliceParts * Step::kBlocks;
  const index_t slice = index / kOutputParts % kSliceParts * Step::kSlices;
  const index_t j = index % kOutputParts * Step::kOutputs;
  const auto clipped = [](index_t size, index_t left) { return size < left ? size : left; };
  return {block, clipped(Step::kBlocks, Step::kA - block), slice, j,
          clipped(Step::kOutputs, Step::kB - j)};
}

// `packed`: kInputAt bytes with the weights and the bias of one patch. `work`: X and results of its
// rows.
template <class Step>
struct Scratch {
  using Compute = typename Step::Compute;
  using Wide = typename Step::Epilogue::Compute;
  char *packed, *work;

  Compute* panels() const { return reinterpret_cast<Compute*>(packed); }
  Wide* bias() const { return reinterpret_cast<Wide*>(packed + Step::kBiasAt); }
  Compute* input() const { return reinterpret_cast<Compute*>(work); }
  Compute* results() const {
    return reinterpret_cast<Compute*>(work + (Step::kResultsAt - Step::kInputAt));
  }
};

template <class Way, class Step, class Parameters>
void pack_patch(const Parameters& parameters, const Patch& patch, const Scratch<Step>& scratch) {
  using Element = typename Step::Element;
  const index_t *strides = parameters.weight_strides, bias_stride = parameters.bias_stride;
  const auto* weights = static_cast<const Element*>(parameters.weights) +
                        patch.output * strides[1] + patch.slice * strides[3];
  const auto* bias = static_cast<const typename Step::Output*>(parameters.bias);
  for (index_t i = 0; i < patch.blocks; ++i) {
    Way::pack(scratch.panels() + i * Way::kPanels,
              Weights<Element>{weights + (patch.block + i) * strides[0], strides[1], strides[2],
                               strides[3]},
              patch);
    for (index_t j = 0; bias && j < patch.outputs; ++j) {
      const index_t feature =
          ((patch.block + i) * Step::kB + patch.output + j) * Step::kD + patch.slice;
      load_run(scratch.bias() + (i * Step::kOutputs + j) * Step::kSlices,
               bias + feature * bias_stride, bias_stride, Step::kSlices);
    }
  }
}

// Computes rows [row, row + rows) of block i of a patch whose weights are packed.
template <class Way, class Step, class Parameters>
void run_block(const Parameters& parameters, const Patch& patch, const Scratch<Step>& scratch,
               index_t i, index_t row, index_t rows) {
  using Result = typename Step::Output;
  const index_t *xs = parameters.x_strides, *ys = parameters.y_strides, *zs = parameters.z_strides;
  const index_t feature = ((patch.block + i) * Step::kB + patch.output) * Step::kD + patch.slice;
  const auto* z = static_cast<const Result*>(parameters.z);
  const bool plain = Step::kDirect && parameters.scalars[0] == 1 && !z && !parameters.bias;
  const OutputSink<Step> sink{
      typename Step::Epilogue(parameters.scalars),
      static_cast<Result*>(parameters.y) + row * ys[0] + feature * ys[1],
      z ? z + row * zs[0] + feature * zs[1] : z,
      parameters.bias ? scratch.bias() + i * Step::kOutputs * Step::kSlices : nullptr,
      plain,
      parameters.stream != 0};
  const Output<Step> to{sink, ys[0], ys[1], zs[0], zs[1]};
  const auto* x = static_cast<const typename Step::Element*>(parameters.x) + row * xs[0] +
                  ((patch.block + i) * Step::kC * Step::kD + patch.slice) * xs[1];
  const index_t part = Step::kDepth * Step::kD * xs[1], block = Step::kC * Step::kD * xs[1];
  // What is prefetched during the last part of k: X of the next block, or of the first block of the
  // next rows; null if there is neither.
  const typename Step::Element* after = nullptr;
  if (i + 1 < patch.blocks) {
    after = x + block;
  } else if (row + rows < parameters.rows) {
    after = x - i * block + rows * xs[0];
  }
  Input<typename Step::Element> from{x, xs[0], xs[1], rows};
  for (index_t k = 0; k < Step::kC; k += Step::kDepth, from.data += part) {
    const index_t depth = k + Step::kDepth <= Step::kC ? Step::kDepth : Step::kC - k;
    Way::multiply(scratch.input(), scratch.results(), scratch.panels() + i * Way::kPanels, from, to,
                  patch, k, depth,
                  !parameters.ahead      ? nullptr
                  : k + depth < Step::kC ? from.data + part
                                         : after);
  }
  Way::finish(scratch.results(), from, to, patch);
}

// Computes the tile of rows that starts at `row`.
template <class Way, class Step, class Parameters>
void run_tile(const Parameters& parameters, const Patch& patch, const Scratch<Step>& scratch,
              index_t row) {
  const index_t left = parameters.rows - row,
                rows = left < parameters.row_tile ? left : parameters.row_tile;
  for (index_t i = 0; i < patch.blocks; ++i)
    run_block<Way, Step>(parameters, patch, scratch, i, row, rows);
}

template <class Way, class Step, class Parameters>
int matmul(const Parameters& parameters, bool alone) {
  const index_t tiles = parts(parameters.rows, parameters.row_tile);
  share_out(patch_count<Step>() * tiles, parameters.threads, alone,
            [&](index_t share, index_t first, index_t end) {
              char* slice = static_cast<char*>(parameters.workspace) + share * parameters.slice;
              const Scratch<Step> scratch{slice, slice + Step::kInputAt};
              for (index_t index = first; index < end; ++index) {
                const Patch patch = patch_of<Step>(index / tiles);
                if (index == first || index % tiles == 0)
                  pack_patch<Way, Step>(parameters, patch, scratch);
                run_tile<Way, Step>(parameters, patch, scratch,
                                    index % tiles * parameters.row_tile);
              }
              if (parameters.stream) stream_end();
            });
  return 0;
}

}  // namespace ksparse

template <class Step, class Parameters>
int ksparse_along_batch(const Parameters& parameters, bool alone) {
  return ksparse::matmul<ksparse::AlongBatch<Step>, Step>(parameters, alone);
}

template <class Step, class Parameters>
int ksparse_along_outputs(const Parameters& parameters, bool alone) {
  return ksparse::matmul<ksparse::AlongOutputs<Step>, Step>(parameters, alone);
}

}  // namespace kronop
