// A phase whose operands, and the tile between phases, have 16 bits; sums are in float32.
//
// A warp has 16 fibers of a digit at a time. The tile is loaded and stored in rows of 8 contiguous
// elements: of the digit itself, or of 8 neighbouring fibers, which the load transposes. Each phase
// rounds its sums to the operands' type. Two rows before the tile replace rows that do not exist:
// one of zeros to read, and a dummy to write.
#pragma once

#include "kronop/half_mma.cuh"
#include "kron_ends.cuh"

namespace kronop {
namespace kron {

template <class Step, int Phase>
struct HalfOf {
  using Element = typename Step::Input;
  static constexpr int kDigit = Step::kPhaseDigit[Phase];
  static constexpr int kContracted = Step::kContracted[kDigit], kProduced = Step::kProduced[kDigit];
  static constexpr int kStride = Step::kStride[kDigit];
  static constexpr bool kUnit = kStride == 1;
  static constexpr bool kReads = reads_memory<Step, Phase>, kWrites = writes_memory<Step, Phase>;
  static constexpr int kParts = (kContracted + 15) / 16;            // of the contracted index
  static constexpr int kFiberTiles = Step::kPhaseLanes[Phase] / 2;  // tiles of 16 fibers of a warp
  // A contiguous digit's fibers are counted one by one, those of other digits in blocks of 8
  // neighbours.
  static constexpr int kOfFiberTile = kUnit ? 16 : 2, kOfWarp = kOfFiberTile * kFiberTiles;
  static constexpr int kFibers = fibers_of<Step>(Phase);
  static constexpr bool kWgmma = Step::kPhaseWgmma[Phase];
  static constexpr bool kAll = kFibers % (kWgmma ? 4 * kOfWarp : kOfWarp) == 0;
  // Elements of one access of a thread to memory.
  static constexpr int kRead = kReads ? Step::kReadVector : 2,
                       kWrite = kWrites ? Step::kWriteVector : 2;
  // Tiles of 16 produced indices: those whose sums a thread has at once, and all of them.
  static constexpr int kAtOnce = kWgmma ? (kProduced > 32 ? 4 : 2) : kWrite == 8 ? 2 : 1;
  static constexpr int kProducedParts = (kProduced + 16 * kAtOnce - 1) / (16 * kAtOnce) * kAtOnce;
  static constexpr int kColumns = 16 * kProducedParts;
  using Fibers = unsigned[kParts][kFiberTiles][4];
  using Sums = float[kFiberTiles][2 * kAtOnce][4];
  // A thread's fragment of two right operands, each 16 contracted by 8 produced indices.
  using Factor = Vector<unsigned, 4>;

  // Index along the digit of element j of thread t of a quad. Vectors of `width` elements are
  // interleaved among the threads.
  KRONOP_INLINE static constexpr int along(int width, int t, int j) {
    return j / width * 4 * width + t * width + j % width;
  }

  struct Fragments {
    static constexpr int kDigit = HalfOf::kDigit, kCount = kProducedParts * kParts, kElements = 8;
    static constexpr bool kWhole = kContracted == 16 * kParts && kProduced == kColumns;
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int i) {
      return along(kRead, thread % 4, 4 * (part % kParts) + i % 4);
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int i) {
      const unsigned g = thread / 4;
      return along(kWrite, g / 2, 2 * (2 * (part / kParts) + i / 4) + g % 2);
    }
    KRONOP_INLINE static unsigned place(unsigned e) { return e; }
    template <class Accumulator>
    KRONOP_INLINE static void put(Accumulator* to, unsigned e, const Accumulator (&items)[8]) {
      Factor words;
#pragma unroll
      for (int i = 0; i < 4; ++i) words.data[i] = pack<Element>(items[2 * i], items[2 * i + 1]);
      reinterpret_cast<Factor*>(to)[e] = words;
    }
  };
  // The factor for wgmma: a fragment is 8 contracted indices of one column.
  struct WarpGroupFragments : Fragments {
    static constexpr int kCount = kParts * kProducedParts;
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int i) {
      return along(kRead, i / 2, (part * 32 + thread) / kColumns * 2 + i % 2);
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int) {
      const unsigned column = (part * 32 + thread) % kColumns;
      return along(kWrite, column % 8 / 2, column / 8 * 2 + column % 2);
    }
  };
};

