// Products on AMX tiles: of bf16 with sums in fp32, of int8 with sums in int32. Kronecker matmuls are of bf16.
//
// A tile product multiplies kPack numbers that stand next to each other along the contracted digit and
// adds them up. Along the last digit of a row-major tensor that is how memory holds them. For any
// other digit the data is kept in *lines*: line i holds, for every element of what trails the digit, its
// numbers i kPack to i kPack + kPack - 1. A sweep (one mode product) rounds its results into the lines of
// the digit that comes next, so that nothing is rearranged between two sweeps: it costs one shuffle for
// each vector of results. Subnormal numbers count as zero.
//
// Results come in blocks of at most 2 x 2 tiles of 16 x 16 sums. Tiles are stored in a small array, and
// a sink takes them from there at once: taking them while the next block is multiplied saves 5 to 15 % of that
// and nothing beside X and Y in memory (Emerald Rapids). vdpbf16ps took longer than fp32.
//
// Extents are any: the last block ends at the last result and overlaps the one before it. A contracted
// digit is filled up with zeros in the packed factor and in the lines: with zeros in one alone, an infinity
// in the other would become a NaN.
#pragma once

#include "kronop_x86/ahead.hpp"
#include "kronop_x86/tile.hpp"

#ifdef KRONOP_EMULATED_TILES
#include "tile_emulation.hpp"
// NOTE: Clang before 16 writes the names without the first of the inner underscores.
#elif defined(__AVX512BF16__) && (defined(__AMX_BF16__) || defined(__AMXBF16__)) && \
    (defined(__AMX_INT8__) || defined(__AMXINT8__))
#include <immintrin.h>
#else
#error "this C++ compiler knows no AMX: it takes g++ 11 or clang++ 12, or the target x86-avx512"
#endif

#define KRONOP_UNROLL_SOME _Pragma("GCC unroll 4")

namespace kronop {
namespace packed {

inline constexpr int kTile = 16;          // lines of a tile, and sums in one of its lines
inline constexpr int kLineBytes = 64;     // of a tile
inline constexpr int kPitch = 2 * kTile;  // of a block's sums
using Number = bfloat16_t;
inline constexpr int kUnitBytes = 4;  // what a tile product multiplies at once of a line
template <class T>
inline constexpr int kPackOf = kUnitBytes / sizeof(T);
inline constexpr int kPack = kPackOf<Number>;

template <class T>
struct SumOfTiles {
  using Type = float;
};
template <>
struct SumOfTiles<int8_t> {
  using Type = int32_t;
};
template <class T>
using SumOf = typename SumOfTiles<T>::Type;

// One or two tiles along an extent. The second begins at `second`, and may overlap the first.
struct Cut {
  int size, second;

  constexpr int tiles() const { return second ? 2 : 1; }
  constexpr int span() const { return size + second; }
  constexpr index_t blocks(index_t extent) const { return block_count(extent, span()); }
  constexpr index_t start(index_t block, index_t extent) const { return block_start(block, extent, span()); }
};
constexpr Cut cut(index_t extent) {
  const index_t rest = extent < kTile ? 0 : (extent < 2 * kTile ? extent - kTile : kTile);
  return {int(extent < kTile ? extent : kTile), int(rest)};
}

// A contracted digit of numbers T in `steps` equal steps of `depth` lines.
template <class T>
struct DepthOf {
  index_t contracted;

