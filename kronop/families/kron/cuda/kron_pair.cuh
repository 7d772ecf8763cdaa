// A phase that contracts two digits: the result of the first one stays in registers.
//
// X is the right operand of the first product, Y1 = F1^T X, with the contracted index along the
// threads of a quad. The columns of Y1 are along the quad as well. That is how the second product,
// Y2 = Y1 F2, needs the contracted index of its left operand: the transposition between the two
// digits is free.
#pragma once

#include "kron_pair_layout.cuh"

namespace kronop {
namespace kron {

// Loads a thread's blocks from X. All loads are issued before the first one is needed.
template <class Step, int Phase, Access kAccess, class Of = PairOf<Step, Phase>, class Element>
KRONOP_INLINE void read_blocks(Element (&x)[Of::kLanes][Of::kParts1][Of::kParts2][2],
                               const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces],
                               const Source<Step, kAccess>& source) {
  using Input = typename Step::Input;
  // The elements of one access: a pair of a contiguous digit, if its size is even; or all lanes.
  constexpr int width = Of::kUnit ? (Of::kP1 % 2 == 0 ? 2 : 1) : Of::kPlaces == 1 ? Of::kLanes : 1;
  constexpr int at1 = step_in<Step>(Of::kInner), at2 = step_in<Step>(Of::kOuter);
  const int t = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
  Input items[Of::kParts1][Of::kParts2][Of::kLanes * 2] = {};
#pragma unroll
  for (int i = 0; i < Of::kPlaces; ++i) {
    Place place = places[i];
    place.k += Of::along(t, 0) * at1 + g * at2;
    const Input* from = source.at(place);
    if (!live[i]) continue;
#pragma unroll
    for (int s = 0; s < Of::kParts1; ++s) {
#pragma unroll
      for (int j = 0; j < Of::kParts2; ++j) {
        if (Of::kP2 % 8 != 0 && 8 * j + g >= Of::kP2) continue;
#pragma unroll
        for (int r = 0; r < 2; r += Of::kUnit ? width : 1) {
          if (Of::kP1 % 8 != 0 && 8 * s + Of::along(t, r) >= Of::kP1) continue;
          Input part[width];
          source.template read<width, Step::kColumns == 1>(
              part, place, from, (8 * s + (Of::kUnit ? r : 4 * r)) * at1 + 8 * j * at2);
#pragma unroll
          for (int v = 0; v < width; ++v)
            items[s][j][Of::kUnit ? 2 * i + r + v : 2 * (i + v) + r] = part[v];
        }
      }
    }
  }
#pragma unroll
  for (int s = 0; s < Of::kParts1; ++s) {
#pragma unroll
    for (int j = 0; j < Of::kParts2; ++j) {
#pragma unroll
      for (int e = 0; e < 2 * Of::kLanes; ++e)
        x[e / 2][s][j][e % 2] = convert<Element>(items[s][j][e]);
    }
  }
}

// Loads a thread's blocks from the tile.
template <class Step, int Phase, class Of = PairOf<Step, Phase>>
KRONOP_INLINE void read_blocks(typename Of::Elements& x, const Place (&places)[Of::kPlaces],
                               const bool (&live)[Of::kPlaces],
                               const typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = Of::kNeighbours ? Of::kLanes : 1;
  const int t = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < Of::kPlaces; ++i) {
    const Accumulator* from =
        tile + places[i].shared + Of::along(t, 0) * Of::kStride1 + g * Of::kStride2;
#pragma unroll
    for (int s = 0; s < Of::kParts1; ++s) {
#pragma unroll
      for (int j = 0; j < Of::kParts2; ++j) {
        const bool outer = live[i] && (Of::kP2 % 8 == 0 || 8 * j + g < Of::kP2);
        if constexpr (Of::kUnit) {
          // A digit has an even number of slots, so that a pair does not cross its end.
          const int p = 8 * s + 2 * t;
          const auto pair = load_if<Accumulator, 2>(outer && (Of::kP1 % 8 == 0 || p < Of::kP1),
                                                    from + 8 * s + 8 * j * Of::kStride2);
#pragma unroll
          for (int r = 0; r < 2; ++r)
            x[i][s][j][r] = Of::kP1 % 8 == 0 || p + r < Of::kP1 ? pair.data[r] : Accumulator{};
        } else {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const bool there = outer && (Of::kP1 % 8 == 0 || 8 * s + t + 4 * r < Of::kP1);
            const auto row = load_if<Accumulator, vector>(
                there, from + (8 * s + 4 * r) * Of::kStride1 + 8 * j * Of::kStride2);
#pragma unroll
            for (int v = 0; v < vector; ++v) x[i + v][s][j][r] = row.data[v];
          }
        }
      }
    }
  }
}

