// How a tile of a Kronecker matmul is staged: copied from global memory in whole rows, and back.
#pragma once

#include "kron_parameters.cuh"

namespace kronop {
namespace kron {

// Whether a window is accessed in vectors: the step has them, pointers and strides allow them, and
// the tile does not end inside one.
template <class Step>
KRONOP_INLINE bool wide(int vector, long long allowed, const Window<Step>& window) {
  return vector > 1 && allowed && (Step::kColumns == 1 || window.columns == Step::kColumns);
}

// The strides of an operand, as constants if the step knows them. Other strides are rare, and
// renewed() keeps the compiler from holding anything derived from them in registers.
template <bool kWide, int kDigit>
struct Strides {
  long long digit, inner;
  KRONOP_INLINE Strides(long long digit, long long inner)
      : digit(kWide && kDigit ? kDigit : renewed(digit)), inner(kWide ? 1 : renewed(inner)) {}
};

// A chunk of the window: its row and column, its index along the digits as the thread's own part k
// plus a `step` that is known at compile time, and its place in the tile.
struct Piece {
  int row, column, k, step, at;
  template <class Step>
  KRONOP_INLINE bool in(const Window<Step>& window) const {
    return row < window.rows && column < window.columns;
  }
  template <class T, class Strides>
  KRONOP_INLINE T* of(T* base, long long row_offset, const Strides& strides) const {
    return base + (row_offset + k * strides.digit + column * strides.inner) + step * strides.digit;
  }
};

// Calls visit(piece, offset of its row) for a thread's chunks. If all sizes are powers of two,
// there are no carries between a thread's first chunk and the steps to its next ones, so that steps
// are constants.
template <class Step, bool Produced, int kVector, class Visit>
KRONOP_INLINE void for_each_piece(const Window<Step>& window, const long long* offsets,
                                  Visit visit) {
  using Part = Chunk<Step, Produced ? Step::kSizeOut : Step::kSizeIn, kVector>;
  if constexpr (Step::kRegular && Part::kCount % Step::kThreads == 0) {
    constexpr int unrolled = Part::kCount / Step::kThreads < 8 ? Part::kCount / Step::kThreads : 8;
    const Part first(threadIdx.x);
#pragma unroll 1
    for (int start = 0; start < Part::kCount; start += unrolled * Step::kThreads) {
      const Part outer(start);
      const int row = first.row + outer.row, k = first.k + outer.k,
                column = first.column + outer.column;
      const int at = row * Step::kRowStride + spread<Step, Produced>(k) + column;
      // Offsets are read before the stores, because the compiler assumes that stores change them.
      long long offset[unrolled];
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const int before = u > 0 ? Part((u - 1) * Step::kThreads).row : -1,
                  now = Part(u * Step::kThreads).row;
        offset[u] = now == before ? offset[u > 0 ? u - 1 : 0] : offsets[row + now];
      }
#pragma unroll
      for (int u = 0; u < unrolled; ++u) {
        const Part step(u * Step::kThreads);
        visit(
            Piece{row + step.row, column + step.column, k, step.k,
                  at + step.row * Step::kRowStride + spread<Step, Produced>(step.k) + step.column},
            offset[u]);
      }
    }
  } else {
#pragma unroll 1
    for (int index = threadIdx.x; index < Part::kCount; index += Step::kThreads) {
      const Part part(index);
      visit(Piece{part.row, part.column, part.k, 0,
                  part.row * Step::kRowStride + spread<Step, Produced>(part.k) + part.column},
            part.row < window.rows ? offsets[part.row] : 0);
    }
  }
}

// Copies X to the tile, chunk by chunk.
template <class Step, bool kWide, class Parameters>
struct StageIn {
  using Input = typename Step::Input;
  using Element = TileElement<Step>;
  static constexpr int kVector = kWide ? Step::kXVector : 1, kPiece = kVector < 4 ? kVector : 4;
  const Input* x;
  Strides<kWide, Step::kXDigit> strides;
  Element* tile;
  const Window<Step>& window;

  KRONOP_INLINE StageIn(Element* to, const Parameters& parameters, const Window<Step>& where)
      : x(static_cast<const Input*>(parameters.x)), strides(parameters.digit_x, parameters.inner_x),
        tile(to), window(where) {}

