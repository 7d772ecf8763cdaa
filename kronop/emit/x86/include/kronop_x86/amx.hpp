// Mode products on AMX tiles: sweeps over one digit, and the sinks that store their results.
// Operands are bf16 with sums in float32, or int8 with sums in int32; Kronecker matmuls are bf16.
//
// A tile product multiplies runs of kPack numbers that are neighbours along the contracted digit.
// For the last digit of a row-major tensor, memory holds them that way. For any other digit the
// data is interleaved in *lines*: for every element of the trailing digits, line i holds the kPack
// numbers of the digit from i kPack on. A sweep (one mode product) rounds its results directly to
// the lines of the digit that is contracted next, with one shuffle for each vector of results. So
// no transposition is needed between two sweeps. Subnormal numbers are flushed to zero.
//
// A block of results is at most 2 x 2 tiles of 16 x 16 sums. Its tiles are stored to a small array,
// which a sink reads at once. Delaying the sink until the next block is being multiplied would save
// 5 to 15 % of this work, but nothing where X and Y are in memory (Emerald Rapids). The vector
// instruction vdpbf16ps was slower than float32 arithmetic.
//
// Extents are arbitrary: the last block ends at the last result and overlaps the previous block. A
// contracted digit is zero-padded to whole steps, both in the packed factor and in the lines: if
// only one of the two were zero, an infinity in the other would give NaN.
#pragma once

#include "kronop_x86/amx_tiles.hpp"

#define KRONOP_UNROLL_SOME _Pragma("GCC unroll 4")

namespace kronop {
namespace packed {

// ---- Sinks ----

// Stores the first kCount numbers of a vector.
template <int kCount, class T, class V>
KRONOP_INLINE void store_first(T* to, const V& value) {
  __builtin_memcpy(to, &value, kCount * sizeof(T));
}

// Stores kCount pairs: a number from `low` on and its partner, `partner_at` numbers later, or zero
// if it has none.
template <int kCount>
KRONOP_INLINE void store_pairs(bfloat16_t* line, const float* low, bool partner,
                               index_t partner_at) {
  const auto high = partner ? load<float, 16>(low + partner_at) : Vector<float, 16>{};
  store_first<kCount * 2>(line, pairs(load<float, 16>(low), high));
}

// Stores the last digit's results to the lines of the digit before it. The rows of a block are
// consecutive numbers of that digit, and two rows make a line of pairs. The last of an odd number
// of rows is paired with zero. If a block begins in the middle of a pair, its first row is skipped:
// the previous block, which it overlaps, has stored that pair.
struct RowLines {
  bfloat16_t* to;
  index_t pitch;

  template <Shape kShape>
  KRONOP_INLINE void block(const float* sums, const Place& place) const {
    if (place.row % 2) {
      store_lines<kShape, 1>(sums, place);
    } else {
      store_lines<kShape, 0>(sums, place);
    }
  }

 private:
  template <Shape kShape, int kFirst>
  KRONOP_INLINE void store_lines(const float* sums, const Place& place) const {
    constexpr int kEnd = kShape.rows.span(), kPairs = (kEnd - kFirst) / 2;
    const index_t step = 2 * pitch;
    bfloat16_t* line = to + (place.row + kFirst) / 2 * step + place.column * 2;
    sums += kFirst * kPitch;
    KRONOP_UNROLL_SOME
    for (int i = 0; i < kPairs; ++i, line += step, sums += 2 * kPitch)
      store_line<kShape.columns, true>(line, sums);
    if constexpr (kFirst + 2 * kPairs < kEnd) store_line<kShape.columns, false>(line, sums);
  }

  template <Cut kColumns, bool kPartner>
  static KRONOP_INLINE void store_line(bfloat16_t* line, const float* low) {
    store_pairs<kColumns.size>(line, low, kPartner, kPitch);
    if constexpr (kColumns.second) {
      store_pairs<kColumns.size>(line + 2 * kColumns.second, low + kColumns.second, kPartner,
                                 kPitch);
    }
  }
};

// Stores any other digit's results to one line of the digit that is contracted next. The first half
// of a block's columns belongs to one number of that digit and the second half to its neighbour: a
// pair has one element of each. If `alone`, there is no neighbour, and zeros replace it.
struct PairLine {
  bfloat16_t* to;
  index_t trail;
  bool alone;

