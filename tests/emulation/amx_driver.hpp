// All digits of rows of a row-major tensor through amx.hpp's sweeps: what a kernel would do, with sizes
// as constants. For the values' test and for measurements.
#pragma once

#include "kronop_x86/amx.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace driver {

using namespace kronop;
using namespace kronop::packed;
using bf16 = bfloat16_t;

struct Operands {
  const bf16* x;
  index_t x_row, x_column, rows;
  const bf16* factors[3];  // [p][q]
};

// A part of scratch; where addresses are checked, with a cache line after it that nobody may touch.
inline bf16* take(char*& scratch, index_t numbers) {
  bf16* here = reinterpret_cast<bf16*>(scratch);
  scratch += whole_lines(numbers * sizeof(bf16));
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(scratch, 64);
  scratch += 64;
#endif
  return here;
}

template <bool kLeft, index_t kP, index_t kQ>
bf16* packed_factor(const bf16* factor, char*& scratch) {
  bf16* to = take(scratch, kFactorNumbers<bf16, kP, kQ>);
  pack_factor<kLeft, kP, kQ>(to, [&](index_t p, index_t q) { return factor[p * kQ + q]; });
  return to;
}

constexpr index_t most(index_t extent) { return extent < kPitch ? extent : kPitch; }

// The last digit, for `left` values of the digits before kPrevious, into lines of that one.
template <class Engine, index_t kPrevious, index_t kP, index_t kQ, int kAhead>
void last_into_lines(Engine& engine, const bf16* x, index_t row, index_t column, index_t left, const bf16* tiles,
                     bf16* staged, bf16* lines) {
  constexpr index_t kLines = Depth<bf16>{kPrevious}.lines(), kSpan = kLines * line_pitch(kQ) * 2;
  if constexpr (kPrevious == 2 * kLines) {
    // Lines of one value follow those of the one before: more rows of the same.
    if (left * kPrevious >= kPitch) {
      using Sweep = LastSweep<bf16, kP, kQ, kPitch, kAhead>;
      Sweep::run(engine, x, row, column, left * kPrevious, tiles, staged,
                 RowLines{lines, line_pitch(kQ)});
      return;
    }
  }
  using Sweep = LastSweep<bf16, kP, kQ, most(kPrevious)>;
  for (index_t l = 0; l < left; ++l) {
    Sweep::run(engine, x + l * kPrevious * row, row, column, kPrevious, tiles, staged,
               RowLines{lines + l * kSpan, line_pitch(kQ)});
    clear_lines<kPrevious>(lines + l * kSpan, line_pitch(kQ));
  }
}

template <class Engine, index_t kP, index_t kQ, class Sink>
void run_one(Engine& engine, const Operands& in, char* scratch, const Sink& sink) {
  bf16* tiles = packed_factor<false, kP, kQ>(in.factors[0], scratch);
  bf16* staged = take(scratch, kPitch * Depth<bf16>{kP}.padded());
  const auto run = [&](auto sweep, index_t row, index_t rows) {
    sweep.run(engine, in.x + row * in.x_row, in.x_row, in.x_column, rows, tiles, staged, sink);
  };
  if (in.rows >= kPitch) {
    run(LastSweep<bf16, kP, kQ, kPitch>{}, 0, in.rows);
    return;
  }
  std::abort();  // a kernel for few rows takes another step
}

// y(row) is the sink of one row, whose block is (first digit, all others).
template <class Engine, index_t kP1, index_t kQ1, index_t kP2, index_t kQ2, int kAhead, class Y>
void run_two(Engine& engine, const Operands& in, index_t group, char* scratch, const Y& y) {
  bf16* last = packed_factor<false, kP2, kQ2>(in.factors[1], scratch);
  bf16* first = packed_factor<true, kP1, kQ1>(in.factors[0], scratch);
  bf16* staged = take(scratch, kPitch * Depth<bf16>{kP2}.padded());
  constexpr index_t kPitch2 = line_pitch(kQ2), kSpan = Depth<bf16>{kP1}.padded() * kPitch2;
  bf16* lines = take(scratch, group * kSpan);
  for (index_t row = 0; row < in.rows; row += group) {
    const index_t rows = row + group < in.rows ? group : in.rows - row;
    last_into_lines<Engine, kP1, kP2, kQ2, kAhead>(engine, in.x + row * in.x_row, kP2 * in.x_column, in.x_column, rows,
                                                   last, staged, lines);
    for (index_t r = 0; r < rows; ++r) {
      LineSweep<bf16, kP1, kQ1, most(kQ2)>::run(engine, lines + r * kSpan, kPitch2, kQ2, first, y(row + r));
    }
  }
}

// As run_two; rows one by one, and in them pairs of the first digit's numbers one by one.
template <class Engine, index_t kP1, index_t kQ1, index_t kP2, index_t kQ2, index_t kP3, index_t kQ3, int kAhead,
          class Y>
void run_three(Engine& engine, const Operands& in, char* scratch, const Y& y) {
  bf16* last = packed_factor<false, kP3, kQ3>(in.factors[2], scratch);
  bf16* middle = packed_factor<true, kP2, kQ2>(in.factors[1], scratch);
  bf16* first = packed_factor<true, kP1, kQ1>(in.factors[0], scratch);
  bf16* staged = take(scratch, kPitch * Depth<bf16>{kP3}.padded());
  constexpr index_t kPitch3 = line_pitch(kQ3), kSpan = Depth<bf16>{kP2}.padded() * kPitch3;
  constexpr index_t kTrail = kQ2 * kQ3, kPitch23 = line_pitch(kTrail), kColumns = kP2 * kP3;
  bf16* near = take(scratch, 2 * kSpan);
  bf16* far = take(scratch, Depth<bf16>{kP1}.padded() * kPitch23);
  for (index_t row = 0; row < in.rows; ++row) {
    for (index_t p = 0; p < kP1; p += 2) {
      const bool alone = p + 1 == kP1;
      const bf16* from = in.x + row * in.x_row + p * kColumns * in.x_column;
      last_into_lines<Engine, kP2, kP3, kQ3, kAhead>(engine, from, kP3 * in.x_column, in.x_column, alone ? 1 : 2, last,
                                                     staged, near);
      LineSweep<bf16, kP2, kQ2, most(kQ3)>::run_pair(engine, near, alone ? 0 : kSpan, kPitch3, kQ3, middle,
                                                     PairLine{far + p * kPitch23, kQ3, alone});
    }
    clear_lines<kP1>(far, kPitch23);
    LineSweep<bf16, kP1, kQ1, most(kTrail)>::run(engine, far, kPitch23, kTrail, first, y(row));
  }
}

// Bytes of scratch that any of the above takes.
constexpr index_t scratch_bytes(index_t numbers_between, index_t most_factor) {
  return numbers_between * 2 * 3 + most_factor * most_factor * 64 + (1 << 18);
}

}  // namespace driver