// The address of the row that a thread gives to ldmatrix, for each tile of fibers: row lane % 8 of
// matrix lane / 8.
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void rows_of(const typename Of::Element* (&rows)[Of::kFiberTiles],
                           bool (&live)[Of::kFiberTiles], int start,
                           const typename Of::Element* tile) {
  const int lane = threadIdx.x % 32, upper = lane / 16 * 8;
  Place places[Of::kFiberTiles];
  const int own = Of::kUnit ? lane % 16 : lane / 8 % 2;
  places_of<Step, Phase, Of::kOfFiberTile, Of::kAll>(places, live, start + own, 0, Of::kFibers);
#pragma unroll
  for (int u = 0; u < Of::kFiberTiles; ++u)
    rows[u] = tile + places[u].shared + (Of::kUnit ? upper : (upper + lane % 8) * Of::kStride);
}

// Loads a thread's fibers from the tile.
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void read_half_tile(typename Of::Fibers& a,
                                  const typename Of::Element* const (&rows)[Of::kFiberTiles],
                                  const bool (&live)[Of::kFiberTiles],
                                  const typename Of::Element* zeros) {
  const int lane = threadIdx.x % 32, row = lane / 16 * 8 + (Of::kUnit ? 0 : lane % 8), t = lane % 4;
#pragma unroll
  for (int s = 0; s < Of::kParts; ++s) {
    const bool there = 16 * s + 16 <= Of::kContracted || 16 * s + row < Of::kContracted;
#pragma unroll
    for (int u = 0; u < Of::kFiberTiles; ++u) {
      load_matrices<!Of::kUnit>(a[s][u], there && live[u] ? rows[u] + 16 * s * Of::kStride : zeros);
    }
  }
  // The last row of the digit may end within its 8 elements; the others are cleared.
  constexpr int rest = Of::kUnit ? Of::kContracted % 8 : 0;
  if constexpr (rest != 0) {
    const unsigned mask = 2 * t + 1 < rest ? ~0u : 2 * t < rest ? 0xffffu : 0;
#pragma unroll
    for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
      for (int h = 0; h < 2; ++h) a[Of::kParts - 1][u][h + Of::kContracted / 8 % 2 * 2] &= mask;
    }
  }
}

// Stores the sums of produced parts n0 ... to the tile.
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void write_half_tile(const typename Of::Sums& sums, int n0,
                                   const typename Of::Element* const (&rows)[Of::kFiberTiles],
                                   const bool (&live)[Of::kFiberTiles],
                                   typename Of::Element* unread) {
  using Element = typename Of::Element;
  const int lane = threadIdx.x % 32, row = lane / 16 * 8 + (Of::kUnit ? 0 : lane % 8);
#pragma unroll
  for (int n = 0; n < Of::kAtOnce; ++n) {
    const int q = 16 * (n0 + n);
    if (q >= Of::kProduced) continue;
    const bool there = Of::kProduced % 16 == 0 || q + row < Of::kProduced;
#pragma unroll
    for (int u = 0; u < Of::kFiberTiles; ++u) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] =
            pack<Element>(sums[u][2 * n + i / 2][i % 2 * 2], sums[u][2 * n + i / 2][i % 2 * 2 + 1]);
      store_matrices<!Of::kUnit>(
          there && live[u] ? const_cast<Element*>(rows[u]) + q * Of::kStride : unread, words);
    }
  }
}

// The places in global memory of a thread's fibers along a contiguous digit: fibers g and g + 8 of
// each tile of fibers.
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void places_in_memory(Place (&places)[2 * Of::kFiberTiles],
                                    bool (&live)[2 * Of::kFiberTiles], int start) {
  places_of<Step, Phase, 8, Of::kAll>(places, live, start + threadIdx.x % 32 / 4, 0, Of::kFibers);
}

