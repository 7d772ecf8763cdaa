// How an operand is copied to shared memory for SIMT cores, as [k][row] in the type of sums, while
// the previous slab is computed: asynchronously if elements are unchanged, else through registers.
#pragma once

#include "gemm_place.cuh"

namespace kronop {
namespace gemm {

// How threads share a slab of kRows rows of A, or columns of B, and kTileK indices k: units of
// kPromised contiguous elements, along k or, if kAcross, across it. A promise of 1 is none: strides
// and alignment are arbitrary.
template <class Step, int kRows, bool kAcross, int kPromised>
class TileUnits {
  using Input = typename Step::Input;
  using Sum = typename Step::Accumulator;
  static constexpr bool kDirectly = detail::same<Input, Sum>;

 public:
  // NOTE: padded to 16 bytes more than a multiple of 32 banks: 8 indices k of 4 rows that a warp
  // stores are in different banks.
  static constexpr int kPitch = kRows + 16 / int(sizeof(Sum));

 protected:
  // Neighbours along k go to different rows of shared memory, which takes a copy for each element.
  static constexpr int kUnit = kDirectly && !kAcross ? 1 : kPromised;
  // Units of a line in memory, lines that all threads copy at once, and units of a thread.
  static constexpr int kOfLine = (kAcross ? kRows : Step::kTileK) / kUnit,
                       kLines = Step::kThreads / kOfLine, kTurns = 1;
  static constexpr int kAll = kRows * Step::kTileK / kUnit,
                       kEach = (kAll + Step::kThreads - 1) / Step::kThreads;
  static_assert(Step::kThreads % kOfLine == 0 &&
                (kAll % Step::kThreads == 0 || kAll < Step::kThreads));

  KRONOP_INLINE TileUnits() {
    const int line = threadIdx.x / kOfLine, within = threadIdx.x % kOfLine * kUnit;
    row_ = kAcross ? within : line;
    k_ = kAcross ? line : within;
    active_ = kAll >= Step::kThreads || int(threadIdx.x) < kAll;
  }

 public:
  // Stores the slab that is in registers.
  KRONOP_INLINE void store_to(Sum* slab) const {
    if constexpr (!kDirectly) {
      if (!active_) return;
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        Sum* const to = slab + place(u);
#pragma unroll
        for (int e = 0; e < kUnit; ++e)
          to[kAcross ? e : e * kPitch] = convert<Sum>(held_[u].data[e]);
      }
    }
  }

 protected:
  // The offset of unit u from the thread's first one.
  KRONOP_INLINE static constexpr int rows_on(int u) { return kAcross ? 0 : u * kLines; }
  KRONOP_INLINE static constexpr int k_on(int u) { return kAcross ? u * kLines : 0; }
  // The line of unit u, and its place there.
  KRONOP_INLINE int line_of(int u) const { return kAcross ? k_ + k_on(u) : row_ + rows_on(u); }
  KRONOP_INLINE int within_of(int) const { return kAcross ? row_ : k_; }

  // Starts to copy unit u, of which the first `there` elements exist, `step` elements apart; others
  // become 0.
  template <bool kWhole>
  KRONOP_INLINE void bring(Sum* slab, int u, const Input* from, int there, long long step = 1) {
    constexpr int size = sizeof(Input);
    if constexpr (kDirectly && kWhole) {
      copy_asynchronously<size * kUnit>(slab + place(u), from);
    } else if constexpr (kDirectly) {
      copy_or_clear<size * kUnit>(slab + place(u), from, there * size);
    } else if (there == kUnit) {
      held_[u] = load<Input, kUnit>(from);
    } else {
#pragma unroll
      for (int e = 0; e < kUnit; ++e) {
        held_[u].data[e] = Input{};
        if (e < there) held_[u].data[e] = from[e * step];
      }
    }
  }

  int row_, k_;
  bool active_;

 private:
  KRONOP_INLINE int place(int u) const { return (k_ + k_on(u)) * kPitch + row_ + rows_on(u); }

  Vector<Input, kUnit> held_[kDirectly ? 1 : kEach];
};

// Copies slabs of a strided operand.
template <class Step, int kRows, bool kAcross, int kPromised>
class TileFeed : public TileUnits<Step, kRows, kAcross, kPromised> {
  using Input = typename Step::Input;
  using Sum = typename Step::Accumulator;
  using Units = TileUnits<Step, kRows, kAcross, kPromised>;
  using Units::active_, Units::k_, Units::row_;

 public:
  // The slab starts at row `first` of `rows`; rows start at `from`.
  KRONOP_INLINE TileFeed(const void* from, long long first, long long rows, long long row_step,
                         long long k_step)
      : row_step_(row_step), k_step_(k_step) {
    const long long left = rows - first;
    rows_ = (left < kRows ? int(left) : kRows) - row_;
    whole_ = left >= kRows;
    from_ = static_cast<const Input*>(from) + (first + row_) * row_step + k_ * k_step;
  }

  // Starts to copy the next slab, of which `left` indices k exist, to `slab`; others become 0.
  KRONOP_INLINE void fetch(Sum* slab, int left) {
    if (active_) {
      if (whole_ && left >= Step::kTileK) {
        fetch_as<true>(slab, left);
      } else {
        fetch_as<false>(slab, left);
      }
    }
    from_ += Step::kTileK * k_step_;
  }

 private:
  template <bool kWhole>
  KRONOP_INLINE void fetch_as(Sum* slab, int left) {
    constexpr int kUnit = Units::kUnit;
    // Offsets hoisted out of the loop over slabs, one for each unit, would take registers.
    const long long apart = renewed(Units::kLines * (kAcross ? k_step_ : row_step_));
    const Input* from = from_;
#pragma unroll
    for (int u = 0; u < Units::kEach; ++u, from += apart) {
      // How many elements of the unit exist.
      const int rows = rows_ - Units::rows_on(u), ks = left - k_ - Units::k_on(u),
                along = kAcross ? rows : ks, other = kAcross ? ks : rows;
      const int there = kWhole                     ? kUnit
                        : other <= 0 || along <= 0 ? 0
                        : along < kUnit            ? along
                                                   : kUnit;
      this->template bring<kWhole>(slab, u, from, there, kAcross ? row_step_ : k_step_);
    }
  }

  const Input* from_;
  const long long row_step_, k_step_;
  int rows_;
  bool whole_;
};

}  // namespace gemm
}  // namespace kronop
