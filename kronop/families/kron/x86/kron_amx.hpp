// Kronecker matmul of bf16 on AMX tiles: a thread processes one row, or a few at once, with the
// sweeps of amx.hpp.
//
// Digits are contracted from the last one to the first. The last digit is read from X, and its
// results fill the lines of the digit before it. As soon as those lines are full, that digit is
// contracted as well: for two neighbours along the digit before it, whose results make one line of
// pairs there; and so on. So lines are still in the nearest caches when they are read. The results
// of the first digit are stored to Y, rounded to bf16 or after the epilogue. If results exceed the
// caches, they are collected in a cached buffer and copied from there with streaming stores, as
// many adjacent columns at once as the buffer holds.
// NOTE: streaming stores of separate runs of 64 bytes took 1.7 times as long as of 128 contiguous
// bytes (Emerald Rapids).
#pragma once

#include "kronop_x86/amx_results.hpp"
#include "kron.hpp"

namespace kronop {
namespace kron_amx {

using namespace packed;
using kron::View;

constexpr index_t most(index_t extent) { return extent < kPitch ? extent : kPitch; }

// How many columns of a row's results the buffer for streaming stores holds at a time: all, or a
// part. The last part is up to kPitch columns longer, so that no short part is left.
constexpr index_t part_of(index_t rows, index_t columns) {
  constexpr index_t kHeld = 16384, kHeldInParts = 8192, kLeast = 64;
  const index_t part = kHeldInParts / rows / kLeast * kLeast,
                columns_of_part = part > kLeast ? part : kLeast;
  return rows * columns <= kHeld || columns < columns_of_part + kPitch ? columns : columns_of_part;
}
constexpr index_t held(index_t rows, index_t columns) {
  const index_t part = part_of(rows, columns);
  return rows * (part < columns ? part + kPitch : columns);
}

// The number of blocks along an extent.
constexpr index_t blocks_of(index_t extent) { return cut(extent).blocks(extent); }

// The buffers in a thread's slice, as byte offsets: the packed factors, the lines of all digits but
// the last, padded rows of the last digit, and results for streaming stores. `span` is the stride
// from one neighbour's lines to the next. `trail` and `inner` are the columns behind a digit, with
// the digits behind it contracted and not yet contracted.
template <class Step>
struct Layout {
  index_t factor[Step::kDigits], lines[Step::kDigits], span[Step::kDigits], trail[Step::kDigits],
      inner[Step::kDigits];
  index_t staged, results, bytes;

  constexpr Layout() : factor(), lines(), span(), trail(), inner(), staged(), results(), bytes() {
    index_t produced = 1, contracted = 1;
    for (int d = Step::kDigits - 1; d >= 0; --d) {
      const Depth depth{Step::kContracted[d]};
      const bool alone = Step::kDigits == 1;
      if (d == 0)
        results = part(alone ? kPitch * Step::kProduced[d] : held(Step::kProduced[d], produced));
      trail[d] = produced, inner[d] = contracted;
      factor[d] = part(factor_numbers(Step::kContracted[d], Step::kProduced[d]));
      if (d == Step::kDigits - 1) {
        staged = part(kPitch * depth.padded());
      } else {
        span[d] = depth.padded() * line_pitch(produced);
        lines[d] = part(span[d] * (d ? 2 : Step::kAtOnce));
      }
      produced *= Step::kProduced[d];
      contracted *= Step::kContracted[d];
    }
  }

 private:
  constexpr index_t part(index_t numbers) {
    const index_t start = bytes;
    bytes += whole_lines(numbers * sizeof(Number));
    return start;
  }
};

template <class Step>
inline constexpr Layout<Step> kLayout{};

// The work of one thread: its buffers and its tile registers.
template <class Step>
class Worker {
 public:
  using Output = typename Step::Output;
  static constexpr int kDigits = Step::kDigits, kLast = kDigits - 1;
  static constexpr const Layout<Step>& kAt = kLayout<Step>;
  static_assert(kAt.bytes == Step::kSlice, "the planner's layout is another one");

  // `ahead`: whether X is prefetched.
  Worker(char* slice, bool ahead) : slice_(slice), ahead_(ahead) {}

  template <class Parameters>
  void pack(const Parameters& parameters, const index_t* offsets) {
    pack_all(parameters, offsets, FirstIndices<kDigits>{});
  }

