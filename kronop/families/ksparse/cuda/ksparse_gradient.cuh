// The gradient of weights, Y[p, q] = sum over k of G[k, p] X[k, q]: a small product over a very
// long index.
//
// G and X are operands with a digit of their own (p or q), of which a block has a tile. The long
// index k is divided into tiles as well, which the shares process in turn. A block sums over its
// share in registers and writes its sums to the workspace, where add_shares.cuh adds up the shares.
// A position is the unit of copies along k: kVector elements if k is contiguous in memory, else a
// row with all of the digit's tile.
//
// In shared memory an operand has the same order as in memory, so that copies are vectorised:
//   k contiguous: [slab][own][128 bytes along k], where 16-byte chunks swap halves for odd `own`;
//   else:         [row][own][lane], with kLanes lanes contiguous in memory. Lanes belong to one sum
//                 where kTied, else each to a matrix of its own.
// A bite is what a warp multiplies at once: kSteps steps of 8 contracted indices or, with several
// lanes, one such step of each lane.
#pragma once

#include "gradient_operands.cuh"

namespace kronop {

struct KSparseGradientParameters {
  void* x;
  void* g;
  void* partial;
  long long shares, tiles;                  // blocks along k, and tiles of k in all
  long long extent[3], x_sum[3], g_sum[3];  // positions along the axes of k, and their strides
  long long run;                            // elements along the last axis
  long long pass_step[3],
      tile_step[3];  // digits of the positions from one pass, or tile, to the next
  long long x_own, g_own, x_lane, g_lane;
  long long matrix[3], x_matrix[3], g_matrix[3];  // independent products of the same sizes
};

namespace gradient {

// 16-bit numbers are exact operands of the tensor cores and need no rounding.
template <class Step, int N>
KRONOP_INLINE auto operand(const typename Step::Accumulator (&from)[N]) {
  using Parts = Split<typename Step::Accumulator, N, Step::kSplit>;
  if constexpr (sizeof(typename Step::Input) == 2) {
    Parts parts;
#pragma unroll
    for (int i = 0; i < N; ++i) parts.value[i] = from[i];
    return parts;
  } else {
    return Parts(from);
  }
}

// A warp's part of the block's matrices: its sums, and their position.
template <class Step>
struct Warp {
  using Compute = typename Step::Accumulator;
  static constexpr int kBlocksM = (Step::kHalvesP + 1) / 2, kBlocksN = Step::kHalvesQ;
  static constexpr int kThreads = Step::kWarpsP * Step::kWarpsQ * 32;  // of the warps that share k
  static constexpr bool kApart = Step::kMatrices > 1;
  static constexpr int kLaneSets =
      Step::kAlongSums || Step::kLanes == 1 ? 1 : Step::kLanes / Step::kSteps;
  static constexpr int kValues = Step::kMatrices * kBlocksM * kBlocksN * 4;
  Compute sums[Step::kMatrices][kBlocksM][kBlocksN][4] = {};
  int p, q, part;  // first indices in the block's tile; which of the warps along k

  KRONOP_INLINE Warp() {
    const int warp = threadIdx.x / 32;
    p = warp % Step::kWarpsP * (8 * Step::kHalvesP);
    q = warp / Step::kWarpsP % Step::kWarpsQ * (8 * Step::kHalvesQ);
    part = warp / (Step::kWarpsP * Step::kWarpsQ);
  }

  KRONOP_INLINE void multiply(const unsigned char* stage) {
#pragma unroll 1
    for (int bite = part; bite < Step::kBites; bite += Step::kWarpsK) {
#pragma unroll(kApart ? kLaneSets : 1)
      for (int lanes = 0; lanes < kLaneSets; ++lanes)
        multiply_bite(stage, bite, lanes * Step::kSteps);
    }
  }

