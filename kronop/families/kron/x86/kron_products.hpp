// The products of one pass of a Kronecker matmul on a block, in a thread's scratch memory.
#pragma once

#include "kron_step.hpp"
#include "kronop_x86/transfer.hpp"

namespace kronop {

namespace kron {

enum Kind { kRowsAndLead = 0, kTrail = 1, kRows = 2, kWhole = 3 };

// A matrix in memory, and its strides.
template <class T>
struct View {
  T* data;
  index_t row, column;
};

// A step with the lanes of one pass, for transfers and sinks.
template <class Step, int kPass>
struct Lane : Step {
  static constexpr int kLanes = Step::kLanes[kPass], kVectors = kLanes / Step::kWidth;
};

// The buffers in one thread's slice, and its prefetches of what it reads next. A team shares the
// panels and the buffers between passes, which are in the first slice.
template <class Compute>
struct Scratch {
  Compute* panels;
  Compute* state[2];
  Compute* middle[2];
  Ahead* ahead;
  bool asks;
};

template <class Step, class Parameters>
KRONOP_INLINE Scratch<typename Step::Compute> scratch_of(const Parameters& parameters,
                                                         index_t share, Ahead& ahead) {
  using Compute = typename Step::Compute;
  constexpr index_t kPanelBytes = whole_lines(kTables<Step>.panels * sizeof(Compute));
  constexpr index_t kStateBytes = whole_lines(Step::kState * sizeof(Compute));
  const index_t middle_bytes =
      (parameters.slice - kPanelBytes - 2 * kStateBytes) / (Step::kPasses > 2 ? 2 : 1);
  char* base = static_cast<char*>(parameters.workspace);
  char* own = base + share * parameters.slice;
  char* shared = parameters.together ? base : own;
  char* middle = shared + kPanelBytes + 2 * kStateBytes;
  const auto at = [](char* pointer) { return reinterpret_cast<Compute*>(pointer); };
  return {at(shared),
          {at(own + kPanelBytes), at(own + kPanelBytes + kStateBytes)},
          {at(middle), at(middle + middle_bytes)},
          &ahead,
          parameters.ahead != 0};
}

// Whether a register tile may read its P vectors in place, `step` elements apart: they have to stay
// in the nearest cache until the tiles of the next outputs read them again.
// NOTE: with strides of powers of two they map to the same cache sets: 8 x 8 factors 4 KiB apart
// took twice as long, P >= 32 two to four times.
template <class D, class Compute>
constexpr bool stays_near(index_t step) {
  if (D::kProduced <= D::kRows && D::kContracted < 8) return true;
  const index_t bytes = step * index_t(sizeof(Compute)), lines = bytes / 64;
  index_t apart = 1;
  while (apart < 64 && lines % (2 * apart) == 0) apart *= 2;
  const index_t places = bytes % 64 ? 64 : 64 / apart;
  return D::kContracted * D::kVectors * D::kWidth * index_t(sizeof(Compute)) / 64 <= 4 * places;
}

// All products of a pass on a block of `count` lanes (or whole fibers), from `in` to `out` through
// the two states.
template <class Step, int kPass, class Compute>
struct Products {
  static constexpr int kFirst = kPass ? Step::kPassEnd[kPass - 1] : 0,
                       kCount = Step::kPassEnd[kPass] - kFirst;
  static constexpr bool kIsWhole = Step::kPassKind[kPass] == kWhole;

  const Scratch<Compute>& scratch;

  // Contiguous results of the last product: its lanes or, in blocks of whole fibers, its outputs.
  static constexpr index_t kRun = !kIsWhole ? index_t(Step::kLanes[kPass])
                                  : Step::kRight[kFirst + kCount - 1] == 1
                                      ? index_t(Step::kProduced[Step::kOrder[kFirst + kCount - 1]])
                                      : index_t(Step::kRight[kFirst + kCount - 1]);

  // Whether results may bypass the caches: every register tile then has to fill whole cache lines.
  static constexpr index_t kLine = 64 / sizeof(Compute);
  static constexpr int kTileRun = [] {
    using D = DigitOf<Step, kFirst + kCount - 1>;
    return D::kVectors * D::kWidth;
  }();
  static constexpr bool kMayPass =
      kPass + 1 == Step::kPasses && kRun % kLine == 0 && kTileRun % kLine == 0;
  template <class Place>
  static KRONOP_INLINE bool fits_lines(const Place& out) {
    const index_t step = kIsWhole ? kRun : out.step;
    return step % kLine == 0 && reinterpret_cast<unsigned long long>(out.data) % 64 == 0;
  }

