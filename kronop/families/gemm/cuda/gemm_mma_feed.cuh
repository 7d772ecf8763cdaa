// How an operand is copied to shared memory for tensor cores: unchanged, in swizzled rows.
#pragma once

#include "gemm_place.cuh"

namespace kronop {
namespace gemm {

// A slab of kRows rows of A, or columns of B, in shared memory. Its lines are contiguous in memory:
// a row's contracted indices or, if kAcross, all rows of one contracted index.
//
// Pieces of 16 bytes are swizzled within their line, so that a warp's accesses have no bank
// conflicts: pieces of 8 lines if whole matrices are loaded (ldmatrix), else 32 bytes from the line
// of each thread t of a quad.
template <class Step, int kRows, bool kAcross>
struct Slab {
  using Input = typename Step::Input;
  static constexpr int kSize = sizeof(Input), kLength = kAcross ? kRows : Step::kTileK,
                       kLines = kAcross ? Step::kTileK : kRows;
  static constexpr int kLineBytes = kLength * kSize, kBytes = kLineBytes * kLines;
  static constexpr int kPieces = kLineBytes / 16, kPower = kPieces & -kPieces,
                       kSwizzled = kPower < 8 ? kPower : 8;
  static_assert(kLineBytes % 16 == 0);

  KRONOP_INLINE static int swizzle(int line) {
    int other = line / (8 / kSwizzled);
    if constexpr (kAcross && kSize == 4) other = 2 * (line % 4);
    if constexpr (kAcross && kSize == 1) other = 2 * (line / 4 % 4);
    if constexpr (kSize == 8) other *= 2;
    return other & (kSwizzled - 1);
  }
  // The offset of byte `byte` of a line.
  KRONOP_INLINE static int place(int line, int byte) {
    return line * kLineBytes + ((byte / 16 ^ swizzle(line)) * 16 | byte % 16);
  }
  // The offset of the element `lines` lines and `bytes` bytes after the one at offset `place`. Of
  // the bits that change the swizzle, the last four of a line and those of a span, none is set in
  // both. NOTE: if both are constants, most of them become immediate offsets to an address that is
  // computed once; the compiler does not find that by itself.
  KRONOP_INLINE static int further(int place, int lines, int bytes) {
    constexpr int kSpan = 16 * kSwizzled;
    return (place ^ (swizzle(lines) * 16 ^ bytes % kSpan)) + lines * kLineBytes +
           bytes / kSpan * kSpan;
  }
};

// How threads share a slab: units of kPromised contiguous elements, copied asynchronously in 4, 8
// or 16 bytes; smaller ones are copied through registers, one by one.
template <class Step, int kRows, bool kAcross, int kPromised>
class MmaUnits {
  using Input = typename Step::Input;

 public:
  using Room = Slab<Step, kRows, kAcross>;
  static constexpr bool kDirectly = kPromised * sizeof(Input) >= 4;

 protected:
  static constexpr int kUnit = kDirectly ? kPromised : 1, kUnitBytes = kUnit * int(sizeof(Input));
  static constexpr int kOfLine = Room::kLength / kUnit, kThreads = Step::kThreads,
                       kAll = kOfLine * Room::kLines, kEach = (kAll + kThreads - 1) / kThreads;
  // Lines that all threads copy at once, or rounds in which they copy one line.
  static constexpr int kAtOnce = kThreads / kOfLine, kTurns = kAtOnce ? 1 : kOfLine / kThreads;
  static_assert(kThreads % kOfLine == 0 || kOfLine % kThreads == 0);
  static_assert(kAll % kThreads == 0 || kAll < kThreads);

  KRONOP_INLINE MmaUnits() {
    line_ = kAtOnce ? threadIdx.x / kOfLine : 0;
    within_ = (kAtOnce ? threadIdx.x % kOfLine : threadIdx.x) * kUnit;
    active_ = kAll >= kThreads || int(threadIdx.x) < kAll;
  }

 public:
  // Stores the slab that is in registers.
  KRONOP_INLINE void store_to(unsigned char* slab) const {
    if constexpr (!kDirectly) {
      if (!active_) return;
#pragma unroll
      for (int u = 0; u < kEach; ++u) *reinterpret_cast<Input*>(slab + place(u)) = held_[u];
    }
  }