  static constexpr int kPack = kPackOf<T>, kMost = kLineBytes / sizeof(T);
  constexpr int steps() const { return int((contracted + kMost - 1) / kMost); }
  constexpr int depth() const {
    const index_t each = kPack * steps();
    return int((contracted + each - 1) / each);
  }
  constexpr int lines() const { return steps() * depth(); }
  constexpr int numbers() const { return depth() * kPack; }  // in one step
  constexpr int padded() const { return steps() * numbers(); }
};
using Depth = DepthOf<Number>;

// What a sweep's blocks are.
struct Shape {
  Cut rows, columns;
  int depth;
};

// Where a block's operand is; bytes from one line to the next, to the second tile, to the next step.
struct Operand {
  const void* data;
  index_t line, second, step;
};

// Where a block's results belong; those before `fresh` are in the block before it too.
struct Place {
  index_t row, column, fresh_row, fresh_column;
};

// Elements from one line to the next. Not a multiple of 512 bytes: a digit's lines would meet in the
// same few sets of the first-level cache.
constexpr index_t line_pitch(index_t trail) { return trail % 128 ? trail : trail + kTile; }

// ---- Factors: tiles of 16 lines of 64 bytes, [block of outputs][tile of the block][step] ----

template <class T = Number>
constexpr index_t factor_numbers(index_t contracted, index_t produced) {
  const Cut each = cut(produced);
  return each.blocks(produced) * each.tiles() * DepthOf<T>{contracted}.steps() * kTile * kLineBytes / sizeof(T);
}

// kLeft: a line for each output, along the contracted digit. Otherwise lines as the data's.
template <bool kLeft, index_t kContracted, index_t kProduced, class T, class Entry>
void pack_factor(T* to, const Entry& entry) {
  constexpr DepthOf<T> kDepth{kContracted};
  constexpr Cut kCut = cut(kProduced);
  constexpr int kLine = kLineBytes / sizeof(T), kPack = kPackOf<T>;
  __builtin_memset(to, 0, factor_numbers<T>(kContracted, kProduced) * sizeof(T));
  for (index_t block = 0; block < kCut.blocks(kProduced); ++block) {
    for (int tile = 0; tile < kCut.tiles(); ++tile) {
      const index_t first = kCut.start(block, kProduced) + tile * kCut.second;
      for (index_t p = 0; p < kContracted; ++p) {
        const index_t place = p % kDepth.numbers();
        T* line = to + p / kDepth.numbers() * kTile * kLine;
        line += kLeft ? place : place / kPack * kLine + place % kPack;
        for (int q = 0; q < kCut.size; ++q) line[q * (kLeft ? kLine : kPack)] = entry(p, first + q);
      }
      to += kDepth.steps() * kTile * kLine;
    }
  }
}

template <index_t kContracted, index_t kProduced, class T>
KRONOP_INLINE Operand factor_operand(const T* tiles, index_t block) {
  constexpr index_t kStep = kTile * kLineBytes, kSecond = kStep * DepthOf<T>{kContracted}.steps();
  const char* bytes = reinterpret_cast<const char*>(tiles);
  return {bytes + block * kSecond * cut(kProduced).tiles(), kLineBytes, kSecond, kStep};
}

// ---- Instructions ----

#ifndef KRONOP_EMULATED_TILES
// To bf16, nearest even, NaN kept; subnormal numbers become zero.
KRONOP_INLINE Vector<uint16_t, 32> narrow(Vector<float, 16> low, Vector<float, 16> high) {
  return bit_cast<Vector<uint16_t, 32>>(_mm512_cvtne2ps_pbh(bit_cast<__m512>(high), bit_cast<__m512>(low)));
}
#endif

// low[0] high[0] low[1] high[1] ...
KRONOP_INLINE Vector<uint16_t, 32> pairs(Vector<float, 16> low, Vector<float, 16> high) {
  const Vector<uint16_t, 32> both = narrow(low, high);
  using Half = Vector<uint16_t, 32>;
#if defined(__clang__)
  return __builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10,
                                 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#else
  return __builtin_shuffle(both, Half{0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
#endif
}

// ---- Tiles ----

struct alignas(64) TileConfiguration {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t lines[16];
};

// Tiles 0 to 3 are sums, 4 and 5 the left operand, 6 and 7 the right one.
constexpr TileConfiguration configuration(int rows, int columns, int depth) {
  TileConfiguration made{1, 0, {}, {}, {}};
  for (int tile = 0; tile < 8; ++tile) {
    const bool left = tile == 4 || tile == 5, right = tile > 5;
    made.lines[tile] = uint8_t(right ? depth : rows);
    made.bytes[tile] = uint16_t(4 * (left ? depth : columns));
  }
  return made;
}
template <int kRows, int kColumns, int kDepth>
inline constexpr TileConfiguration kConfiguration = configuration(kRows, kColumns, kDepth);

// Asks the system for the tiles' state, once in a process: all of its threads have it then. Fails where the
// system lacks it, or where a thread's signal stack is too small to save it.
inline bool allow_tiles() {
#ifndef KRONOP_EMULATED_TILES
  constexpr long kArchPrctl = 158, kRequestPermission = 0x1023, kTileData = 18;
  static int allowed = 0;
  if (__atomic_load_n(&allowed, __ATOMIC_RELAXED)) return true;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(kArchPrctl), "D"(kRequestPermission), "S"(kTileData)
                   : "rcx", "r11", "memory");
  if (result != 0) return false;
  __atomic_store_n(&allowed, 1, __ATOMIC_RELAXED);
#endif
  return true;
}

// NOTE: GCC's intrinsics take the numbers of tiles as they are written.
#define KRONOP_TILE_PRODUCT(sum, left, right)      \
  do {                                             \
    if constexpr (detail::is_same<Sum, int32_t>) { \
      _tile_dpbssd(sum, left, right);              \
    } else {                                       \
      _tile_dpbf16ps(sum, left, right);            \
    }                                              \
  } while (false)

// A thread's tiles, and what it asks for while they are busy, some before every block. A configuration is loaded
// where it is another one than before.
class TileEngine {
 public:
  Ahead ahead;

  TileEngine() = default;
  TileEngine(const TileEngine&) = delete;
  ~TileEngine() {
    if (current_) _tile_release();
  }

  template <Shape kShape>
  KRONOP_INLINE void begin() {
    const TileConfiguration* wanted = &kConfiguration<kShape.rows.size, kShape.columns.size, kShape.depth>;
    if (current_ != wanted) _tile_loadconfig(wanted);
    current_ = wanted;
  }

  // A block's sums, lines kPitch apart, from `steps` steps.
  template <Shape kShape, class Sum>
  static KRONOP_INLINE void block(const Operand& a, const Operand& b, int steps, Sum* sums) {
    block<kShape>(a, b, steps, sums, kPitch);
  }

  // Lines `pitch` apart.
  template <Shape kShape, class Sum>
  static KRONOP_INLINE void block(const Operand& a, const Operand& b, int steps, Sum* sums, index_t pitch) {
    constexpr bool kTall = kShape.rows.tiles() == 2, kWide = kShape.columns.tiles() == 2;
    const char* left = static_cast<const char*>(a.data);
    const char* right = static_cast<const char*>(b.data);
    // NOTE: GCC is not told that _tile_loadd reads memory.
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    if constexpr (kWide) _tile_zero(1);
    if constexpr (kTall) _tile_zero(2);
    if constexpr (kTall && kWide) _tile_zero(3);
    for (int step = 0; step < steps; ++step) {
      _tile_loadd(6, right, b.line);
      _tile_loadd(4, left, a.line);
      KRONOP_TILE_PRODUCT(0, 4, 6);
      if constexpr (kWide) {
        _tile_loadd(7, right + b.second, b.line);
        KRONOP_TILE_PRODUCT(1, 4, 7);
      }
      if constexpr (kTall) {
        _tile_loadd(5, left + a.second, a.line);
        KRONOP_TILE_PRODUCT(2, 5, 6);
      }
      if constexpr (kTall && kWide) KRONOP_TILE_PRODUCT(3, 5, 7);
      left += a.step;
      right += b.step;
    }
    const index_t line = pitch * kUnitBytes, down = kShape.rows.second * pitch;
    constexpr index_t kAcross = kShape.columns.second;
    _tile_stored(0, sums, line);
    if constexpr (kWide) _tile_stored(1, sums + kAcross, line);
    if constexpr (kTall) _tile_stored(2, sums + down, line);
    if constexpr (kTall && kWide) _tile_stored(3, sums + down + kAcross, line);
  }

 private:
  const TileConfiguration* current_ = nullptr;
};

// ---- Sinks ----

// The first kCount numbers of a vector.
template <int kCount, class T, class V>
KRONOP_INLINE void store_first(T* to, const V& value) {
  __builtin_memcpy(to, &value, kCount * sizeof(T));
}

// kCount numbers at `low`, each paired with that `partner_at` after it, or with a zero.
template <int kCount>
KRONOP_INLINE void store_pairs(bfloat16_t* line, const float* low, bool partner, index_t partner_at) {
  const auto high = partner ? load<float, 16>(low + partner_at) : Vector<float, 16>{};
  store_first<kCount * 2>(line, pairs(load<float, 16>(low), high));
}

// Rows of the block are numbers of the digit before the last one: into that digit's lines. A number
// without a partner, the last of an odd count, gets a zero; one whose pair began in the block before
// is there already.
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
    for (int i = 0; i < kPairs; ++i, line += step, sums += 2 * kPitch) store_line<kShape.columns, true>(line, sums);
    if constexpr (kFirst + 2 * kPairs < kEnd) store_line<kShape.columns, false>(line, sums);
  }