// Computes the first product of a block: 16 produced indices, or 8 where there are no more.
template <class Step, int Phase, class Of = PairOf<Step, Phase>>
KRONOP_INLINE void multiply_left(typename Step::Accumulator (&sums)[Of::kParts2][4],
                                 const typename Step::Accumulator (&x)[Of::kParts1][Of::kParts2][2],
                                 const typename Of::LeftFactor& factor, int m) {
  using Accumulator = typename Step::Accumulator;
#pragma unroll
  for (int first = 0; first < Of::kParts1; first += Of::kTogether) {
    Accumulator part[Of::kParts2][4] = {};
#pragma unroll
    for (int s = first; s < Of::kParts1 && s < first + Of::kTogether; ++s) {
      const typename Of::Left a = factor[m * Of::kParts1 + s];
      Split<Accumulator, 2, Step::kSplit> b[Of::kParts2];
#pragma unroll
      for (int j = 0; j < Of::kParts2; ++j) b[j] = Split<Accumulator, 2, Step::kSplit>(x[s][j]);
      if constexpr (Of::kStacked) {
#pragma unroll
        for (int j = 0; j < Of::kParts2; ++j) warp_multiply_add(part[j], a.data, b[j].rest);
#pragma unroll
        for (int j = 0; j < Of::kParts2; ++j) warp_multiply_add(part[j], a.data, b[j].value);
      } else {
        add_row(part, a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < Of::kParts2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[j][e] = first == 0 ? part[j][e] : sums[j][e] + part[j][e];
    }
  }
  if constexpr (Of::kStacked) {
    // The upper half has the products of the factor's remainders: they are added to those of the
    // values.
#pragma unroll
    for (int j = 0; j < Of::kParts2; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) sums[j][r] += sums[j][2 + r];
    }
  }
}

// Computes the second product of one set of blocks from the sums of the first.
template <class Step, int Phase, class Of = PairOf<Step, Phase>>
KRONOP_INLINE void multiply_right(
    typename Step::Accumulator (&sums)[Of::kProduced2][4],
    const typename Step::Accumulator (&left)[Of::kHalf ? 2 : 1][Of::kParts2][4],
    const typename Of::RightFactor& factor) {
  using Accumulator = typename Step::Accumulator;
#pragma unroll
  for (int first = 0; first < Of::kParts2; first += Of::kTogether) {
    Accumulator part[Of::kProduced2][4] = {};
#pragma unroll
    for (int j = first; j < Of::kParts2 && j < first + Of::kTogether; ++j) {
      Accumulator fiber[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          fiber[h + 2 * r] = Of::kHalf ? left[h][j][r] : left[0][j][2 * h + r];
      }
      const Split<Accumulator, 4, Step::kSplit> a(fiber);
      typename Of::Right b[Of::kProduced2];
#pragma unroll
      for (int n = 0; n < Of::kProduced2; ++n) b[n] = factor[j * Of::kProduced2 + n];
      add_row(part, a, b);
    }
#pragma unroll
    for (int n = 0; n < Of::kProduced2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] = first == 0 ? part[n][e] : sums[n][e] + part[n][e];
    }
  }
}

// Calls visit(the values of all lanes, first index, second index) for the thread's results in row
// tile m.
template <class Step, int Phase, class Of = PairOf<Step, Phase>, class Visit>
KRONOP_INLINE void for_each_result(const typename Of::Sums& sums, int m, Visit visit) {
  const int t = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int h = 0; h < (Of::kHalf ? 1 : 2); ++h) {
    const int row = 16 * m + 8 * h;
    if (row + Of::row(g) >= Of::kQ1) continue;
#pragma unroll
    for (int n = 0; n < Of::kProduced2; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (Of::kQ2 % 8 != 0 && 8 * n + t + 4 * r >= Of::kQ2) continue;
        typename Step::Accumulator values[Of::kLanes];
#pragma unroll
        for (int lane = 0; lane < Of::kLanes; ++lane) {
          values[lane] = Of::kHalf ? sums[lane / 2][n][lane % 2 * 2 + r] : sums[lane][n][2 * h + r];
        }
        visit(values, row, 8 * n + 4 * r);
      }
    }
  }
}

template <class Step, int Phase, class Of = PairOf<Step, Phase>>
KRONOP_INLINE void write_blocks(const typename Of::Sums& sums, int m,
                                const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces],
                                typename Step::Accumulator* tile) {
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = Of::kLanes / Of::kPlaces;
  const int own = Of::row(threadIdx.x % 32 / 4) * Of::kStride1 + threadIdx.x % 4 * Of::kStride2;
  const auto write = [&](const Accumulator(&values)[Of::kLanes], int first, int second) {
#pragma unroll
    for (int i = 0; i < Of::kPlaces; ++i) {
      Vector<Accumulator, vector> row;
#pragma unroll
      for (int v = 0; v < vector; ++v) row.data[v] = values[i * vector + v];
      if (live[i])
        store<Accumulator, vector>(
            tile + places[i].shared + own + (first * Of::kStride1 + second * Of::kStride2), row);
    }
  };
  for_each_result<Step, Phase>(sums, m, write);
}

