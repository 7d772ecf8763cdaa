// The products of a contraction on the tensor cores: fragments of both operands, and accumulators.
//
// A warp has kWarpLanes lanes, each with kWarpM x 16 rows and kWarpN x 8 outputs. Tiles of 16 rows
// are interleaved among the warps, and so are tiles of 8 outputs, so that the first part of all
// warps' results is contiguous in memory.
#pragma once

#include "contract_bytes.cuh"

namespace kronop {
namespace contract {

// Contracted steps of a slab: those of one MMA of a warp.
inline constexpr int kSlab = 16;

// The position of a warp in its block: its first lane, row, output and slab.
template <class Step>
struct Warp {
  int lane, m, n, slab;
  KRONOP_INLINE Warp() {
    const int index = threadIdx.x / 32;
    n = index % Step::kWarpsN * 8;
    m = index / Step::kWarpsN % Step::kWarpsM * 16;
    lane = index / (Step::kWarpsN * Step::kWarpsM) % Step::kWarpsLanes * Step::kWarpLanes;
    slab = index / (Step::kWarpsN * Step::kWarpsM * Step::kWarpsLanes);
  }
};

// The contracted step (of eight) of element r of thread t. Where lanes are contiguous (kSpread),
// the four threads of a quad have neighbouring steps; else each thread has two neighbours.
template <bool kSpread>
KRONOP_INLINE int step_of(int t, int r) {
  return kSpread ? t + 4 * r : 2 * t + r;
}

// How many lanes one vectorised access has, where lanes are contiguous.
template <int kLanes, int kBytes>
inline constexpr int vector_of_lanes =
    (kLanes & -kLanes) * kBytes < 16 ? (kLanes & -kLanes) : 16 / kBytes;

// Loads a thread's fragment of 16 (kHalves = 2) or 8 wide x 8 contracted indices of an operand, for
// each of the warp's lanes. Element h + kHalves r is wide index g + kApart h, contracted index (t,
// r).
template <class Tile, int kHalves, int kApart, bool kSpread, int kLanes, class T>
KRONOP_INLINE void load_elements(T (&to)[kLanes][2 * kHalves], const T* tile) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, crossed = Tile::kCrossed ? g / 4 : 0;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const T* from = tile + (g + kApart * h) * Tile::kWide;
    if constexpr (Tile::kOrder == kAlongOwn && !kSpread) {
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
        const auto pair = load<T, 2>(from + l * Tile::kLane + 2 * t);
        to[l][h] = pair.data[0], to[l][h + kHalves] = pair.data[1];
      }
    } else {
      constexpr int vector = Tile::kOrder == kAlongLanes ? vector_of_lanes<kLanes, sizeof(T)> : 1;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int l = 0; l < kLanes; l += vector) {
          const auto part = load<T, vector>(from + step_of<kSpread>(t, r ^ crossed) * Tile::kOwn +
                                            l * Tile::kLane);
#pragma unroll
          for (int v = 0; v < vector; ++v) to[l + v][h + kHalves * r] = part.data[v];
        }
      }
    }
  }
}

// Loads a thread's fragment of 16 wide indices (h = 1: the second eight, kApart after the first) x
// 16 contracted ones (i = 1: the last eight), as registers h + 2 i (half_mma.cuh). Where kPairs,
// they are registers 2 h + i: two right operands, each in two neighbouring registers. Elements have
// 16 bits, or 8 bits that are widened to 16.
template <class Tile, int kApart, bool kSpread, bool kPairs, int kLanes, class T>
KRONOP_INLINE void load_words(unsigned (&to)[kLanes][4], const T* tile) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  if constexpr (sizeof(T) == 1) {
    load_bytes<Tile, kApart, kPairs>(to, tile);
  } else if constexpr (Tile::kOrder != kAlongLanes) {
    constexpr bool turned = Tile::kOrder == kAlongRows;
    // Row `row` of a matrix is a wide index or, if transposed, a contracted one.
    const int row = threadIdx.x % 8, first = threadIdx.x / 8 % 2, second = threadIdx.x / 16 % 2;
    const int h = kPairs ? second : first, i = kPairs ? first : second;
    const int step = kSpread ? row / 2 + row % 2 * 4 : row;
    const T* from = turned ? tile + (8 * i + step) * Tile::kOwn + h * kApart
                           : tile + (row + h * kApart) * Tile::kWide + 8 * i;
#pragma unroll
    for (int l = 0; l < kLanes; ++l) load_matrices<turned>(to[l], from + l * Tile::kLane);
  } else if constexpr (!kSpread && Tile::kLanes == kLanes) {
    // Both contracted steps of a thread, with all lanes, are contiguous.
    constexpr int vector = vector_of_lanes<2 * kLanes, sizeof(T)>;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* from = tile + (g + kApart * h) * Tile::kWide + (8 * i + 2 * t) * Tile::kOwn;
        T run[2 * kLanes];
#pragma unroll
        for (int first = 0; first < 2 * kLanes; first += vector) {
          const auto part = load<T, vector>(from + first);
#pragma unroll
          for (int v = 0; v < vector; ++v) run[first + v] = part.data[v];
        }
#pragma unroll
        for (int l = 0; l < kLanes; ++l)
          to[l][kPairs ? 2 * h + i : h + 2 * i] = run[l].bits | unsigned(run[kLanes + l].bits)
                                                                    << 16;
      }
    }
  } else {
    constexpr int vector = vector_of_lanes<kLanes, sizeof(T)>;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* from = tile + (g + kApart * h) * Tile::kWide + 8 * i * Tile::kOwn;
#pragma unroll
        for (int l = 0; l < kLanes; l += vector) {
          const auto low = load<T, vector>(from + step_of<kSpread>(t, 0) * Tile::kOwn + l);
          const auto high = load<T, vector>(from + step_of<kSpread>(t, 1) * Tile::kOwn + l);
#pragma unroll
          for (int v = 0; v < vector; ++v)
            to[l + v][kPairs ? 2 * h + i : h + 2 * i] =
                low.data[v].bits | unsigned(high.data[v].bits) << 16;
        }
      }
    }
  }
}