  // The steps of one matrix are a chain of MMAs.
  // NOTE: the tensor cores truncate when they accumulate, so chains are short, and ordinary
  // additions add up their sums.
  KRONOP_INLINE void multiply_bite(const unsigned char* stage, int bite, int lanes) {
    constexpr int chain = kApart ? 1 : Step::kSteps;
    Compute left[Step::kHalvesP][Step::kSteps][2], right[Step::kHalvesQ][Step::kSteps][2];
    OperandG<Step>::load(stage, p, bite, lanes, left);
    OperandX<Step>::load(stage + Step::kBytesP, q, bite, lanes, right);
#pragma unroll
    for (int first = 0; first < Step::kSteps; first += chain) {
      Split<Compute, 2, Step::kSplit> b[chain][kBlocksN];
#pragma unroll
      for (int s = 0; s < chain; ++s) {
#pragma unroll
        for (int n = 0; n < kBlocksN; ++n) b[s][n] = operand<Step>(right[n][first + s]);
      }
#pragma unroll
      for (int m = 0; m < kBlocksM; ++m) {
        auto& to = sums[kApart ? lanes + first : 0][m];
        Compute found[kBlocksN][4] = {};
#pragma unroll
        for (int s = 0; s < chain; ++s) {
          add_row(detail::same<Compute, double> ? to : found, row(left, m, first + s), b[s]);
        }
        if constexpr (!detail::same<Compute, double>) add(to, found);
      }
    }
  }

  // The left operand of one MMA: two halves, the second of which is zero if it does not exist.
  static KRONOP_INLINE auto row(const Compute (&left)[Step::kHalvesP][Step::kSteps][2], int m,
                                int s) {
    constexpr int last = Step::kHalvesP - 1;
    Compute values[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (2 * m + i % 2 <= last) values[i] = left[2 * m + i % 2][s][i / 2];
    }
    return operand<Step>(values);
  }
  static KRONOP_INLINE void add(Compute (&to)[kBlocksN][4], const Compute (&found)[kBlocksN][4]) {
#pragma unroll
    for (int n = 0; n < kBlocksN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] += found[n][i];
    }
  }

  // Adds the sums of all warps along k to those of the first ones, in a fixed order, through shared
  // memory.
  KRONOP_INLINE void gather(unsigned char* shared) {
    Compute* place = reinterpret_cast<Compute*>(shared) + threadIdx.x % kThreads;
    Compute(&flat)[kValues] = reinterpret_cast<Compute(&)[kValues]>(sums);
    if (part > 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) place[((part - 1) * kValues + i) * kThreads] = flat[i];
    }
    __syncthreads();
    if (part > 0) return;
#pragma unroll 1
    for (int other = 0; other < Step::kWarpsK - 1; ++other) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) flat[i] += place[(other * kValues + i) * kThreads];
    }
  }

  // Writes the in-bounds part of the block's matrices, from (p0, q0) on, to [matrix][p][q].
  KRONOP_INLINE void store(Compute* to, int p0, int q0) const {
    const int quad = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int matrix = 0; matrix < Step::kMatrices; ++matrix) {
#pragma unroll
      for (int h = 0; h < Step::kHalvesP; ++h) {
        const int row = p0 + p + OperandG<Step>::own(h, quad);
#pragma unroll
        for (int n = 0; n < kBlocksN; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int column = q0 + q + OperandX<Step>::own(n, 2 * t + r);
            if (row < Step::kP && column < Step::kQ) {
              to[(matrix * Step::kP + row) * Step::kQ + column] =
                  sums[matrix][h / 2][n][h % 2 * 2 + r];
            }
          }
        }
      }
    }
  }
};

// The work of a block: a tile of one product, and its share of k.
template <class Step>
struct Place {
  using Input = typename Step::Input;
  int p, q;
  long long share, product;
  const Input *g, *x;