  template <Cut kColumns, bool kPartner>
  static KRONOP_INLINE void store_line(bfloat16_t* line, const float* low) {
    store_pairs<kColumns.size>(line, low, kPartner, kPitch);
    if constexpr (kColumns.second) {
      store_pairs<kColumns.size>(line + 2 * kColumns.second, low + kColumns.second, kPartner, kPitch);
    }
  }
};

// Columns of the block are those of two neighbours along the next digit: into one of its lines. Where
// there is but one neighbour, the other counts as zeros.
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
    for (int i = 0; i < kEnd; ++i, line += step, sums += kPitch) store_pairs<kSize>(line, sums, partner, kSize);
  }
};

// Rows of bf16.
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
        if constexpr (kColumns.second) store_first<kColumns.size>(line + kColumns.second, halves.high);
      }
    }
  }

 private:
  struct Halves {
    Vector<uint16_t, 16> low, high;
  };
};

// Numbers past the caches: whole lines of memory, and what is before and after these as ever.
template <class T>
void copy_past(T* to, const T* from, index_t count) {
  constexpr index_t kLine = kLineBytes / sizeof(T);
  const index_t before = -reinterpret_cast<uint64_t>(to) % kLineBytes / sizeof(T);
  index_t done = before < count ? before : count;
  __builtin_memcpy(to, from, done * sizeof(T));
  for (; done + kLine <= count; done += kLine) {
    kronop::stream(to + done, load<uint8_t, kLineBytes>(reinterpret_cast<const uint8_t*>(from + done)));
  }
  __builtin_memcpy(to + done, from + done, (count - done) * sizeof(T));
}