// Loads a thread's fibers from X. All loads are issued before the first one is needed.
template <class Step, int Phase, Access kAccess, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void read_half_memory(typename Of::Fibers& a, int start,
                                    const Source<Step, kAccess>& source,
                                    const Window<Step>& window) {
  constexpr int width = Of::kRead, vector = Source<Step, kAccess>::kVector;
  Place places[2 * Of::kFiberTiles];
  bool live[2 * Of::kFiberTiles];
  places_in_memory<Step, Phase>(places, live, start);
#pragma unroll
  for (int i = 0; i < 2 * Of::kFiberTiles; ++i) {
    const int first = threadIdx.x % 4 * width;
    const bool there = live[i] && exists(places[i], 0, window);
    const auto* from = source.at(places[i]) + first * source.strides.digit;
#pragma unroll
    for (int j = 0; j < 4 * Of::kParts; j += width) {
      const int p = Of::along(width, 0, j);
      const bool some = there && (Of::kContracted % 16 == 0 || first + p < Of::kContracted);
      unsigned words[width / 2] = {};
      if constexpr (vector > 1) {
#pragma unroll
        for (int v = 0; v < width; v += vector) {
          Vector<unsigned, vector / 2> part{};
          if (some)
            part = load<unsigned, vector / 2>(
                reinterpret_cast<const unsigned*>(from + (p + v) * source.strides.digit));
#pragma unroll
          for (int w = 0; w < vector / 2; ++w) words[v / 2 + w] = part.data[w];
        }
      } else {
#pragma unroll
        for (int v = 0; v < width; ++v) {
          if (some && first + p + v < Of::kContracted)
            words[v / 2] |= unsigned(from[(p + v) * source.strides.digit].bits) << 16 * (v % 2);
        }
      }
#pragma unroll
      for (int w = 0; w < width / 2; ++w)
        a[j / 4 + (j % 4 + 2 * w) / 4][i / 2][i % 2 + (j + 2 * w) % 4] = words[w];
    }
  }
}

// Stores the sums of produced parts n0 ... to Y. With a source, the epilogue is applied here;
// without one it was applied before (finish_sums).
template <class Step, int Phase, Access kAccess, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void write_half_memory(const typename Of::Sums& sums, int n0, int start,
                                     const Sink<Step, kAccess>& sink) {
  using Output = typename Step::Output;
  constexpr int width = Of::kWrite, vector = Sink<Step, kAccess>::kVector;
  Place places[2 * Of::kFiberTiles];
  bool live[2 * Of::kFiberTiles];
  places_in_memory<Step, Phase>(places, live, start);
  const int first = threadIdx.x % 4 * width;
#pragma unroll
  for (int i = 0; i < 2 * Of::kFiberTiles; ++i) {
    if (!live[i] || !exists(places[i], 0, sink.window)) continue;
    Place place = places[i];
    place.k += first;
    auto* to = sink.y + (row_offset(sink.window, 1, place) + place.k * sink.y_strides.digit);
#pragma unroll
    for (int j = 0; j < 4 * Of::kAtOnce; j += vector) {
      // The index relative to the thread's first element, known at compile time.
      const int q = Of::along(width, 0, 4 * n0 + j);
      if (q >= Of::kProduced || (Of::kProduced % 16 != 0 && first + q >= Of::kProduced)) continue;
      float values[vector];
#pragma unroll
      for (int v = 0; v < vector; ++v)
        values[v] = sums[i / 2][(j + v) / 2][i % 2 * 2 + (j + v) % 2];
      if (Sink<Step, kAccess>::kSource && sink.z) {
        sink.template write<vector, true>(values, place, sink.at(place), q);
      } else if constexpr (vector > 1) {
        Vector<unsigned, vector / 2> words;
#pragma unroll
        for (int w = 0; w < vector / 2; ++w)
          words.data[w] = pack<Output>(values[2 * w], values[2 * w + 1]);
        store<unsigned, vector / 2>(reinterpret_cast<unsigned*>(to + q * sink.y_strides.digit),
                                    words);
      } else {
        to[q * sink.y_strides.digit] = convert<Output>(values[0]);
      }
    }
  }
}

// Computes the sums of produced parts n0 ...
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void multiply_half(typename Of::Sums& sums, const typename Of::Fibers& a, int n0,
                                 const typename Of::Factor* factor) {
#pragma unroll
  for (int n = 0; n < Of::kAtOnce; ++n) {
#pragma unroll
    for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[u][2 * n + e / 4][e % 4] = 0;
    }
#pragma unroll
    for (int s = 0; s < Of::kParts; ++s) {
      const auto b = factor[((n0 + n) * Of::kParts + s) * 32];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int u = 0; u < Of::kFiberTiles; ++u) {
          if (Of::kWrite == 2 && 16 * (n0 + n) + 8 * i >= Of::kProduced) continue;
          warp_multiply_add<typename Of::Element>(sums[u][2 * n + i], a[s][u], b.data[2 * i],
                                                  b.data[2 * i + 1]);
        }
      }
    }
  }
}