// Applies the epilogue to the same results and stores them to Y.
template <class Step, int Phase, Access kAccess, class Of = PairOf<Step, Phase>>
KRONOP_INLINE void write_blocks(const typename Of::Sums& sums, int m,
                                const Place (&places)[Of::kPlaces], const bool (&live)[Of::kPlaces],
                                const Sink<Step, kAccess>& sink) {
  using Accumulator = typename Step::Accumulator;
  constexpr int vector = Of::kLanes / Of::kPlaces;
  constexpr int at1 = step_out<Step>(Of::kInner), at2 = step_out<Step>(Of::kOuter);
  Place own[Of::kPlaces];
  typename Sink<Step, kAccess>::Spot spots[Of::kPlaces];
#pragma unroll
  for (int i = 0; i < Of::kPlaces; ++i) {
    own[i] = places[i];
    own[i].k += Of::row(threadIdx.x % 32 / 4) * at1 + threadIdx.x % 4 * at2;
    spots[i] = sink.at(own[i]);
  }
  const auto write = [&](const Accumulator(&values)[Of::kLanes], int first, int second) {
#pragma unroll
    for (int i = 0; i < Of::kPlaces; ++i) {
      Accumulator row[vector];
#pragma unroll
      for (int v = 0; v < vector; ++v) row[v] = values[i * vector + v];
      if (live[i])
        sink.template write<vector, Step::kColumns == 1>(row, own[i], spots[i],
                                                         first * at1 + second * at2);
    }
  };
  for_each_result<Step, Phase>(sums, m, write);
}

// A phase's work on a window: a thread's state, how it loads a piece of the blocks, and how it
// multiplies the piece and stores the results.
template <class Step, int Phase, Access kAccess, int kEach = 0>
struct PairWork {
  using Of = PairOf<Step, Phase>;
  using Accumulator = typename Step::Accumulator;
  static constexpr int kFibers = Of::kBlocks, kAtOnce = Of::kLanes;  // of a warp
  static constexpr int kLeftAt = Step::kFactorBytesAt[Of::kInner],
                       kRightAt = Step::kFactorBytesAt[Of::kOuter];
  struct Piece {
    Place places[Of::kPlaces];
    bool live[Of::kPlaces];
    typename Of::template ElementsOf<OnItsWay<Step, kEach>> elements;
  };
  const typename Of::LeftFactor left;
  const typename Of::RightFactor right;
  Accumulator* tile;
  const Source<Step, kAccess> source;
  const Sink<Step, kAccess> sink;

  template <class Parameters>
  KRONOP_INLINE PairWork(unsigned char* shared, const Parameters& parameters,
                         const Window<Step>& window)
      : left(reinterpret_cast<const typename Of::Left*>(shared + kLeftAt) + threadIdx.x % 32),
        right(reinterpret_cast<const typename Of::Right*>(shared + kRightAt) + threadIdx.x % 32),
        tile(reinterpret_cast<Accumulator*>(shared + Step::kTileBytesAt)),
        source(parameters, window), sink(parameters, window, Finish<Step>(parameters)) {}

  KRONOP_INLINE void fetch(Piece& to, int start, int offset) const {
    places_of<Step, Phase, Of::kLanes / Of::kPlaces, Of::kBlocks % Of::kLanes == 0, kEach>(
        to.places, to.live, start, offset, kFibers);
    if constexpr (reads_memory<Step, Phase>) {
      read_blocks<Step, Phase, kAccess>(to.elements, to.places, to.live, source);
    } else {
      read_blocks<Step, Phase>(to.elements, to.places, to.live, tile);
    }
  }

  KRONOP_INLINE void use(const Piece& now) const {
    typename Of::Elements elements;
    convert_all(elements, now.elements);
    // Not unrolled, so that split elements do not stay in registers from one round to the next.
#pragma unroll 1
    for (int m = 0; m < Of::kProduced1; ++m) {
      typename Of::Sums sums;
#pragma unroll
      for (int set = 0; set < Of::kSets; ++set) {
        constexpr int count = Of::kHalf ? 2 : 1;
        Accumulator first[count][Of::kParts2][4];
#pragma unroll
        for (int h = 0; h < count; ++h)
          multiply_left<Step, Phase>(first[h], elements[set * count + h], left, m);
        multiply_right<Step, Phase>(sums[set], first, right);
      }
      if constexpr (writes_memory<Step, Phase>) {
        write_blocks<Step, Phase, kAccess>(sums, m, now.places, now.live, sink);
      } else {
        write_blocks<Step, Phase>(sums, m, now.places, now.live, tile);
      }
    }
  }
};

template <class Step, int Phase, Access kAccess, class Parameters>
KRONOP_INLINE void run_pair(unsigned char* shared, const Parameters& parameters,
                            const Window<Step>& window) {
  using Work = PairWork<Step, Phase, kAccess>;
  const Work work(shared, parameters, window);
  constexpr int at_once = Step::kThreads / 32 * Work::kAtOnce;
  work_on_pieces<Step, Phase, Work::kFibers, at_once>(work, threadIdx.x / 32 * Work::kAtOnce);
}

}  // namespace kron
}  // namespace kronop