  // `plain` and `past_caches` are `plain` and `stream` of the parameters.
  template <class Epilogue>
  void run(index_t rows, const View<const Number>& x, const View<Output>& y,
           const View<const Output>& z, const Epilogue& epilogue, bool plain, bool past_caches) {
    if constexpr (detail::is_same<Output, Number>) {
      if (plain && y.column == 1 && (kDigits > 1 || rows >= kPitch)) {
        if constexpr (kDigits > 1) {
          run_rows(rows, x, [&](index_t row, const Number* lines) {
            Number* to = y.data + row * y.row;
            past_caches ? run_first_past(lines, to) : run_first(lines, kTrail, Rows{to, kTrail});
          });
        } else if (past_caches) {
          run_last_past(rows, x, y);
        } else {
          run_last(rows, x, Rows{y.data, y.row});
        }
        return;
      }
    }
    const index_t count = kDigits > 1 ? Step::kProduced[0] : rows;
    const auto sink_of = [&](index_t row) {
      const OutputSink<Step> sink{epilogue, y.data + row * y.row,
                                  z.data ? z.data + row * z.row : nullptr, nullptr};
      return Finished<Step>{sink, row_stride(y), y.column, row_stride(z), z.column, count};
    };
    if constexpr (kDigits > 1) {
      run_rows(rows, x,
               [&](index_t row, const Number* lines) { run_first(lines, kTrail, sink_of(row)); });
    } else {
      run_last(rows, x, sink_of(0));
    }
  }

 private:
  static constexpr index_t kTrail = kAt.trail[0];

  Number* numbers(index_t offset) const { return reinterpret_cast<Number*>(slice_ + offset); }

  // The stride in Y between rows of a block of results. With one digit these are rows of Y, else
  // outputs of the first digit.
  template <class T>
  static index_t row_stride(const View<T>& view) {
    return kDigits > 1 ? kTrail * view.column : view.row;
  }

  template <class Parameters, int... kDigit>
  void pack_all(const Parameters& parameters, const index_t* offsets, Indices<kDigit...>) {
    (pack_one<kDigit>(parameters, offsets), ...);
  }
  template <int kDigit, class Parameters>
  void pack_one(const Parameters& parameters, const index_t* offsets) {
    constexpr int kFirst = Step::kDigitFactor[kDigit];
    constexpr index_t kContracted = Step::kContracted[kDigit], kProduced = Step::kProduced[kDigit];
    Number* to = numbers(kAt.factor[kDigit]);
    if constexpr (Step::kDigitFactor[kDigit + 1] - kFirst == 1) {
      const auto* data = static_cast<const Number*>(parameters.factors[kFirst]) + offsets[kFirst];
      const index_t row = parameters.factor_row[kFirst], column = parameters.factor_column[kFirst];
      pack_factor<kDigit != kLast, kContracted, kProduced>(
          to, [&](index_t p, index_t q) { return data[p * row + q * column]; });
    } else {
      pack_factor<kDigit != kLast, kContracted, kProduced>(to, [&](index_t p, index_t q) {
        return convert<Number>(kron::digit_entry<Step>(parameters, offsets, kDigit, p, q));
      });
    }
  }

  // finish(row, lines) stores the first digit's results of a row to Y, from its lines.
  template <class Finish>
  void run_rows(index_t rows, const View<const Number>& x, const Finish& finish) {
    Number* lines = numbers(kAt.lines[0]);
    for (index_t row = 0; row < rows; row += Step::kAtOnce) {
      const index_t count = rows - row < Step::kAtOnce ? rows - row : Step::kAtOnce;
      fill<0>(x.data + row * x.row, x.row, x.column, count, lines);
      for (index_t i = 0; i < count; ++i) finish(row + i, lines + i * kAt.span[0]);
    }
  }

  // Contracts the first digit for `columns` of the columns behind it.
  template <class Sink>
  void run_first(const Number* lines, index_t columns, const Sink& sink) {
    LineSweep<Step::kContracted[0], Step::kProduced[0], most(kTrail)>::run(
        engine_, lines, line_pitch(kTrail), columns, numbers(kAt.factor[0]), sink);
  }

  void run_first_past(const Number* lines, Number* to) {
    constexpr index_t kRows = Step::kProduced[0], kPart = part_of(kRows, kTrail);
    Number* results = numbers(kAt.results);
    for (index_t first = 0, columns; first < kTrail; first += columns) {
      columns = kTrail - first < kPart + kPitch ? kTrail - first : kPart;
      run_first(lines + first * kPack, columns, Rows{results, columns});
      copy_rows_past(to + first, kTrail, results, kRows, columns);
    }
  }

  // The last block of rows ends at the last row and overlaps the previous block.
  void run_last_past(index_t rows, const View<const Number>& x, const View<Output>& y) {
    constexpr index_t kProduced = Step::kProduced[kLast];
    Number* results = numbers(kAt.results);
    for (index_t block = 0; block < block_count(rows, kPitch); ++block) {
      const index_t row = block_start(block, rows, kPitch);
      run_last(kPitch, {x.data + row * x.row, x.row, x.column}, Rows{results, kProduced});
      copy_rows_past(y.data + row * y.row, y.row, results, kPitch, kProduced);
    }
  }

  // Prefetches the `count` runs of X that follow the `count` runs from x on, spread over `calls`
  // blocks.
  void ask_after(const Number* x, index_t numbers, index_t step, index_t column, index_t count,
                 index_t calls) {
    constexpr index_t kBytes = sizeof(Number);
    if (ahead_ && column == 1)
      engine_.ahead = Ahead(x + count * step, numbers * kBytes, step * kBytes, count, calls);
  }

