// Operands whose elements are found through digits of their indices, such as patches of images, and
// are copied as those of strided operands are.
//
// A slab is copied in units of contiguous elements, along a line. A unit's offset and coordinates
// are the sums of those of its row (or column) and of its contracted index. Those of lines that are
// the same in all slabs are computed once, in shared memory.
#pragma once

#include "gemm_place.cuh"

namespace kronop {
namespace gemm {

// Which elements an operand has. The numbers are those of the Python enumeration.
enum class Access : int {
  kStrided,
  kInside,   // gathered; all of its elements exist
  kBounded,  // those out of bounds are 0
  kSpaced,   // so are those between multiples of `Gather::every`
};

// What the number of a problem adds to coordinates.
struct GatherShift {
  int u = 0, v = 0;

  KRONOP_INLINE void add(const Gather& of, int axis, int digit) {
    u += digit * of.batch_u[axis];
    v += digit * of.batch_v[axis];
  }
};

// What an index adds to an element's offset and coordinates.
template <Access>
struct GatherPlace {
  long long offset;

  KRONOP_INLINE void put(const Gather&, bool, int, int) {}
  KRONOP_INLINE bool meets(const GatherPlace&, const Gather&) const { return true; }
};
template <>
struct alignas(16) GatherPlace<Access::kBounded> {
  long long offset;
  int u, v;

  KRONOP_INLINE void put(const Gather&, bool, int of_u, int of_v) { u = of_u, v = of_v; }
  // Whether the element of this index and of the other one exists, without branches.
  KRONOP_INLINE bool meets(const GatherPlace& other, const Gather& of) const {
    return (unsigned(u + other.u) < of.extents[0]) & (unsigned(v + other.v) < of.extents[1]);
  }
};
// Coordinates in multiples of `every`, and what is left: above them of outer indices, whose
// coordinates are at least 0, and below them of inner ones, whose are at most 0. So both have to
// leave the same, and no unit takes a division.
template <>
struct alignas(16) GatherPlace<Access::kSpaced> {
  long long offset;
  int u, v, left_u, left_v;

  KRONOP_INLINE void put(const Gather& of, bool outer, int of_u, int of_v) {
    const int sign = outer ? 1 : -1;
    u = sign * int(of.every[0].quotient(sign * of_u));
    v = sign * int(of.every[1].quotient(sign * of_v));
    left_u = sign * (of_u - u * int(of.every[0].divisor));
    left_v = sign * (of_v - v * int(of.every[1].divisor));
    offset += u * of.strides[0] + v * of.strides[1];
  }
  KRONOP_INLINE bool meets(const GatherPlace& other, const Gather& of) const {
    return (unsigned(u + other.u) < of.extents[0]) & (unsigned(v + other.v) < of.extents[1]) &
           (left_u == other.left_u) & (left_v == other.left_v);
  }
};

template <Access kAccess>
KRONOP_INLINE GatherPlace<kAccess> place_of(const Gather& of, bool outer, unsigned index,
                                            GatherShift begin = {}) {
  const GatherDigits& digits = outer ? of.outer : of.inner;
  const unsigned rest = digits.last.quotient(index), first = digits.middle.quotient(rest);
  const unsigned second = rest - first * digits.middle.divisor,
                 third = index - rest * digits.last.divisor;
  const int a = int(first), b = int(second), c = int(third);
  GatherPlace<kAccess> place;
  // Of unsigned numbers, whose 64-bit products take fewer instructions.
  place.offset = first * digits.steps[0] + second * digits.steps[1] + third * digits.steps[2];
  if (outer) place.offset += of.first;
  place.put(of, outer, a * digits.u[0] + b * digits.u[1] + c * digits.u[2] + begin.u,
            a * digits.v[0] + b * digits.v[1] + c * digits.v[2] + begin.v);
  return place;
}

// Copies slabs of kRows rows of A, or columns of B, by the units of `Units`.
template <class Step, class Units, int kRows, bool kAcross, Access kAccess>
class GatherFeed : public Units {
  using Input = typename Step::Input;
  using Place = GatherPlace<kAccess>;
  static constexpr int kUnit = Units::kUnit, kTurns = Units::kTurns, kLines = Units::kEach / kTurns;

 public:
  // Bytes of the places of lines, if these are rows.
  static constexpr int kPlaceBytes = kAcross ? 0 : kRows * int(sizeof(Place));

