// The ends of a pass: its first phase may read X, and its last one may write Y, directly in global
// memory. This is how they access fibers there.
#pragma once

#include "kron_phase.cuh"
#include "kron_staging.cuh"

namespace kronop {
namespace kron {

// How a phase accesses global memory: in whole vectors, without a source Z (kPlain) or with one
// (kSource), or one element at a time (kNarrow). There is a loop for each, because a branch inside
// would keep loads and MMAs from overlapping. If a piece has so many MMAs that they would not
// overlap anyway, one loop chooses for each piece (kAny), which compiles in a third of the time.
enum class Access { kPlain, kSource, kNarrow, kAny };

template <class Step, int Phase>
inline constexpr bool reads_memory = Phase == 0 && !Step::kStagedIn;
template <class Step, int Phase>
inline constexpr bool writes_memory = Phase + 1 == Step::kPhases && !Step::kStagedOut;
template <class Step, int Phase>
inline constexpr bool reads_ahead = Step::kAhead && reads_memory<Step, Phase>;

// The type in which a phase holds loaded elements of X. A phase by chunks (kEach > 0) converts them
// later: a conversion would wait for the load, while other work could continue.
template <class Step, int kEach>
using OnItsWay = Either<(kEach > 0), typename Step::Input, typename Step::Accumulator>;

template <class T, class From, int A, int B, int C>
KRONOP_INLINE void convert_all(T (&to)[A][B][C], const From (&from)[A][B][C]) {
#pragma unroll
  for (int a = 0; a < A; ++a) {
#pragma unroll
    for (int b = 0; b < B; ++b) {
#pragma unroll
      for (int c = 0; c < C; ++c) to[a][b][c] = convert<T>(from[a][b][c]);
    }
  }
}
template <class T, class From, int A, int B, int C, int D>
KRONOP_INLINE void convert_all(T (&to)[A][B][C][D], const From (&from)[A][B][C][D]) {
#pragma unroll
  for (int a = 0; a < A; ++a) convert_all(to[a], from[a]);
}

// Processes pieces `start`, `start` + kStep, ... below kEnd of phase `work`.
template <class Step, int Phase, int kEnd, int kStep, class Work>
KRONOP_INLINE void work_on_pieces(const Work& work, int start) {
  using Piece = typename Work::Piece;
  for_each_piece_of_phase<Step, Piece, kEnd, kStep, reads_ahead<Step, Phase>>(
      start, [&](Piece& piece, int first, int offset) { work.fetch(piece, first, offset); },
      [&](const Piece& piece) { work.use(piece); });
}

// Calls visit.template operator()<Access>() with the kind of access that this window allows.
template <class Step, int Phase, class Parameters, class Visit>
KRONOP_INLINE void with_access(const Parameters& parameters, const Window<Step>& window,
                               Visit visit) {
  constexpr bool reads = reads_memory<Step, Phase>, writes = writes_memory<Step, Phase>;
  if constexpr (!reads && !writes) {
    visit.template operator()<Access::kPlain>();
  } else {
    const bool x = !reads || wide<Step>(Step::kXVector, parameters.x_vector, window);
    const bool y = !writes || wide<Step>(Step::kYVector, parameters.y_vector, window);
    if (!x || !y) {
      visit.template operator()<Access::kNarrow>();
    } else if (writes && parameters.z) {
      visit.template operator()<Access::kSource>();
    } else {
      visit.template operator()<Access::kPlain>();
    }
  }
}

// Whether the element `lane` lanes after `place` exists. If a tile has several columns, lanes are
// columns.
template <class Step>
KRONOP_INLINE bool exists(const Place& place, int lane, const Window<Step>& window) {
  return (Step::kRows == 1 || place.row < window.rows) &&
         (Step::kColumns == 1 || place.column + lane < window.columns);
}

// Offset of a row of the window. If a tile has a single row, its offset has been added to the
// operand's pointer.
template <class Step>
KRONOP_INLINE long long row_offset(const Window<Step>& window, int operand, const Place& place) {
  return Step::kRows == 1 || place.row >= window.rows ? 0 : window.offsets(operand)[place.row];
}
template <class Step>
KRONOP_INLINE long long only_row(const Window<Step>& window, int operand) {
  return Step::kRows == 1 ? window.offsets(operand)[0] : 0;
}

// X as a phase reads it: elements of fibers in global memory.
template <class Step, Access kAccess>
struct Source {
  using Input = typename Step::Input;
  static constexpr bool kWide = kAccess != Access::kNarrow;
  static constexpr int kVector = kWide ? Step::kXVector : 1;
  const Input* x;
  Strides<kWide, Step::kXDigit> strides;
  const Window<Step>& window;

  template <class Parameters>
  KRONOP_INLINE Source(const Parameters& parameters, const Window<Step>& where)
      : x(static_cast<const Input*>(parameters.x) + only_row(where, 0)),
        strides(parameters.digit_x, parameters.inner_x), window(where) {
    x += rank_of_block<Step>() * (Step::kSizeIn / Step::kCluster) * strides.digit;
  }