// Computes the same sums by a warp group.
template <class Step, int Phase, class Of = HalfOf<Step, Phase>>
KRONOP_INLINE void multiply_half_wgmma(typename Of::Sums& sums, const typename Of::Fibers& a,
                                       int n0, const Matrix& factor) {
  begin_warp_group_products();
#pragma unroll
  for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
    for (int s = 0; s < Of::kParts; ++s) {
      warp_group_multiply_add<typename Of::Element>(sums[u], a[s][u], factor,
                                                    16 * (2 * s * Of::kColumns + 16 * n0), s > 0);
    }
  }
  commit_warp_group_products();
  wait_for_warp_group_products();
  // renewed() values are opaque to the compiler: otherwise it might read the sums before the wait.
#pragma unroll
  for (int u = 0; u < Of::kFiberTiles; ++u) {
#pragma unroll
    for (int n = 0; n < 2 * Of::kAtOnce; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[u][n][e] = renewed(sums[u][n][e]);
    }
  }
}

// Applies the epilogue to the sums, if it has no source.
template <class Step, int N>
KRONOP_INLINE void finish_sums(float (&sums)[N][4], const Finish<Step>& finish) {
  using Compute = typename Finish<Step>::Compute;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[n][e] = convert<float>(
          finish.functor(convert<Compute>(sums[n][e]), Compute{}, Finish<Step>::no_bias()));
  }
}

template <class Step, int Phase, Access kAccess, class Parameters>
KRONOP_INLINE void run_half(unsigned char* shared, const Parameters& parameters,
                            const Window<Step>& window) {
  using Of = HalfOf<Step, Phase>;
  using Element = typename Of::Element;
  constexpr bool last = Phase + 1 == Step::kPhases;
  constexpr int factor_at = Step::kFactorBytesAt[Of::kDigit];
  const Matrix matrix(shared + factor_at, Of::kColumns);
  Element* spare = reinterpret_cast<Element*>(shared + Step::kTileBytesAt) - 16;
  const Finish<Step> finish(parameters);
  const Source<Step, kAccess> source(parameters, window);
  const Sink<Step, kAccess> sink(parameters, window, finish);
  constexpr int at_once = Step::kThreads / 32 * Of::kOfWarp, together = 4 * Of::kOfWarp;
#pragma unroll 1
  // All warps of a warp group multiply together, so they have the same number of rounds.
  for (int start = threadIdx.x / 32 * Of::kOfWarp;
       (Of::kWgmma ? start / together * together : start) < Of::kFibers; start += at_once) {
    const Element* rows[Of::kFiberTiles];
    bool live[Of::kFiberTiles];
    if constexpr (!Of::kReads || !Of::kWrites)
      rows_of<Step, Phase>(rows, live, start, tile_of<Step>(shared, window));
    typename Of::Fibers a;
    if constexpr (Of::kReads) {
      read_half_memory<Step, Phase, kAccess>(a, start, source, window);
    } else {
      read_half_tile<Step, Phase>(a, rows, live, spare);
    }
#pragma unroll
    for (int n0 = 0; n0 < Of::kProducedParts; n0 += Of::kAtOnce) {
      typename Of::Sums sums;
      if constexpr (Of::kWgmma) {
        multiply_half_wgmma<Step, Phase>(sums, a, n0, matrix);
      } else {
        multiply_half<Step, Phase>(
            sums, a, n0,
            reinterpret_cast<const typename Of::Factor*>(shared + factor_at) + threadIdx.x % 32);
      }
      if (last && !parameters.z) {
#pragma unroll
        for (int u = 0; u < Of::kFiberTiles; ++u) finish_sums<Step>(sums[u], finish);
      }
      if constexpr (Of::kWrites) {
        write_half_memory<Step, Phase, kAccess>(sums, n0, start, sink);
      } else {
        write_half_tile<Step, Phase>(sums, n0, rows, live, spare + 8);
      }
    }
  }
}

// Writes the row of zeros, which replaces rows that do not exist.
template <class Step>
KRONOP_INLINE void put_zeros(unsigned char* shared) {
  if (threadIdx.x == 0)
    store<unsigned, 4>(reinterpret_cast<unsigned*>(shared + Step::kTileBytesAt) - 8, {});
}

}  // namespace kron
}  // namespace kronop