  // Whether pieces are copied asynchronously; the caller waits for the copies.
  static constexpr bool kAlone = detail::same<Input, Element> && kVector * sizeof(Input) >= 4;

  KRONOP_INLINE void operator()(const Piece& piece, long long row_offset) const {
    if (!piece.in(window)) return;
    const Input* from = piece.of(x, row_offset, strides);
    if constexpr (kAlone) {
      copy_asynchronously<kVector * sizeof(Input)>(tile + piece.at, from);
    } else {
      put(load<Input, kVector>(from), piece.at);
    }
  }

  KRONOP_INLINE void put(const Vector<Input, kVector>& items, int at) const {
#pragma unroll
    for (int first = 0; first < kVector; first += kPiece) {
      Vector<Element, kPiece> values;
#pragma unroll
      for (int v = 0; v < kPiece; ++v) values.data[v] = convert<Element>(items.data[first + v]);
      store<Element, kPiece>(tile + at + first, values);
    }
  }

  // Copies all of a thread's pieces, several of them in flight.
  KRONOP_INLINE void run() const {
    using Part = Chunk<Step, Step::kSizeIn, kVector>;
    if constexpr (kAlone || (Step::kRegular && Part::kCount % Step::kThreads == 0)) {
      for_each_piece<Step, false, kVector>(window, window.offsets(0), *this);
    } else {
      constexpr int at_once = sizeof(Vector<Input, kVector>) <= 4 ? 8 : 2;
#pragma unroll 1
      for (int start = threadIdx.x; start < Part::kCount; start += at_once * Step::kThreads) {
        Vector<Input, kVector> items[at_once];
        int places[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int index = start + u * Step::kThreads;
          const Part part(index);
          const Piece piece{
              part.row, part.column, part.k, 0,
              part.row * Step::kRowStride + spread<Step, false>(part.k) + part.column};
          const bool there = index < Part::kCount && piece.in(window);
          places[u] = there ? piece.at : -1;
          if (there)
            items[u] = load<Input, kVector>(piece.of(x, window.offsets(0)[part.row], strides));
        }
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          if (places[u] >= 0) put(items[u], places[u]);
        }
      }
    }
  }
};

// Prefetches a window's X, if it is copied in vectors.
template <class Step, class Parameters>
KRONOP_INLINE void prefetch_tile(const Parameters& parameters, const Window<Step>& window) {
  using Input = typename Step::Input;
  constexpr int share = Step::kSizeIn / Step::kCluster;
  constexpr int run = (Step::kColumns > 1 ? Step::kColumns : share) * sizeof(Input),
                runs = Step::kColumns > 1 ? share : 1;
  // NOTE: a warp issues bulk prefetches for one thread after the other, about 100 cycles each, so
  // only one thread of each warp prefetches.
  constexpr bool pieces = kPrefetchesPieces && run >= 4096;
  constexpr int warps = Step::kThreads / 32;
  constexpr int size = !pieces              ? 128
                       : run / warps > 4096 ? (run + warps - 1) / warps
                                            : 4096,
                count = (run + size - 1) / size;
  if (pieces && threadIdx.x % 32 != 0) return;
  if (!wide<Step>(Step::kXVector, parameters.x_vector, window)) return;
  const Strides<true, Step::kXDigit> strides(parameters.digit_x, parameters.inner_x);
  const Input* x =
      static_cast<const Input*>(parameters.x) + rank_of_block<Step>() * share * strides.digit;
#pragma unroll 1
  for (int i = pieces ? threadIdx.x / 32 : threadIdx.x; i < window.rows * runs * count;
       i += pieces ? warps : Step::kThreads) {
    const int row = i / (runs * count), k = i / count % runs, at = i % count * size;
    const char* from = reinterpret_cast<const char*>(x + (window.x(row) + k * strides.digit)) + at;
    if constexpr (pieces) {
      prefetch_piece(from, run - at < size ? run - at : size);
    } else {
      prefetch_line(from);
    }
  }
}