// Rows of `columns` numbers that follow each other, to rows `stride` apart.
template <class T>
void copy_rows_past(T* to, index_t stride, const T* from, index_t rows, index_t columns) {
  if (stride == columns) columns *= rows, rows = 1;
  for (index_t i = 0; i < rows; ++i) copy_past(to + i * stride, from + i * columns, columns);
}

// One block: its sums, and where they belong.
template <Shape kShape, class Sum = float, class Sink>
KRONOP_INLINE void one_block(TileEngine& engine, const Operand& a, const Operand& b, int steps, const Place& place,
                             const Sink& sink) {
  alignas(64) Sum sums[kPitch * kPitch];
  engine.ahead.some();
  TileEngine::block<kShape>(a, b, steps, sums);
  sink.template block<kShape>(sums, place);
}

constexpr index_t fresh(const Cut& cut, index_t block, index_t extent) {
  return block * cut.span() - cut.start(block, extent);
}

// ---- Sweeps ----

// Rows [0, kPitch) of `from`, of which `count` are there, as whole steps with zeros at the end.
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

// The last digit: out[l][q] = sum over p of in[l][p] F[p][q] for `rows` l, of which there are kRows or,
// where that is kPitch, at least as many. `staged` holds kPitch padded rows. Rows that are whole steps
// are read in place.
template <index_t kContracted, index_t kProduced, index_t kRows, class Number = Number>
struct LastSweep {
  static constexpr DepthOf<Number> kDepth{kContracted};
  static constexpr Shape kShape{cut(kRows), cut(kProduced), kDepth.depth()};