 protected:
  // The offset of unit u from the thread's first one.
  KRONOP_INLINE static constexpr int lines_on(int u) { return kAtOnce ? u * kAtOnce : u / kTurns; }
  KRONOP_INLINE static constexpr int within_on(int u) {
    return kAtOnce ? 0 : u % kTurns * (kThreads * kUnit);
  }
  // The line of unit u, and its place there.
  KRONOP_INLINE int line_of(int u) const { return line_ + lines_on(u); }
  KRONOP_INLINE int within_of(int u) const { return within_ + within_on(u); }

  // Starts to copy unit u, of which the first `there` elements exist; others become 0.
  template <bool kWhole>
  KRONOP_INLINE void bring(unsigned char* slab, int u, const Input* from, int there) {
    if constexpr (!kDirectly) {
      held_[u] = Input{};
      if (there) held_[u] = *from;
    } else if constexpr (kWhole) {
      copy_asynchronously<kUnitBytes>(slab + place(u), from);
    } else {
      copy_or_clear<kUnitBytes>(slab + place(u), from, there * int(sizeof(Input)));
    }
  }

  int line_, within_;
  bool active_;

 private:
  KRONOP_INLINE int place(int u) const {
    return Room::place(line_of(u), within_of(u) * int(sizeof(Input)));
  }

  Input held_[kDirectly ? 1 : kEach];
};

// Copies slabs of a strided operand.
template <class Step, int kRows, bool kAcross, int kPromised>
class MmaFeed : public MmaUnits<Step, kRows, kAcross, kPromised> {
  using Input = typename Step::Input;
  using Units = MmaUnits<Step, kRows, kAcross, kPromised>;
  using Units::active_, Units::line_, Units::within_;

 public:
  // The slab starts at row `first` of `rows`; rows start at `from`.
  KRONOP_INLINE MmaFeed(const Input* from, long long first, long long rows, long long row_step,
                        long long k_step)
      : line_step_(kAcross ? k_step : row_step), step_(kAcross ? row_step : k_step) {
    const long long left = rows - first;
    rows_ = left < kRows ? int(left) : kRows;
    from_ = from + first * row_step + line_ * line_step_ + within_ * step_;
  }

  // Starts to copy the next slab, of which `left` indices k exist, to `slab`; others become 0.
  KRONOP_INLINE void fetch(unsigned char* slab, int left) {
    if (active_) {
      if (rows_ == kRows && left >= Step::kTileK) {
        fetch_as<true>(slab, left);
      } else {
        fetch_as<false>(slab, left);
      }
    }
    from_ += Step::kTileK * (kAcross ? line_step_ : step_);
  }

 private:
  template <bool kWhole>
  KRONOP_INLINE void fetch_as(unsigned char* slab, int left) {
    constexpr int kUnit = Units::kUnit, kEach = Units::kEach;
    constexpr bool kDirectly = Units::kDirectly;
    // Offsets hoisted out of the loop over slabs, one for each unit, would take registers.
    const long long line_step = renewed(line_step_);
    const int lines = (kAcross ? left : rows_) - line_, length = (kAcross ? rows_ : left) - within_;
    // NOTE: not unrolled for incomplete slabs: the compiler merged its copies with those of
    // complete slabs into one predicated sequence, more than twice as long.
    constexpr int kUnrolled = kWhole || !kDirectly ? kEach : 1;
#pragma unroll kUnrolled
    for (int u = 0; u < kEach; ++u) {
      const int lines_on = Units::lines_on(u), within_on = Units::within_on(u);
      const Input* const from =
          from_ + (lines_on * line_step + within_on * (kDirectly && kUnit > 1 ? 1 : step_));
      const int along = length - within_on;
      const int there = kWhole                            ? kUnit
                        : lines <= lines_on || along <= 0 ? 0
                        : along < kUnit                   ? along
                                                          : kUnit;
      this->template bring<kWhole>(slab, u, from, there);
    }
  }

  const Input* from_;
  const long long line_step_, step_;
  int rows_;
};

}  // namespace gemm
}  // namespace kronop