// Applies the epilogue to the tile and stores it to Y, with a source Z or without.
template <class Step, bool kWide, bool kSource, class Parameters>
struct StageOut {
  using Output = typename Step::Output;
  using Element = TileElement<Step>;
  static constexpr int kVector = kWide ? Step::kYVector : 1, kPiece = kVector < 4 ? kVector : 4;
  Output* y;
  const Output* z;
  Strides<kWide, Step::kYDigit> y_strides, z_strides;
  const Element* tile;
  const Window<Step>& window;
  Finish<Step> finish;

  KRONOP_INLINE StageOut(const Element* from, const Parameters& parameters,
                         const Window<Step>& where)
      : y(static_cast<Output*>(parameters.y)), z(static_cast<const Output*>(parameters.z)),
        y_strides(parameters.digit_y, parameters.inner_y),
        z_strides(parameters.digit_z, parameters.inner_z), tile(from), window(where),
        finish(parameters) {}

  KRONOP_INLINE void operator()(const Piece& piece, long long row_offset) const {
    if (!piece.in(window)) return;
    if constexpr (Step::kHalf && !kSource) {
      // The last phase has applied the epilogue to its results.
      store<Output, kVector>(piece.of(y, row_offset, y_strides),
                             load<Output, kVector>(tile + piece.at));
      return;
    }
    Vector<Output, kVector> source{}, result;
    if constexpr (kSource)
      source = load<Output, kVector>(piece.of(z, window.z(piece.row), z_strides));
#pragma unroll
    for (int first = 0; first < kVector; first += kPiece) {
      const auto values = load<Element, kPiece>(tile + piece.at + first);
#pragma unroll
      for (int v = 0; v < kPiece; ++v) {
        const auto value = convert<typename Step::Accumulator>(values.data[v]);
        result.data[first + v] = kSource ? finish(value, source.data[first + v]) : finish(value);
      }
    }
    store<Output, kVector>(piece.of(y, row_offset, y_strides), result);
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void stage_in(TileElement<Step>* tile, const Parameters& parameters,
                            const Window<Step>& window) {
  if (wide<Step>(Step::kXVector, parameters.x_vector, window)) {
    StageIn<Step, true, Parameters>(tile, parameters, window).run();
  } else {
    StageIn<Step, false, Parameters>(tile, parameters, window).run();
  }
}

template <class Step, bool kSource, class Parameters>
KRONOP_INLINE void stage_out(const TileElement<Step>* tile, const Parameters& parameters,
                             const Window<Step>& window) {
  if (wide<Step>(Step::kYVector, parameters.y_vector, window)) {
    using Stage = StageOut<Step, true, kSource, Parameters>;
    for_each_piece<Step, true, Stage::kVector>(window, window.offsets(1),
                                               Stage(tile, parameters, window));
  } else {
    using Stage = StageOut<Step, false, kSource, Parameters>;
    for_each_piece<Step, true, Stage::kVector>(window, window.offsets(1),
                                               Stage(tile, parameters, window));
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void finish_tile(const TileElement<Step>* tile, const Parameters& parameters,
                               const Window<Step>& window) {
  if (parameters.z) {
    stage_out<Step, true>(tile, parameters, window);
  } else {
    stage_out<Step, false>(tile, parameters, window);
  }
}

// Stores a tile's results while the next tile's X is loaded to the same memory, if both have the
// same chunks: a thread overwrites what it has just read. Otherwise returns false and does nothing.
template <class Step, class Parameters>
KRONOP_INLINE bool exchange(TileElement<Step>* tile, const Parameters& parameters,
                            const Window<Step>& now, const Window<Step>& next) {
  if constexpr (Step::kSquare && Step::kXVector == Step::kYVector) {
    if (!parameters.z && wide<Step>(Step::kXVector, parameters.x_vector, next) &&
        wide<Step>(Step::kYVector, parameters.y_vector, now)) {
      const StageOut<Step, true, false, Parameters> out(tile, parameters, now);
      const StageIn<Step, true, Parameters> in(tile, parameters, next);
      for_each_piece<Step, true, Step::kXVector>(now, now.offsets(1),
                                                 [&](const Piece& piece, long long row_offset) {
                                                   out(piece, row_offset);
                                                   if (piece.in(next)) in(piece, next.x(piece.row));
                                                 });
      return true;
    }
  }
  return false;
}

}  // namespace kron
}  // namespace kronop