  KRONOP_INLINE explicit Place(const KSparseGradientParameters& parameters) {
    constexpr int tiles_p = (Step::kP + Step::kTileP - 1) / Step::kTileP,
                  tiles_q = (Step::kQ + Step::kTileQ - 1) / Step::kTileQ;
    const int tile = blockIdx.x % (tiles_p * tiles_q);
    p = tile % tiles_p * Step::kTileP, q = tile / tiles_p * Step::kTileQ;
    const long long rest = blockIdx.x / (tiles_p * tiles_q);
    const long long products = parameters.matrix[0] * parameters.matrix[1] * parameters.matrix[2];
    share = rest / products, product = rest % products;
    g = static_cast<const Input*>(parameters.g) + p * parameters.g_own;
    x = static_cast<const Input*>(parameters.x) + q * parameters.x_own;
    for_each_digit<3>(product, parameters.matrix, [&](int axis, long long digit) {
      g += digit * parameters.g_matrix[axis];
      x += digit * parameters.x_matrix[axis];
    });
  }
};

// Starts the copies of the iteration's next tile.
template <class Step>
KRONOP_INLINE void copy_tile(unsigned char* stage, const KSparseGradientParameters& parameters,
                             const Place<Step>& place, const Slot<Step>& slot, Walk& walk) {
  constexpr int bytes = int(sizeof(typename Step::Input));
  const Walk start = walk;
#pragma unroll
  for (int pass = 0; pass < Slot<Step>::kPasses; ++pass) {
    int there = walk.digit[0] < int(parameters.extent[0]) ? Step::kVector : 0;
    if constexpr (Step::kAlongSums) {
      const long long left = parameters.run - (long long)walk.digit[2] * Step::kVector;
      if (there > left) there = int(left);
    }
    const int position = slot.position + pass * (Step::kPositions / Slot<Step>::kPasses);
    OperandG<Step>::copy(stage, place.g + walk.offset(parameters.g_sum), parameters.g_own,
                         parameters.g_lane, position, slot.slot, Step::kP - place.p, there * bytes);
    OperandX<Step>::copy(stage + Step::kBytesP, place.x + walk.offset(parameters.x_sum),
                         parameters.x_own, parameters.x_lane, position, slot.slot,
                         Step::kQ - place.q, there * bytes);
    if (pass + 1 < Slot<Step>::kPasses) walk.advance(parameters.pass_step, parameters.extent);
  }
  if (Slot<Step>::kPasses > 1) walk = start;
  walk.advance(parameters.tile_step, parameters.extent);
}

}  // namespace gradient

template <class Step, class Parameters>
KRONOP_INLINE void ksparse_gradient(const Parameters& parameters) {
  using Compute = typename Step::Accumulator;
  constexpr int bytes = Step::kBytesP + Step::kBytesQ;
  unsigned char* shared = shared_memory();
  const gradient::Place<Step> place(parameters);
  const gradient::Slot<Step> slot;
  gradient::Walk walk(place.share * Step::kPositions + slot.position, parameters.extent);
  gradient::Warp<Step> warp;
  const int tiles =
      int((parameters.tiles - place.share + parameters.shares - 1) / parameters.shares);
#pragma unroll 1
  for (int tile = 0; tile < Step::kStages - 1; ++tile) {
    if (tile < tiles)
      gradient::copy_tile<Step>(shared + tile * bytes, parameters, place, slot, walk);
    commit_copies();
  }
  int stage = 0, next = Step::kStages - 1;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_older_copies<Step::kStages - 2>();
    __syncthreads();
    if (tile + Step::kStages - 1 < tiles)
      gradient::copy_tile<Step>(shared + next * bytes, parameters, place, slot, walk);
    commit_copies();
    warp.multiply(shared + stage * bytes);
    stage = stage + 1 == Step::kStages ? 0 : stage + 1;
    next = next + 1 == Step::kStages ? 0 : next + 1;
  }
  if constexpr (Step::kWarpsK > 1) {
    __syncthreads();
    warp.gather(shared);
  }
  const long long products = parameters.matrix[0] * parameters.matrix[1] * parameters.matrix[2];
  Compute* to = static_cast<Compute*>(parameters.partial) +
                (place.share * products + place.product) * (Step::kMatrices * Step::kP * Step::kQ);
  if (warp.part == 0) warp.store(to, place.p, place.q);
}

}  // namespace kronop
