// Kronecker matmul of bf16 on AMX tiles: rows one by one, or some at once, go through the sweeps of amx.hpp.
//
// Digits are applied from the last one to the first. The last is read from X and leaves its results in the
// lines of the digit before it; that one is applied as soon as its lines are full, for two neighbours along
// the digit before that, whose line of pairs they make; and so on: what is filled is near when it is read.
// The first digit's results go to Y: rounded to bf16, or through the epilogue.
#pragma once

#include "kronop_x86/amx_results.hpp"
#include "kronop_x86/kron.hpp"

namespace kronop {
namespace kron_amx {

using namespace packed;
using kron::View;

// Bytes from the start of a thread's slice to the packed factors, to the lines of all digits but the last,
// and to rows of the last that are put together; elements from one neighbour's lines to the next.
template <class Step>
struct Layout {
  index_t factor[Step::kDigits], lines[Step::kDigits], span[Step::kDigits], trail[Step::kDigits], inner[Step::kDigits];
  index_t staged, bytes;

  constexpr Layout() : factor(), lines(), span(), trail(), inner(), staged(), bytes() {
    index_t produced = 1, contracted = 1;
    for (int d = Step::kDigits - 1; d >= 0; --d) {
      const Depth depth{Step::kContracted[d]};
      trail[d] = produced, inner[d] = contracted;
      factor[d] = part(factor_numbers(Step::kContracted[d], Step::kProduced[d]));
      if (d == Step::kDigits - 1) {
        staged = part(kPitch * depth.padded());
      } else {
        span[d] = depth.padded() * line_pitch(produced);
        lines[d] = part(span[d] * (d ? 2 : Step::kGroup));
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

constexpr index_t most(index_t extent) { return extent < kPitch ? extent : kPitch; }

// One thread's work.
template <class Step>
class Worker {
 public:
  using Output = typename Step::Output;
  static constexpr int kDigits = Step::kDigits, kLast = kDigits - 1;
  static constexpr const Layout<Step>& kAt = kLayout<Step>;
  static_assert(kAt.bytes == Step::kSlice, "the planner's layout is another one");

  explicit Worker(char* slice) : slice_(slice) {}

  template <class Parameters>
  void pack(const Parameters& parameters, const index_t* offsets) {
    pack_all(parameters, offsets, FirstIndices<kDigits>{});
  }

  // `plain` and `past_caches` as the parameters' `plain` and `stream`.
  template <class Epilogue>
  void run(index_t rows, const View<const Number>& x, const View<Output>& y, const View<const Output>& z,
           const Epilogue& epilogue, bool plain, bool past_caches) {
    if constexpr (detail::is_same<Output, Number>) {
      if (plain && y.column == 1 && (kDigits > 1 || rows >= kPitch)) {
        if (past_caches) {
          run_rows(rows, x, [&](index_t row) { return Rows<true>{y.data + row * y.row, row_stride(y)}; });
        } else {
          run_rows(rows, x, [&](index_t row) { return Rows<false>{y.data + row * y.row, row_stride(y)}; });
        }
        return;
      }
    }
    const index_t count = kDigits > 1 ? Step::kProduced[0] : rows;
    run_rows(rows, x, [&](index_t row) {
      const OutputSink<Step> sink{epilogue, y.data + row * y.row, z.data ? z.data + row * z.row : nullptr, nullptr};
      return Finished<Step>{sink, row_stride(y), y.column, row_stride(z), z.column, count};
    });
  }

 private:
  Number* numbers(index_t offset) const { return reinterpret_cast<Number*>(slice_ + offset); }

  // From one row of a block of results to the next: rows of Y, or the first digit's results.
  template <class T>
  static index_t row_stride(const View<T>& view) {
    return kDigits > 1 ? kAt.trail[0] * view.column : view.row;
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

  // sink_of(row) takes the blocks of a row, or those of all rows where there is one digit.
  template <class SinkOf>
  void run_rows(index_t rows, const View<const Number>& x, const SinkOf& sink_of) {
    if constexpr (kDigits == 1) {
      run_last(rows, x, sink_of(0));
    } else {
      constexpr index_t kTrail = kAt.trail[0], kPitchHere = line_pitch(kTrail);
      Number* lines = numbers(kAt.lines[0]);
      for (index_t row = 0; row < rows; row += Step::kGroup) {
        const index_t count = rows - row < Step::kGroup ? rows - row : Step::kGroup;
        fill<0>(x.data + row * x.row, x.row, x.column, count, lines);
        for (index_t i = 0; i < count; ++i) {
          LineSweep<Step::kContracted[0], Step::kProduced[0], most(kTrail)>::run(
              engine_, lines + i * kAt.span[0], kPitchHere, kTrail, numbers(kAt.factor[0]), sink_of(row + i));
        }
      }
    }
  }

  template <class Sink>
  void run_last(index_t rows, const View<const Number>& x, const Sink& sink) {
    constexpr index_t kContracted = Step::kContracted[kLast], kPadded = Depth{kContracted}.padded();
    using Sweep = LastSweep<kContracted, Step::kProduced[kLast], kPitch>;
    Number* staged = numbers(kAt.staged);
    const Number* tiles = numbers(kAt.factor[kLast]);
    if (rows >= kPitch) {
      Sweep::run(engine_, x.data, x.row, x.column, rows, tiles, staged, sink);
      return;
    }
    // The sink leaves out the rows of zeros.
    __builtin_memset(staged, 0, kPitch * kPadded * sizeof(Number));
    stage_rows<kContracted>(staged, x.data, x.row, x.column, int(rows));
    Sweep::run_staged(engine_, staged, tiles, sink);
  }

  // The lines of a digit, for `count` neighbours that are `step` elements apart in X.
  template <int kDigit>
  void fill(const Number* x, index_t step, index_t column, index_t count, Number* lines) {
    constexpr index_t kContracted = Step::kContracted[kDigit], kSpan = kAt.span[kDigit];
    constexpr index_t kTrail = kAt.trail[kDigit], kPitchHere = line_pitch(kTrail);
    const index_t inner = kAt.inner[kDigit] * column;
    if constexpr (kDigit + 1 == kLast) {
      if constexpr (kContracted == Depth{kContracted}.padded()) {
        // One neighbour's lines follow those of another: more rows of the same.
        if (step == kContracted * inner && count * kContracted >= kPitch) {
          fill_last<kPitch>(x, inner, column, count * kContracted, lines, kPitchHere);
          return;
        }
      }
      for (index_t i = 0; i < count; ++i) {
        fill_last<most(kContracted)>(x + i * step, inner, column, kContracted, lines + i * kSpan, kPitchHere);
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
              engine_, next, alone ? 0 : kAt.span[kNext], kNextPitch, kWidth, numbers(kAt.factor[kNext]),
              PairLine{own + p * kPitchHere, kWidth, alone});
        }
        clear_lines<kContracted>(own, kPitchHere);
      }
    }
  }

  template <index_t kRows>
  void fill_last(const Number* x, index_t row, index_t column, index_t rows, Number* lines, index_t pitch) {
    LastSweep<Step::kContracted[kLast], Step::kProduced[kLast], kRows>::run(
        engine_, x, row, column, rows, numbers(kAt.factor[kLast]), numbers(kAt.staged), RowLines{lines, pitch});
  }

  char* slice_;
  TileEngine engine_;
};

}  // namespace kron_amx

template <class Step, class Parameters>
int kron_amx_matmul(const Parameters& parameters, bool alone) {
  if (!packed::allow_tiles()) return 1;
  share_out(kron::tile_count(parameters), parameters.threads, alone, [&](index_t share, index_t first, index_t end) {
    kron_amx::Worker<Step> worker(static_cast<char*>(parameters.workspace) + share * parameters.slice);
    const auto pack = [&](const index_t* offsets) { worker.pack(parameters, offsets); };
    kron::each_tile<Step>(parameters, first, end, pack, [&](index_t rows, const auto& x, const auto& y, const auto& z) {
      worker.run(rows, x, y, z, typename Step::Epilogue(parameters.scalars), parameters.plain != 0,
                 parameters.stream != 0);
    });
    if (parameters.stream) stream_end();
  });
  return 0;
}

}  // namespace kronop