  template <class Sink>
  static void run(TileEngine& engine, const Number* in, index_t row_stride, index_t column_stride, index_t rows,
                  const Number* tiles, Number* staged, const Sink& sink) {
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

  // One block of rows that are staged already.
  template <class Sink>
  static void run_staged(TileEngine& engine, const Number* staged, const Number* tiles, const Sink& sink) {
    engine.template begin<kShape>();
    blocks(engine, staged, kDepth.padded(), 0, 0, tiles, sink);
  }

 private:
  static constexpr Cut kDown = kShape.rows, kAcross = kShape.columns;

  template <class Sink>
  static KRONOP_INLINE void blocks(TileEngine& engine, const Number* rows, index_t stride, index_t row,
                                   index_t fresh_row, const Number* tiles, const Sink& sink) {
    const index_t line = stride * sizeof(Number);
    const Operand a{rows, line, kDown.second * line, kDepth.depth() * 4};
    for (index_t q = 0; q < kAcross.blocks(kProduced); ++q) {
      one_block<kShape, SumOf<Number>>(engine, a, factor_operand<kContracted, kProduced>(tiles, q), kDepth.steps(),
                                       {row, kAcross.start(q, kProduced), fresh_row, fresh(kAcross, q, kProduced)},
                                       sink);
    }
  }
};

// Any other digit: out[q][t] = sum over p of F[p][q] in[p][t] for `trail` t, of which there are kTrail or,
// where that is kPitch, at least as many.
template <index_t kContracted, index_t kProduced, index_t kTrail>
struct LineSweep {
  static constexpr Depth kDepth{kContracted};
  static constexpr Cut kAcross = cut(kTrail), kDown = cut(kProduced);
  static constexpr Cut kSingle{kAcross.size, 0};

  // From lines `pitch` elements apart.
  template <class Sink>
  static void run(TileEngine& engine, const Number* in, index_t pitch, index_t trail, const Number* tiles,
                  const Sink& sink) {
    const auto operand = [&](index_t t) { return lines(in + t * kPack, pitch, kAcross.second * 4); };
    sweep<Shape{kDown, kAcross, kDepth.depth()}, kAcross>(engine, operand, trail, tiles, sink);
  }

  // From lines, of two neighbours `neighbour` elements apart: for PairLine.
  template <class Sink>
  static void run_pair(TileEngine& engine, const Number* in, index_t neighbour, index_t pitch, index_t trail,
                       const Number* tiles, const Sink& sink) {
    const index_t second = neighbour * sizeof(Number);
    const auto operand = [&](index_t t) { return lines(in + t * kPack, pitch, second); };
    sweep<Shape{kDown, Cut{kAcross.size, kAcross.size}, kDepth.depth()}, kSingle>(engine, operand, trail, tiles, sink);
  }

 private:
  static KRONOP_INLINE Operand lines(const Number* data, index_t pitch, index_t second) {
    return {data, pitch * 4, second, kDepth.depth() * pitch * 4};
  }

  template <Shape kShape, Cut kColumns, class FindOperand, class Sink>
  static KRONOP_INLINE void sweep(TileEngine& engine, const FindOperand& operand, index_t trail, const Number* tiles,
                                  const Sink& sink) {
    engine.template begin<kShape>();
    for (index_t block = 0; block < kColumns.blocks(trail); ++block) {
      const index_t t = kColumns.start(block, trail);
      const Operand b = operand(t);
      for (index_t q = 0; q < kDown.blocks(kProduced); ++q) {
        one_block<kShape>(engine, factor_operand<kContracted, kProduced>(tiles, q), b, kDepth.steps(),
                          {kDown.start(q, kProduced), t, fresh(kDown, q, kProduced), fresh(kColumns, block, trail)},
                          sink);
      }
    }
  }
};

// Zeros in the lines from the digit's last number on.
template <index_t kContracted>
void clear_lines(bfloat16_t* lines, index_t pitch) {
  constexpr index_t kFirst = (kContracted + 1) / 2, kEnd = Depth{kContracted}.lines();
  if constexpr (kFirst < kEnd) {
    __builtin_memset(lines + kFirst * pitch * 2, 0, (kEnd - kFirst) * pitch * 2 * sizeof(bfloat16_t));
  }
}

}  // namespace packed
}  // namespace kronop