// The accumulators of a warp.
template <class Step>
struct Sums {
  using Accumulator = typename Step::Accumulator;
  using Operand = typename Step::Factor;
  using X = Layout<Step::kXOrder, Step::kLanes, Step::kTileK, Step::kTileM, Step::kXPitch>;
  using W = Layout<Step::kWOrder, Step::kLanes, Step::kTileK, Step::kTileN, Step::kWPitch>;
  static constexpr int kLanes = Step::kWarpLanes, kM = Step::kWarpM, kN = Step::kWarpN;
  static constexpr int kRowsApart = 16 * Step::kWarpsM, kOutputsApart = 8 * Step::kWarpsN;
  static constexpr bool kSpread = Step::kWOrder == kAlongLanes;
  // An X that is contiguous along the contracted index is permuted in shared memory to W's order.
  static constexpr bool kXSpread = kSpread && Step::kXOrder != kAlongOwn;
  // Whether the MMAs have 16-bit operands (8-bit elements are widened). kRow and kHalf are the rows
  // from g to g + 1, and from one half of an MMA to the other.
  static constexpr bool kWords = sizeof(Operand) <= 2;
  using Multiplied = Either<sizeof(Operand) == 1, half_t, Operand>;
  static constexpr bool kRowsInPairs = sizeof(Operand) == 1 && Step::kXOrder == kAlongRows;
  static constexpr int kRow = kRowsInPairs ? 2 : 1, kHalf = kRowsInPairs ? 1 : 8;
  Accumulator of[kLanes][kM][kN][4] = {};

  // Adds this warp's slabs of a stage; the first one is at x and w.
  KRONOP_INLINE void add(const Operand* x, const Operand* w) {
    constexpr int at_once = kWords ? (kLanes > 1 ? 2 : 8) : 1;
#pragma unroll(at_once)
    for (int k = 0; k < Step::kTileK; k += kSlab * Step::kWarpsK) {
      if constexpr (kWords) {
        add_words(x + k * X::kOwn, w + k * W::kOwn);
      } else {
        add_elements(x + k * X::kOwn, w + k * W::kOwn);
      }
    }
  }

 private:
  KRONOP_INLINE void add_words(const Operand* x, const Operand* w) {
    unsigned b[kN / 2][kLanes][4];
#pragma unroll
    for (int n = 0; n < kN / 2; ++n)
      load_words<W, kOutputsApart, kSpread, true>(b[n], w + 2 * n * kOutputsApart * W::kWide);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      unsigned a[kLanes][4];
      load_words<X, 8, kXSpread, false>(a, x + m * kRowsApart * X::kWide);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
#pragma unroll
        for (int n = 0; n < kN; ++n)
          warp_multiply_add<Multiplied>(of[l][m][n], a[l], b[n / 2][l][n % 2 * 2],
                                        b[n / 2][l][n % 2 * 2 + 1]);
      }
    }
  }

  // NOTE: the tensor cores truncate when they accumulate, so only two MMAs are chained; ordinary
  // additions add up the results.
  KRONOP_INLINE void add_elements(const Operand* x, const Operand* w) {
    constexpr bool split = Step::kSplit;
    Split<Operand, 2, split> b[2][kLanes][kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        Operand values[kLanes][2];
        load_elements<W, 1, 0, kSpread>(values,
                                        w + n * kOutputsApart * W::kWide + step * 8 * W::kOwn);
#pragma unroll
        for (int l = 0; l < kLanes; ++l) b[step][l][n] = Split<Operand, 2, split>(values[l]);
      }
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      Operand a[2][kLanes][4];
#pragma unroll
      for (int step = 0; step < 2; ++step)
        load_elements<X, 2, 8, kXSpread>(a[step],
                                         x + m * kRowsApart * X::kWide + step * 8 * X::kOwn);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
        if constexpr (split) {
          Operand chains[kN][4] = {};
#pragma unroll
          for (int step = 0; step < 2; ++step)
            add_row(chains, Split<Operand, 4, true>(a[step][l]), b[step][l]);
#pragma unroll
          for (int n = 0; n < kN; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) of[l][m][n][e] += chains[n][e];
          }
        } else {
#pragma unroll
          for (int step = 0; step < 2; ++step)
            add_row(of[l][m], Split<Operand, 4, false>(a[step][l]), b[step][l]);
        }
      }
    }
  }
};

}  // namespace contract
}  // namespace kronop