  KRONOP_INLINE const Input* at(const Place& place) const {
    return x +
           (row_offset(window, 0, place) + place.k * strides.digit + place.column * strides.inner);
  }
  // Loads N elements along the digits, or along the columns, from index k after `place` on; zeros
  // out of bounds.
  template <int N, bool kAlongDigits>
  KRONOP_INLINE void read(Input (&items)[N], const Place& place, const Input* from, int k) const {
    constexpr int vector = N < kVector ? N : kVector;
#pragma unroll
    for (int first = 0; first < N; first += vector) {
      Vector<Input, vector> part{};
      const long long step = first * (kAlongDigits ? strides.digit : strides.inner);
      if (exists(place, kAlongDigits ? 0 : first, window))
        part = load<Input, vector>(from + (k * strides.digit + step));
#pragma unroll
      for (int v = 0; v < vector; ++v) items[first + v] = part.data[v];
    }
  }
};

// Y as a phase writes it, after the epilogue.
template <class Step, Access kAccess>
struct Sink {
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  static constexpr bool kWide = kAccess != Access::kNarrow, kSource = kAccess != Access::kPlain;
  static constexpr int kVector = kWide ? Step::kYVector : 1;
  struct Spot {
    Output* y;
    const Output* z;
  };
  Output* y;
  const Output* z;
  Strides<kWide, Step::kYDigit> y_strides, z_strides;
  const Window<Step>& window;
  const Finish<Step> finish;

  template <class Parameters>
  KRONOP_INLINE Sink(const Parameters& parameters, const Window<Step>& where,
                     const Finish<Step>& functor)
      : y(static_cast<Output*>(parameters.y) + only_row(where, 1)),
        z(parameters.z ? static_cast<const Output*>(parameters.z) + only_row(where, 2) : nullptr),
        y_strides(parameters.digit_y, parameters.inner_y),
        z_strides(parameters.digit_z, parameters.inner_z), window(where), finish(functor) {}

  KRONOP_INLINE Spot at(const Place& place) const {
    return {y + (row_offset(window, 1, place) + place.k * y_strides.digit +
                 place.column * y_strides.inner),
            z + (row_offset(window, 2, place) + place.k * z_strides.digit +
                 place.column * z_strides.inner)};
  }
  // Stores N sums along the digits, or along the columns, from index k after `place` on.
  template <int N, bool kAlongDigits>
  KRONOP_INLINE void write(const Accumulator (&values)[N], const Place& place, const Spot& to,
                           int k) const {
    constexpr int vector = N < kVector ? N : kVector;
#pragma unroll
    for (int first = 0; first < N; first += vector) {
      if (!exists(place, kAlongDigits ? 0 : first, window)) continue;
      const long long y_step =
          k * y_strides.digit + first * (kAlongDigits ? y_strides.digit : y_strides.inner);
      const long long z_step =
          k * z_strides.digit + first * (kAlongDigits ? z_strides.digit : z_strides.inner);
      Vector<Output, vector> source{}, result;
      if (kSource && z) source = load<Output, vector>(to.z + z_step);
#pragma unroll
      for (int v = 0; v < vector; ++v)
        result.data[v] =
            kSource ? finish(values[first + v], source.data[v]) : finish(values[first + v]);
      store<Output, vector>(to.y + y_step, result);
    }
  }
};

// Passes X and Y to a visitor: with one kind of access for all pieces, or with the one that the
// window allows (kAny).
template <class Step, Access kAccess, class Parameters>
struct Ends {
  const Source<Step, kAccess> source;
  const Sink<Step, kAccess> sink;
  KRONOP_INLINE Ends(const Parameters& parameters, const Window<Step>& window)
      : source(parameters, window), sink(parameters, window, Finish<Step>(parameters)) {}

  template <class Visit>
  KRONOP_INLINE void with_source(Visit visit) const {
    visit.template operator()<kAccess>(source);
  }
  template <class Visit>
  KRONOP_INLINE void with_sink(Visit visit) const {
    visit.template operator()<kAccess>(sink);
  }
};
template <class Step, class Parameters>
struct Ends<Step, Access::kAny, Parameters> {
  const Parameters& parameters;
  const Window<Step>& window;
  KRONOP_INLINE Ends(const Parameters& from, const Window<Step>& where)
      : parameters(from), window(where) {}

  template <class Visit>
  KRONOP_INLINE void with_source(Visit visit) const {
    if (wide<Step>(Step::kXVector, parameters.x_vector, window)) {
      visit.template operator()<Access::kPlain>(Source<Step, Access::kPlain>(parameters, window));
    } else {
      visit.template operator()<Access::kNarrow>(Source<Step, Access::kNarrow>(parameters, window));
    }
  }
  template <class Visit>
  KRONOP_INLINE void with_sink(Visit visit) const {
    const Finish<Step> finish(parameters);
    if (!wide<Step>(Step::kYVector, parameters.y_vector, window)) {
      visit.template operator()<Access::kNarrow>(
          Sink<Step, Access::kNarrow>(parameters, window, finish));
    } else if (parameters.z) {
      visit.template operator()<Access::kSource>(
          Sink<Step, Access::kSource>(parameters, window, finish));
    } else {
      visit.template operator()<Access::kPlain>(
          Sink<Step, Access::kPlain>(parameters, window, finish));
    }
  }
};

}  // namespace kron
}  // namespace kronop