  template <class Sink>
  void run_last(index_t rows, const View<const Number>& x, const Sink& sink) {
    constexpr index_t kContracted = Step::kContracted[kLast], kPadded = Depth{kContracted}.padded();
    using Sweep = LastSweep<kContracted, Step::kProduced[kLast], kPitch>;
    Number* staged = numbers(kAt.staged);
    const Number* tiles = numbers(kAt.factor[kLast]);
    ask_after(x.data, kContracted, x.row, x.column, rows,
              blocks_of(rows) * blocks_of(Step::kProduced[kLast]));
    if (rows >= kPitch) {
      Sweep::run(engine_, x.data, x.row, x.column, rows, tiles, staged, sink);
      return;
    }
    // The block is padded with rows of zeros, whose results the sink does not store.
    __builtin_memset(staged, 0, kPitch * kPadded * sizeof(Number));
    stage_rows<kContracted>(staged, x.data, x.row, x.column, int(rows));
    Sweep::run_staged(engine_, staged, tiles, sink);
  }

  // Fills the lines of a digit for `count` neighbours, which are `step` elements apart in X.
  template <int kDigit>
  void fill(const Number* x, index_t step, index_t column, index_t count, Number* lines) {
    constexpr index_t kContracted = Step::kContracted[kDigit], kSpan = kAt.span[kDigit];
    constexpr index_t kOwnTrail = kAt.trail[kDigit], kPitchHere = line_pitch(kOwnTrail);
    const index_t inner = kAt.inner[kDigit] * column;
    if constexpr (kDigit + 1 == kLast) {
      constexpr index_t kOwn = blocks_of(kOwnTrail) * blocks_of(Step::kProduced[kDigit]);
      constexpr index_t kBlocks = blocks_of(kContracted) * blocks_of(Step::kProduced[kLast]) + kOwn;
      ask_after(x, kContracted * inner, step, column, count, count * kBlocks);
      if constexpr (kContracted == Depth{kContracted}.padded()) {
        // The neighbours are contiguous in X and in the lines: one sweep processes them as more
        // rows.
        if (step == kContracted * inner && count * kContracted >= kPitch) {
          fill_last<kPitch>(x, inner, column, count * kContracted, lines, kPitchHere);
          return;
        }
      }
      for (index_t i = 0; i < count; ++i) {
        fill_last<most(kContracted)>(x + i * step, inner, column, kContracted, lines + i * kSpan,
                                     kPitchHere);
        clear_lines<kContracted>(lines + i * kSpan, kPitchHere);
      }
    } else {
      constexpr int kNext = kDigit + 1;
      constexpr index_t kWidth = kAt.trail[kNext], kNextPitch = line_pitch(kWidth);
      Number* next = numbers(kAt.lines[kNext]);
      for (index_t i = 0; i < count; ++i) {
        Number* own = lines + i * kSpan;
        for (index_t p = 0; p < kContracted; p += 2) {
          const bool alone = p + 1 == kContracted;
          fill<kNext>(x + i * step + p * inner, inner, column, alone ? 1 : 2, next);
          LineSweep<Step::kContracted[kNext], Step::kProduced[kNext], most(kWidth)>::run_pair(
              engine_, next, alone ? 0 : kAt.span[kNext], kNextPitch, kWidth,
              numbers(kAt.factor[kNext]), PairLine{own + p * kPitchHere, kWidth, alone});
        }
        clear_lines<kContracted>(own, kPitchHere);
      }
    }
  }

  template <index_t kRows>
  void fill_last(const Number* x, index_t row, index_t column, index_t rows, Number* lines,
                 index_t pitch) {
    LastSweep<Step::kContracted[kLast], Step::kProduced[kLast], kRows>::run(
        engine_, x, row, column, rows, numbers(kAt.factor[kLast]), numbers(kAt.staged),
        RowLines{lines, pitch});
  }

  char* slice_;
  bool ahead_;
  TileEngine engine_;
};

}  // namespace kron_amx

template <class Decided, class Parameters>
int kron_amx_matmul(const Parameters& parameters, bool alone) {
  using Step = kron::DigitStep<Decided>;
  if (!packed::allow_tiles()) return 1;
  share_out(kron::tile_count(parameters), parameters.threads, alone,
            [&](index_t share, index_t first, index_t end) {
              kron_amx::Worker<Step> worker(
                  static_cast<char*>(parameters.workspace) + share * parameters.slice,
                  parameters.ahead != 0);
              const auto pack = [&](const index_t* offsets) { worker.pack(parameters, offsets); };
              kron::each_tile<Step>(parameters, first, end, pack,
                                    [&](index_t rows, const auto& x, const auto& y, const auto& z) {
                                      worker.run(rows, x, y, z,
                                                 typename Step::Epilogue(parameters.scalars),
                                                 parameters.plain != 0, parameters.stream != 0);
                                    });
              if (parameters.stream) stream_end();
            });
  return 0;
}

}  // namespace kronop