  template <Shape kShape>
  KRONOP_INLINE void block(const float* sums, const Place& place) const {
    constexpr int kSize = kShape.columns.size, kEnd = kShape.rows.span();
    const index_t step = 2 * trail;
    const bool partner = !alone;
    bfloat16_t* line = to + place.row * step + place.column * 2;
    KRONOP_UNROLL_SOME
    for (int i = 0; i < kEnd; ++i, line += step, sums += kPitch)
      store_pairs<kSize>(line, sums, partner, kSize);
  }
};

// Rounds a block to rows of bf16 with leading dimension `stride`.
struct Rows {
  bfloat16_t* to;
  index_t stride;

  template <Shape kShape>
  KRONOP_INLINE void block(const float* sums, const Place& place) const {
    constexpr Cut kColumns = kShape.columns;
    constexpr int kEnd = kShape.rows.span();
    bfloat16_t* line = to + place.row * stride + place.column;
    const index_t step = stride;
    KRONOP_UNROLL_SOME
    for (int i = 0; i < kEnd; ++i, line += step, sums += kPitch) {
      const auto both = narrow(load<float, 16>(sums), load<float, 16>(sums + kColumns.second));
      if constexpr (kColumns.second == kTile) {
        store(line, both);
      } else {
        const auto halves = bit_cast<Halves>(both);
        store_first<kColumns.size>(line, halves.low);
        if constexpr (kColumns.second)
          store_first<kColumns.size>(line + kColumns.second, halves.high);
      }
    }
  }

 private:
  struct Halves {
    Vector<uint16_t, 16> low, high;
  };
};

// Copies numbers with streaming stores for whole cache lines; the numbers before the first whole
// line and after the last one are stored as usual.
template <class T>
void copy_past(T* to, const T* from, index_t count) {
  constexpr index_t kLine = kLineBytes / sizeof(T);
  const index_t before = -reinterpret_cast<uint64_t>(to) % kLineBytes / sizeof(T);
  index_t done = before < count ? before : count;
  __builtin_memcpy(to, from, done * sizeof(T));
  for (; done + kLine <= count; done += kLine) {
    kronop::stream(to + done,
                   load<uint8_t, kLineBytes>(reinterpret_cast<const uint8_t*>(from + done)));
  }
  __builtin_memcpy(to + done, from + done, (count - done) * sizeof(T));
}

// Copies rows of `columns` numbers with streaming stores, to leading dimension `stride`.
template <class T>
void copy_rows_past(T* to, index_t stride, const T* from, index_t rows, index_t columns) {
  if (stride == columns) columns *= rows, rows = 1;
  for (index_t i = 0; i < rows; ++i) copy_past(to + i * stride, from + i * columns, columns);
}

// Multiplies one block and passes its sums to the sink.
template <Shape kShape, class Sum = float, class Sink>
KRONOP_INLINE void one_block(TileEngine& engine, const Operand& a, const Operand& b, int steps,
                             const Place& place, const Sink& sink) {
  alignas(64) Sum sums[kPitch * kPitch];
  engine.ahead.some();
  TileEngine::block<kShape>(a, b, steps, sums);
  sink.template block<kShape>(sums, place);
}

constexpr index_t fresh(const Cut& cut, index_t block, index_t extent) {
  return block * cut.span() - cut.start(block, extent);
}

// ---- Sweeps ----

// Copies `count` rows, each zero-padded to whole steps.
template <index_t kContracted, class T>
void stage_rows(T* to, const T* from, index_t row_stride, index_t column_stride, int count) {
  constexpr int kPadded = DepthOf<T>{kContracted}.padded();
  for (int i = 0; i < count; ++i, from += row_stride) {
    if (column_stride == 1) {
      __builtin_memcpy(to, from, kContracted * sizeof(T));
    } else {
      for (index_t p = 0; p < kContracted; ++p) to[p] = from[p * column_stride];
    }
    for (index_t p = kContracted; p < kPadded; ++p) to[p] = T{};
    to += kPadded;
  }
}

// Contracts the last digit: out[l][q] = sum over p of in[l][p] F[p][q] for l in [0, rows). There
// are kRows rows, or any number from kPitch on where kRows is kPitch. Rows that need no padding are
// read in place; others are copied to `staged`, which has space for kPitch padded rows.
template <index_t kContracted, index_t kProduced, index_t kRows, class Number = Number>
struct LastSweep {
  static constexpr DepthOf<Number> kDepth{kContracted};
  static constexpr Shape kShape{cut(kRows), cut(kProduced), kDepth.depth()};

  template <class Sink>
  static void run(TileEngine& engine, const Number* in, index_t row_stride, index_t column_stride,
                  index_t rows, const Number* tiles, Number* staged, const Sink& sink) {
    const bool in_place = column_stride == 1 && kContracted == kDepth.padded();
    engine.template begin<kShape>();
    for (index_t block = 0; block < kDown.blocks(rows); ++block) {
      const index_t row = kDown.start(block, rows), fresh_row = fresh(kDown, block, rows);
      const Number* from = in + row * row_stride;
      if (in_place) {
        blocks(engine, from, row_stride, row, fresh_row, tiles, sink);
      } else {
        stage_rows<kContracted>(staged, from, row_stride, column_stride, kDown.span());
        blocks(engine, staged, kDepth.padded(), row, fresh_row, tiles, sink);
      }
    }
  }