  template <int kIndex, bool kStream>
  KRONOP_INLINE void one(index_t count, const Lined<const Compute>& in,
                         const Lined<Compute>& out) const {
    using D = DigitOf<Step, kIndex>;
    const Compute* panels = scratch.panels + kTables<Step>.panel[Step::kOrder[kIndex]];
    constexpr index_t kLeft = Step::kLeft[kIndex], kRight = Step::kRight[kIndex];
    Ahead& ahead = *scratch.ahead;
    if constexpr (!kIsWhole) {
      lane_product<D, kStream>(kLeft, kRight, Step::kLanes[kPass], in, out, panels, ahead);
    } else if constexpr (kRight == 1) {
      row_product<D, kStream>(count * kLeft, in.data, out.data, panels, ahead);
    } else if constexpr (kRight < D::kWidth) {
      static_assert(2 * kRight == D::kWidth && kLeft % 2 == 0 && !kStream);
      pair_product<D>(count * kLeft, in.data, out.data, panels, ahead);
    } else {
      lane_product<D, kStream>(count * kLeft, 1, kRight, Lined<const Compute>{in.data, kRight},
                               Lined<Compute>{out.data, kRight}, panels, ahead);
    }
  }
  // The approximate number of register tiles of a product.
  template <int kIndex>
  static constexpr index_t tiles() {
    using D = DigitOf<Step, kIndex>;
    constexpr index_t kTile = index_t(D::kRows) * D::kVectors * D::kWidth;
    constexpr index_t kResults =
        index_t(Step::kLeft[kIndex]) * Step::kRight[kIndex] * D::kProduced * Step::kLanes[kPass];
    return (kResults + kTile - 1) / kTile;
  }
  template <int... kIndex>
  static constexpr index_t all_tiles(Indices<kIndex...>) {
    return (tiles<kFirst + kIndex>() + ...);
  }
  static constexpr index_t kTiles = all_tiles(FirstIndices<kCount>{});
  // Elements of a fiber that a product reads.
  template <int kIndex>
  static constexpr index_t held() {
    return index_t(Step::kLeft[kIndex]) * Step::kRight[kIndex] * DigitOf<Step, kIndex>::kContracted;
  }
  // The state for a product's results: the one that its operands are in, or the other one.
  template <int kAt>
  static constexpr int state_after() {
    if constexpr (kAt == 0) {
      return 1;
    } else {
      return Step::kInPlace[kFirst + kAt] ? state_after<kAt - 1>() : 1 - state_after<kAt - 1>();
    }
  }
  template <int... kIndex>
  KRONOP_INLINE void all(index_t count, Lined<const Compute> in, Lined<Compute> out,
                         bool past_caches, Indices<kIndex...>) const {
    const auto next = [&](auto index) __attribute__((always_inline)) {
      constexpr int kAt = decltype(index)::value;
      const Lined<Compute> state{scratch.state[state_after<kAt>()], Step::kLanes[kPass]};
      if constexpr (kAt + 1 < kCount) {
        one<kFirst + kAt, false>(count, in, state);
      } else if constexpr (kIsWhole && kPadAfter<Step, kPass> != 0) {
        // Runs are padded only in the buffer between two passes. Results are always stored to it
        // directly, so `out` is that buffer and not a state, and each fiber has its padded address.
        constexpr index_t kNext = kTables<Step>.pass[kPass].produced + kPadAfter<Step, kPass>;
        for (index_t fiber = 0; fiber < count; ++fiber) {
          one<kFirst + kAt, false>(1, {in.data + fiber * held<kFirst + kAt>(), 0},
                                   {out.data + fiber * kNext, 0});
        }
      } else {
        if constexpr (kMayPass) {
          if (past_caches && fits_lines(out)) return one<kFirst + kAt, true>(count, in, out);
        }
        one<kFirst + kAt, false>(count, in, out);
      }
      in = {state.data, state.step};
    };
    (next(Constant<kIndex>{}), ...);
  }
  // The state for results that cannot be stored to their destination directly.
  Lined<Compute> state() const {
    return {scratch.state[state_after<kCount - 1>()], Step::kLanes[kPass]};
  }
};

}  // namespace kron
}  // namespace kronop