  // The slab starts at row `first` of `rows`, and at contracted index `k`. Rows behind the last one
  // are copied from there: nobody reads their sums. Places of lines are stored in `places`; they
  // can be read behind a barrier. The problem shifts coordinates by `shift`.
  KRONOP_INLINE GatherFeed(const Gather& of, const Input* from, GatherShift shift, unsigned first,
                           unsigned rows, unsigned k, unsigned char* places)
      : of_(of), from_(from), k_(k), places_(reinterpret_cast<Place*>(places)) {
    shift.u += of.first_u;
    shift.v += of.first_v;
    const auto outer = [&](unsigned row, unsigned last) {
      return place_of<kAccess>(of_, true, row < last ? row : last, shift);
    };
    if constexpr (kAcross) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) within_[t] = outer(first + this->within_of(t), rows - kUnit);
    } else {
#pragma unroll 1
      for (int row = threadIdx.x; row < kRows; row += Step::kThreads)
        places_[row] = outer(first + row, rows - 1);
    }
  }

  // Starts to copy the next slab, of which `left` indices k exist, to `slab`; others become 0.
  template <class Element>
  KRONOP_INLINE void fetch(Element* slab, int left) {
    if (this->active_) {
      if constexpr (kAcross) {
        fetch_across(slab, left);
      } else {
        fetch_along(slab, left);
      }
    }
    k_ += Step::kTileK;
  }

 private:
  // Lines are contracted indices.
  template <class Element>
  KRONOP_INLINE void fetch_across(Element* slab, int left) {
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int line = this->line_of(l * kTurns);
      const Place place = place_of<kAccess>(of_, false, k_ + line);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) copy(slab, l * kTurns + t, within_[t], place, line < left);
    }
  }

  // Lines are rows.
  template <class Element>
  KRONOP_INLINE void fetch_along(Element* slab, int left) {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int within = this->within_of(t);
      const Place place = place_of<kAccess>(of_, false, k_ + within);
#pragma unroll
      for (int l = 0; l < kLines; ++l) {
        const int u = l * kTurns + t;
        copy(slab, u, places_[this->line_of(u)], place, within < left);
      }
    }
  }

  template <class Element>
  KRONOP_INLINE void copy(Element* slab, int u, const Place& outer, const Place& inner,
                          bool there) {
    there &= outer.meets(inner, of_);
    this->template bring<false>(slab, u, from_ + (outer.offset + inner.offset), there ? kUnit : 0);
  }

  const Gather& of_;
  const Input* const from_;
  unsigned k_;
  Place* const places_;
  Place within_[kAcross ? kTurns : 1];
};

// Computes a block's tile, or adds up slices, as `run_block` does for strided operands.
template <class Step, class Own, class Parameters>
KRONOP_INLINE void run_gathered(const Parameters& parameters) {
  using Input = typename Step::Input;
  const auto& p = parameters.product;
  if (p.adds_up) {
    Own::Held::add_up(p, blockIdx.x);
    return;
  }
  const Place<Step> place(p, blockIdx.x);
  const long long start = place.slice * p.depth, left = p.k - start;
  long long a = 0, b = 0;
  GatherShift shift_a, shift_b;
  for_each_digit(place.problem, p.batch, [&](int axis, long long digit) {
    a += digit * p.a_batch[axis];
    b += digit * p.b_batch[axis];
    shift_a.add(parameters.gather_a, axis, int(digit));
    shift_b.add(parameters.gather_b, axis, int(digit));
  });
  unsigned char* const places = shared_memory() + Own::kSlabBytes;
  typename Own::FeedOfA of_a(parameters.gather_a, static_cast<const Input*>(p.a) + a, shift_a,
                             unsigned(place.row), unsigned(p.m), unsigned(start), places);
  typename Own::FeedOfB of_b(parameters.gather_b, static_cast<const Input*>(p.b) + b, shift_b,
                             unsigned(place.column), unsigned(p.n), unsigned(start),
                             places + Own::FeedOfA::kPlaceBytes);
  __syncthreads();
  Own own;
  own.add(of_a, of_b, left < p.depth ? left : p.depth);
  // The place is recomputed: if it were kept, it would take registers.
  Own::Held::leave(p, Place<Step>(p, renewed((long long)blockIdx.x)),
                   [&](int piece) { return own.piece(piece); });
}

}  // namespace gemm
}  // namespace kronop