  // One block of rows that are padded already.
  template <class Sink>
  static void run_staged(TileEngine& engine, const Number* staged, const Number* tiles,
                         const Sink& sink) {
    engine.template begin<kShape>();
    blocks(engine, staged, kDepth.padded(), 0, 0, tiles, sink);
  }

 private:
  static constexpr Cut kDown = kShape.rows, kAcross = kShape.columns;

  template <class Sink>
  static KRONOP_INLINE void blocks(TileEngine& engine, const Number* rows, index_t stride,
                                   index_t row, index_t fresh_row, const Number* tiles,
                                   const Sink& sink) {
    const index_t line = stride * sizeof(Number);
    const Operand a{rows, line, kDown.second * line, kDepth.depth() * 4};
    for (index_t q = 0; q < kAcross.blocks(kProduced); ++q) {
      one_block<kShape, SumOf<Number>>(
          engine, a, factor_operand<kContracted, kProduced>(tiles, q), kDepth.steps(),
          {row, kAcross.start(q, kProduced), fresh_row, fresh(kAcross, q, kProduced)}, sink);
    }
  }
};

// Contracts any other digit: out[q][t] = sum over p of F[p][q] in[p][t] for t in [0, trail).
// `trail` is kTrail, or any number from kPitch on where kTrail is kPitch.
template <index_t kContracted, index_t kProduced, index_t kTrail>
struct LineSweep {
  static constexpr Depth kDepth{kContracted};
  static constexpr Cut kAcross = cut(kTrail), kDown = cut(kProduced);
  static constexpr Cut kSingle{kAcross.size, 0};

  // From lines with leading dimension `pitch`.
  template <class Sink>
  static void run(TileEngine& engine, const Number* in, index_t pitch, index_t trail,
                  const Number* tiles, const Sink& sink) {
    const auto operand = [&](index_t t) {
      return lines(in + t * kPack, pitch, kAcross.second * 4);
    };
    sweep<Shape{kDown, kAcross, kDepth.depth()}, kAcross>(engine, operand, trail, tiles, sink);
  }

  // From the lines of two neighbours along the next digit, `neighbour` numbers apart, to a
  // PairLine.
  template <class Sink>
  static void run_pair(TileEngine& engine, const Number* in, index_t neighbour, index_t pitch,
                       index_t trail, const Number* tiles, const Sink& sink) {
    const index_t second = neighbour * sizeof(Number);
    const auto operand = [&](index_t t) { return lines(in + t * kPack, pitch, second); };
    sweep<Shape{kDown, Cut{kAcross.size, kAcross.size}, kDepth.depth()}, kSingle>(
        engine, operand, trail, tiles, sink);
  }

 private:
  static KRONOP_INLINE Operand lines(const Number* data, index_t pitch, index_t second) {
    return {data, pitch * 4, second, kDepth.depth() * pitch * 4};
  }

  template <Shape kShape, Cut kColumns, class FindOperand, class Sink>
  static KRONOP_INLINE void sweep(TileEngine& engine, const FindOperand& operand, index_t trail,
                                  const Number* tiles, const Sink& sink) {
    engine.template begin<kShape>();
    for (index_t block = 0; block < kColumns.blocks(trail); ++block) {
      const index_t t = kColumns.start(block, trail);
      const Operand b = operand(t);
      for (index_t q = 0; q < kDown.blocks(kProduced); ++q) {
        one_block<kShape>(engine, factor_operand<kContracted, kProduced>(tiles, q), b,
                          kDepth.steps(),
                          {kDown.start(q, kProduced), t, fresh(kDown, q, kProduced),
                           fresh(kColumns, block, trail)},
                          sink);
      }
    }
  }
};

// Zeroes the lines behind the digit's last number, which pad it to whole steps.
template <index_t kContracted>
void clear_lines(bfloat16_t* lines, index_t pitch) {
  constexpr index_t kFirst = (kContracted + 1) / 2, kEnd = Depth{kContracted}.lines();
  if constexpr (kFirst < kEnd) {
    __builtin_memset(lines + kFirst * pitch * 2, 0,
                     (kEnd - kFirst) * pitch * 2 * sizeof(bfloat16_t));
  }
}

}  // namespace packed
}  // namespace kronop
