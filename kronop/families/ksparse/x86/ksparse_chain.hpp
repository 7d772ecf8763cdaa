// Chains of Kronecker-sparse products in one kernel: a thread contracts chunks of rows with all
// factors, so that intermediates stay in its second-level cache. Weights are packed once, by all
// threads together.
//
// An intermediate is [feature][row of the chunk], so that lanes along the batch are loaded and
// stored without a transposition.
#pragma once

#include "ksparse.hpp"

namespace kronop {

// Strides are in elements. The workspace holds the packed weights of all factors and, from
// Chain::kSlicesAt on, a slice for each thread.
template <int kFactors, int kScalars, class Scalar>
struct KSparseChainParameters {
  const void* x;
  const void* weights[kFactors];
  const void* z;
  const void* bias;
  void* y;
  void* workspace;
  index_t rows, threads, stream, ahead;
  index_t x_strides[2], z_strides[2], y_strides[2], weight_strides[4 * kFactors], bias_stride;
  index_t slice;
  Scalar scalars[kScalars];
};

namespace ksparse {

// The epilogue of all factors but the last: it changes nothing.
template <class T>
struct Unchanged {
  using Compute = T;
  template <class Scalar>
  KRONOP_INLINE explicit Unchanged(const Scalar*) {}
  KRONOP_INLINE Compute operator()(Compute sum, Compute, Compute) const { return sum; }
};

template <class Chain, bool kLast>
struct Results {
  using Output = typename Chain::Element;
  using Epilogue = Unchanged<typename Chain::Compute>;
};

template <class Chain>
struct Results<Chain, true> {
  using Output = typename Chain::Output;
  using Epilogue = typename Chain::Epilogue;
};

// The constants of one factor, under the names of a single product's constants.
template <class Chain, int kIndex>
struct Factor : Results<Chain, kIndex + 1 == Chain::kFactors> {
  using Element = typename Chain::Element;
  using Compute = typename Chain::Compute;
  static constexpr int kWidth = Chain::kWidth[kIndex], kVectors = Chain::kVectors[kIndex];
  static constexpr bool kDirect = Chain::kDirect[kIndex], kStreams = Chain::kStreams[kIndex];
  static constexpr int kA = Chain::kA[kIndex], kB = Chain::kB[kIndex], kC = Chain::kC[kIndex],
                       kD = Chain::kD[kIndex];
  static constexpr int kRowTile = Chain::kRowTile[kIndex], kBlocks = Chain::kBlocks[kIndex];
  static constexpr int kSlices = Chain::kSlices[kIndex], kOutputs = Chain::kOutputs[kIndex];
  static constexpr int kDepth = Chain::kDepth[kIndex], kTile = Chain::kTile[kIndex],
                       kPitch = Chain::kPitch[kIndex];
  static constexpr int kBiasAt = Chain::kBiasAt[kIndex], kInputAt = Chain::kInputAt[kIndex];
  static constexpr int kResultsAt = Chain::kResultsAt[kIndex];
};

template <class Step, bool kAlongOutputs>
struct WayOf {
  using Type = AlongBatch<Step>;
};

template <class Step>
struct WayOf<Step, true> {
  using Type = AlongOutputs<Step>;
};

// The parameters of factor kIndex for the chunk of rows that starts at `row`. `slice` is the slice
// of the chunk's thread.
template <class Chain, int kIndex, int kFactors, int kScalars, class Scalar>
KSparseParameters<kScalars, Scalar> part_of(
    const KSparseChainParameters<kFactors, kScalars, Scalar>& chain, char* slice, index_t row,
    index_t rows) {
  KSparseParameters<kScalars, Scalar> part{};
  const auto place = [](index_t(&strides)[2], index_t along_rows, index_t along_columns) {
    strides[0] = along_rows, strides[1] = along_columns;
  };
  part.weights = chain.weights[kIndex];
  for (int i = 0; i < 4; ++i) part.weight_strides[i] = chain.weight_strides[4 * kIndex + i];
  part.rows = rows;
  part.row_tile = Chain::kRowTile[kIndex];
  if constexpr (kIndex == 0) {
    part.x = static_cast<const typename Chain::Element*>(chain.x) + row * chain.x_strides[0];
    place(part.x_strides, chain.x_strides[0], chain.x_strides[1]);
    part.ahead = chain.ahead;
  } else {
    part.x = slice + Chain::kMiddleAt[kIndex - 1];
    place(part.x_strides, 1, Chain::kMiddlePitch);
  }
  if constexpr (kIndex + 1 == kFactors) {
    using Output = typename Chain::Output;
    part.y = static_cast<Output*>(chain.y) + row * chain.y_strides[0];
    place(part.y_strides, chain.y_strides[0], chain.y_strides[1]);
    part.z = chain.z ? static_cast<const Output*>(chain.z) + row * chain.z_strides[0] : nullptr;
    place(part.z_strides, chain.z_strides[0], chain.z_strides[1]);
    part.bias = chain.bias;
    part.bias_stride = chain.bias_stride;
    part.stream = chain.stream;
    for (int i = 0; i < kScalars; ++i) part.scalars[i] = chain.scalars[i];
  } else {
    part.y = slice + Chain::kMiddleAt[kIndex];
    place(part.y_strides, 1, Chain::kMiddlePitch);
    part.scalars[0] = 1;
  }
  return part;
}

// Packs a thread's share of a factor's weights.
template <class Chain, int kIndex, class Parameters>
void pack_factor(const Parameters& chain, index_t share, index_t shares) {
  using Step = Factor<Chain, kIndex>;
  using Way = typename WayOf<Step, Chain::kAlongOutputs[kIndex] != 0>::Type;
  const auto part = part_of<Chain, kIndex>(chain, nullptr, 0, 0);
  char* packed = static_cast<char*>(chain.workspace) + Chain::kPackedAt[kIndex];
  for (index_t index = share; index < patch_count<Step>(); index += shares) {
    pack_patch<Way, Step>(part, patch_of<Step>(index), {packed + index * Step::kInputAt, nullptr});
  }
}

template <class Chain, int kIndex, class Parameters>
void run_factor(const Parameters& chain, char* slice, index_t row, index_t rows) {
  using Step = Factor<Chain, kIndex>;
  using Way = typename WayOf<Step, Chain::kAlongOutputs[kIndex] != 0>::Type;
  const auto part = part_of<Chain, kIndex>(chain, slice, row, rows);
  char* packed = static_cast<char*>(chain.workspace) + Chain::kPackedAt[kIndex];
  for (index_t index = 0; index < patch_count<Step>(); ++index) {
    const Scratch<Step> scratch{packed + index * Step::kInputAt, slice + Chain::kWorkAt};
    for (index_t tile = 0; tile < rows; tile += Step::kRowTile) {
      run_tile<Way, Step>(part, patch_of<Step>(index), scratch, tile);
    }
  }
}

template <class Chain, class Parameters, int... kIndices>
void run_chain(const Parameters& chain, index_t share, index_t shares, Indices<kIndices...>) {
  (pack_factor<Chain, kIndices>(chain, share, shares), ...);
  if (shares > 1) wait_for_team();
  char* slice = static_cast<char*>(chain.workspace) + Chain::kSlicesAt + share * chain.slice;
  const index_t blocks = parts(chain.rows, Chain::kLanes);
  const index_t begin = blocks * share / shares * Chain::kLanes,
                stop = blocks * (share + 1) / shares * Chain::kLanes;
  const index_t end = stop < chain.rows ? stop : chain.rows;
  for (index_t row = begin; row < end; row += Chain::kChunk) {
    const index_t rows = row + Chain::kChunk < end ? Chain::kChunk : end - row;
    (run_factor<Chain, kIndices>(chain, slice, row, rows), ...);
  }
  if (chain.stream) stream_end();
}

}  // namespace ksparse

template <class Chain, class Parameters>
int ksparse_chain(const Parameters& parameters, bool alone) {
  as_team(parameters.threads, alone, [&](index_t share, index_t shares) {
    ksparse::run_chain<Chain>(parameters, share, shares, FirstIndices<Chain::kFactors>{});
  });
  return 0;
}

}  // namespace kronop
