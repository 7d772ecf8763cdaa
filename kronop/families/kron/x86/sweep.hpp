// Mode products of one digit with its packed factor, for a whole block, from one buffer to another.
#pragma once

#include "kronop_x86/ahead.hpp"
#include "kronop_x86/tile.hpp"

namespace kronop {

// The planner's decisions for a digit: outputs (or rows) and vectors of the register tile, numbers
// in a vector, unroll factor of the contraction, and whether results overwrite their operands.
template <int kContracted_, int kProduced_, int kRows_, int kVectors_, int kWidth_, int kUnroll_,
          bool kInPlace_>
struct Digit {
  static constexpr int kContracted = kContracted_, kProduced = kProduced_;
  static constexpr int kRows = kRows_, kVectors = kVectors_, kWidth = kWidth_, kUnroll = kUnroll_;
  static constexpr bool kInPlace = kInPlace_;
};

// A tensor (left, size, right, lanes) in a buffer: lanes are contiguous; `step` is the stride along
// `right`.
template <class T>
struct Lined {
  T* data;
  index_t step;
};

// All outputs of one chunk of lanes: single numbers of a factor times vectors of lanes.
// NOTE: AVX-512 multiplies by a number that it broadcasts from memory in the same instruction. The
// empty asm hides from the compiler that the next chunk uses the same numbers: it would broadcast
// all of them to the stack, and do so anew for every few chunks (8 x 8 factors: 27 to 45 GFLOP/s
// rather than 68). Without AVX-512 doing so is as good or up to 6 % better.
template <class D, int kVectors, bool kStream, bool kHalves = false, class Compute>
KRONOP_INLINE void lane_chunk(const Compute* in, index_t in_step, Compute* out, index_t out_step,
                              const Compute* panels, Ahead& ahead, index_t in_high = 0,
                              index_t out_high = 0) {
  for (index_t block = 0; block < block_count(D::kProduced, D::kRows); ++block) {
    const index_t q = block_start(block, D::kProduced, D::kRows);
    const Compute* panel = panels + block * D::kContracted * D::kRows;
#if defined(__AVX512F__)
    asm("" : "+r"(panel) : "r"(in));
#endif
    register_tile<D::kRows, kVectors, D::kWidth, D::kUnroll, kStream, kHalves, D::kInPlace>(
        panel, 1, D::kRows, in, in_step, out + q * out_step, out_step, D::kContracted, false,
        in_high, out_high);
    ahead.some();
  }
}

// (left, P, right, lanes) -> (left, Q, right, lanes), with vectors along the lanes, of which there
// are at least kWidth. The last vectors overlap the previous ones.
template <class D, bool kStream, class Compute>
__attribute__((noinline)) void lane_product(index_t left, index_t right, index_t lanes,
                                            Lined<const Compute> in, Lined<Compute> out,
                                            const Compute* panels, Ahead& ahead) {
  const index_t in_step = right * in.step, out_step = right * out.step;
  if (in.step == lanes && out.step == lanes) lanes *= right, right = 1;
  constexpr int kChunk = D::kVectors * D::kWidth;
  for (index_t l = 0; l < left; ++l) {
    for (index_t r = 0; r < right; ++r) {
      const Compute* from = in.data + l * D::kContracted * in_step + r * in.step;
      Compute* to = out.data + l * D::kProduced * out_step + r * out.step;
      if (D::kVectors == 1 || lanes >= kChunk) {
        for (index_t lane = 0; lane < lanes; lane += kChunk) {
          const index_t at = lane + kChunk <= lanes ? lane : lanes - kChunk;
          lane_chunk<D, D::kVectors, kStream>(from + at, in_step, to + at, out_step, panels, ahead);
        }
      } else {
        for (index_t lane = 0; lane < lanes; lane += D::kWidth) {
          const index_t at = lane + D::kWidth <= lanes ? lane : lanes - D::kWidth;
          lane_chunk<D, 1, kStream>(from + at, in_step, to + at, out_step, panels, ahead);
        }
      }
    }
  }
}

// (left, P, run) -> (left, Q, run), contiguous, where a run is half a vector and `left` is even:
// two neighbours along `left` share a vector.
// NOTE: 8 x 8 factors run at 131 GFLOP/s with AVX-512, and with half vectors at 68.
template <class D, class Compute>
__attribute__((noinline)) void pair_product(index_t left, const Compute* in, Compute* out,
                                            const Compute* panels, Ahead& ahead) {
  constexpr index_t kRun = D::kWidth / 2;
  for (index_t l = 0; l < left; l += 2) {
    lane_chunk<D, 1, false, true>(in + l * D::kContracted * kRun, kRun,
                                  out + l * D::kProduced * kRun, kRun, panels, ahead,
                                  D::kContracted * kRun, D::kProduced * kRun);
  }
}

// How many rows stay in the nearest cache while all panels of a factor are read.
template <class D, class Compute>
inline constexpr index_t kRowsAtOnce = [] {
  const index_t fit = 16384 / (D::kContracted * index_t(sizeof(Compute))) / D::kRows * D::kRows;
  return fit > D::kRows ? fit : index_t(D::kRows);
}();

// (rows, P) -> (rows, Q), contiguous, with vectors along Q >= kWidth. The last vectors overlap the
// previous ones, and so do the last rows if there are at least kRows.
template <class D, bool kStream, class Compute>
__attribute__((noinline)) void row_product(index_t rows, const Compute* in, Compute* out,
                                           const Compute* panels, Ahead& ahead) {
  constexpr index_t kOutputs = D::kVectors * D::kWidth,
                    kBlocks = block_count(D::kProduced, kOutputs);
  const auto tile = [&](auto height, index_t row, index_t block) __attribute__((always_inline)) {
    register_tile<decltype(height)::value, D::kVectors, D::kWidth, D::kUnroll, kStream>(
        in + row * D::kContracted, D::kContracted, 1, panels + block * D::kContracted * kOutputs,
        kOutputs, out + row * D::kProduced + block_start(block, D::kProduced, kOutputs),
        D::kProduced, D::kContracted);
    ahead.some();
  };
  if (rows < D::kRows) {
    for (index_t row = 0; row < rows; ++row) {
      for (index_t block = 0; block < kBlocks; ++block) tile(Constant<1>{}, row, block);
    }
    return;
  }
  for (index_t first = 0; first < rows; first += kRowsAtOnce<D, Compute>) {
    const index_t end =
        first + kRowsAtOnce<D, Compute> < rows ? first + kRowsAtOnce<D, Compute> : rows;
    for (index_t block = 0; block < kBlocks; ++block) {
      for (index_t row = first; row < end; row += D::kRows) {
        tile(Constant<D::kRows>{}, row + D::kRows <= rows ? row : rows - D::kRows, block);
      }
    }
  }
}

}  // namespace kronop
