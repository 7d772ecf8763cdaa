// Y[m, n] = epilogue(kernel(s), Z[m, n]), where every s is a sum (or a maximum) over k of a term of
// x1[m, k] and x2[n, k].
//
// A block has a tile of Y, a thread kThreadM x kThreadN elements of it: rows and columns in vectors
// of 16 bytes. Slabs of kTileK columns of both operands are double-buffered in shared memory, as
// [k][row]. Sums stay in registers.
//
// In float32, sums of more than kChain features are split into chains of so many, whose totals are
// in shared memory. Errors of one chain of 1024 positive terms reach 2e-6 of it, of these 6e-7.
//
// If x1 is x2 and the kernel is symmetric, kSymmetric designs compute the tiles on one side of the
// diagonal, and store those off it twice.
#pragma once

#include "distance_feed.cuh"
#include "distance_sums.cuh"

namespace kronop {
namespace distance {

// How kTile rows or columns of a tile are distributed over threads, kOwn for each.
template <class Scalar, int kTile, int kOwn>
struct Share {
  static constexpr int kRun = 16 / sizeof(Scalar), kThreads = kTile / kOwn;
  static_assert(kOwn % kRun == 0 && kTile % kOwn == 0);
  // The offset of item i of thread 0.
  KRONOP_INLINE static constexpr int place(int i) {
    return i / kRun * (kThreads * kRun) + i % kRun;
  }
};

// The tile of a block. Tiles are ordered in bands of kBand rows of tiles: blocks that run at the
// same time share rows of both operands in the level-2 cache.
template <class Step>
struct TilePlace {
  static constexpr int kBand = 16;
  long long batch, row, column;

  // Tile `tile` of all problems' tiles.
  template <class Parameters>
  KRONOP_INLINE TilePlace(const Parameters& parameters, long long tile) {
    const long long all = ceil_div(parameters.m, Step::kTileM);
    // For a symmetric matrix: the rows of a triangle of tiles, paired to rows of a rectangle, the
    // first with the last.
    const long long rows = Step::kSymmetric ? (all + 1) / 2 : all,
                    columns = Step::kSymmetric ? all | 1 : ceil_div(parameters.n, Step::kTileN);
    long long within = split(tile, rows * columns);
    batch = tile;
    column = split(within, kBand * columns);
    const long long above = within * kBand, left = rows - above;
    row = split(column, left < kBand ? left : kBand) + above;
    if constexpr (Step::kSymmetric) {
      static_assert(Step::kTileM == Step::kTileN);
      const long long length = all - row;
      if (column >= length) {
        row = all % 2 == 0 ? length - 1 : length;
        column -= length;
      }
      column += row;
    }
    row *= Step::kTileM;
    column *= Step::kTileN;
  }
};

// Reciprocals of the vectors' elements for a slab, one for each thread.
template <class Step, class Parameters>
class Weights {
  using Scalar = typename Step::Accumulator;
  static constexpr int kItems = Step::kVectors * Step::kTileK;
  static_assert(kItems <= Step::kThreads);
  const Scalar* from_[Parameters::kOfVectors];
  long long step_[Parameters::kOfVectors];
  Scalar held_;

 public:
  KRONOP_INLINE Weights(const Parameters& parameters,
                        const long long (&offsets)[Parameters::kOfVectors]) {
#pragma unroll
    for (int v = 0; v < Step::kVectors; ++v) {
      from_[v] = static_cast<const Scalar*>(parameters.vector[v]) + offsets[v];
      step_[v] = parameters.vector_column[v];
    }
  }
  KRONOP_INLINE void fetch(long long first, int left) {
    const int column = threadIdx.x % Step::kTileK;
    held_ = 1;
#pragma unroll
    for (int v = 0; v < Step::kVectors; ++v) {
      if (threadIdx.x / Step::kTileK == v && column < left)
        held_ = from_[v][(first + column) * step_[v]];
    }
  }
  KRONOP_INLINE void store_to(Scalar* slab) const {
    if constexpr (kItems > 0) {
      if (threadIdx.x < kItems) slab[threadIdx.x] = 1 / held_;
    }
  }
};

// The computation of a block.
template <class Step, class Parameters>
class Tile {
  using Scalar = typename Step::Accumulator;
  using Output = typename Step::Output;
  using All = Sums<Step>;
  using Rows = Share<Scalar, Step::kTileM, Step::kThreadM>;
  using Columns = Share<Scalar, Step::kTileN, Step::kThreadN>;
  static constexpr int kRun = Rows::kRun;
  // Lanes of a warp: those of the same 8 columns have the same rows.
  static constexpr int kLanesN = 8, kLanesM = 4, kWarpsN = Columns::kThreads / kLanesN;
  static_assert(Rows::kThreads * Columns::kThreads == Step::kThreads &&
                Columns::kThreads % kLanesN == 0 && Rows::kThreads % kLanesM == 0);
  // Powers of plain elements are cheaper; division by vectors would change what is plain.
  static constexpr bool kGeneral = All::has(TermKind::kGeneral),
                        kChecks = kGeneral && Step::kVectors == 0 && sizeof(Scalar) == 4;
  // Unchanged elements are copied to shared memory without registers.
  static constexpr bool kDirectly = sizeof(typename Step::Input) == sizeof(Scalar) && !kChecks;
  using FeedOf1 = Feed<Step, Step::kTileM, kDirectly>;
  using FeedOf2 = Feed<Step, Step::kTileN, kDirectly>;
  // Shared memory: two slabs of x1, x2 and vectors, marks of slabs that are not plain, totals.
  static constexpr int kOf1 = FeedOf1::kPitch * Step::kTileK, kOf2 = FeedOf2::kPitch * Step::kTileK;
  static constexpr int kSlab = kOf1 + kOf2 + Step::kVectors * Step::kTileK;

  static constexpr int kMarks = 2, kChain = 256, kSlabsOfChain = kChain / Step::kTileK;
  static constexpr bool kHasChains = sizeof(Scalar) == 4 && All::rounded() > 0;
  static_assert(kChain % Step::kTileK == 0);

  const Parameters& parameters_;
  const TilePlace<Step> place_;
  long long x1_, x2_, y_, z_;  // the start of the problem of the batch
  long long vectors_[Parameters::kOfVectors];
  Scalar values_[Parameters::kOfValues];
  int row_, column_;  // the thread's first ones in the tile

 public:
  KRONOP_INLINE Tile(const Parameters& parameters, long long tile)
      : parameters_(parameters), place_(parameters, tile) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row_ = (warp / kWarpsN * kLanesM + lane / kLanesN) * kRun;
    column_ = (warp % kWarpsN * kLanesN + lane % kLanesN) * kRun;
    find_problem();
  }

  KRONOP_INLINE void run() {
    All sums(values_);
    add_up<0>(sums);
    if constexpr (All::kRounds > 1) {
      sums.take_largest();
      add_up<1>(sums);
    }
    sums.finish(values_);
    if constexpr (Lengths<Step>::kAreAll) {
      const Parameters& p = parameters_;
      const auto element = [&](const void* from, long long at, long long point, long long points,
                               long long row_step) {
        return point < points ? convert<Scalar>(static_cast<const typename Step::Input*>(
                                    from)[at + point * row_step])
                              : Scalar(0);
      };
      const auto first = [&](int i, long long k) {
        return element(p.x1, x1_ + k * p.x1_column, place_.row + row_ + Rows::place(i), p.m,
                       p.x1_row);
      };
      const auto second = [&](int j, long long k) {
        return element(p.x2, x2_ + k * p.x2_column, place_.column + column_ + Columns::place(j),
                       p.n, p.x2_row);
      };
      sums.mend(values_, p.k, first, second);
    }
    write<false>(sums);
    if constexpr (Step::kSymmetric) {
      if (place_.row != place_.column) write<true>(sums);
    }
  }

 private:
  KRONOP_INLINE void find_problem() {
    const Parameters& p = parameters_;
    x1_ = x2_ = y_ = z_ = 0;
    long long of_value[Parameters::kOfValues] = {};
#pragma unroll
    for (int v = 0; v < Step::kVectors; ++v) vectors_[v] = 0;
    for_each_digit(place_.batch, p.batch, [&](int axis, long long digit) {
      x1_ += digit * p.x1_batch[axis];
      x2_ += digit * p.x2_batch[axis];
      y_ += digit * p.y_batch[axis];
      z_ += digit * p.z_batch[axis];
#pragma unroll
      for (int v = 0; v < Step::kValues; ++v)
        of_value[v] += digit * p.value_batch[kBatchDims * v + axis];
#pragma unroll
      for (int v = 0; v < Step::kVectors; ++v)
        vectors_[v] += digit * p.vector_batch[kBatchDims * v + axis];
    });
#pragma unroll
    for (int v = 0; v < Step::kValues; ++v) {
      values_[v] =
          p.value[v] ? static_cast<const Scalar*>(p.value[v])[of_value[v]] : Scalar(p.number[v]);
    }
    bound_powers<Step, int(TermKind::kRelative)>(values_);
  }

  // Sums slab by slab: one is computed while the next one is copied.
  template <int kRound>
  KRONOP_INLINE void add_up(All& sums) {
    using Input = typename Step::Input;
    const Parameters& p = parameters_;
    const int whole = int(p.k / Step::kTileK), rest = int(p.k % Step::kTileK),
              slabs = whole + (rest > 0);
    if (slabs == 0) return;
    FeedOf1 feed1(static_cast<const Input*>(p.x1) + x1_, place_.row, p.m, p.x1_row, p.x1_column);
    FeedOf2 feed2(static_cast<const Input*>(p.x2) + x2_, place_.column, p.n, p.x2_row, p.x2_column);
    Weights<Step, Parameters> weights(p, vectors_);
    const auto fetch = [&](int slab) {
      Scalar* const to = slab_of(slab);
      const int left = slab < whole ? Step::kTileK : rest;
      feed1.fetch(to, left);
      feed2.fetch(to + kOf1, left);
      weights.fetch((long long)slab * Step::kTileK, left);
    };
    const auto finish = [&](int slab) {
      Scalar* const to = slab_of(slab);
      weights.store_to(to + kOf1 + kOf2);
      if constexpr (kDirectly) {
        wait_for_copies();
      } else {
        const auto is_plain = [&](Scalar x) { return !kChecks || sums.is_plain(x); };
        const bool plain = feed1.store_to(to, is_plain);
        if (!(feed2.store_to(to + kOf1, is_plain) && plain)) mark_of(slab) = slab;
      }
    };
    fetch(0);
    if constexpr (kChecks) {
      if (threadIdx.x < 2) mark_of(threadIdx.x) = -1;
      __syncthreads();
    }
    finish(0);
    __syncthreads();
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      const bool more = slab + 1 < slabs;
      if (more) fetch(slab + 1);
      if constexpr (kChecks) {
        if (mark_of(slab) == slab) {
          add_slab<kRound, false>(slab_of(slab), sums);
        } else {
          add_slab<kRound, true>(slab_of(slab), sums);
        }
      } else {
        add_slab<kRound, false>(slab_of(slab), sums);
      }
      if (more) finish(slab + 1);
      __syncthreads();
      if constexpr (kHasChains) {
        if (more && (slab + 1) % kSlabsOfChain == 0)
          sums.template end_chain<kRound>(totals(), slab < kSlabsOfChain);
      }
    }
    if constexpr (kHasChains) {
      if (slabs > kSlabsOfChain) sums.template add_totals<kRound>(totals());
    }
  }

  KRONOP_INLINE static Scalar* slab_of(int slab) {
    return reinterpret_cast<Scalar*>(shared_memory()) + (slab & 1) * kSlab;
  }
  // The number of the latest slab of a buffer that is not plain.
  KRONOP_INLINE static int& mark_of(int slab) { return marks()[slab & 1]; }
  KRONOP_INLINE static int* marks() { return reinterpret_cast<int*>(slab_of(0) + 2 * kSlab); }
  KRONOP_INLINE static Scalar* totals() { return reinterpret_cast<Scalar*>(marks() + kMarks); }

  template <int kRound, bool kPlain>
  KRONOP_INLINE void add_slab(const Scalar* slab, All& sums) const {
    const Scalar *from1 = slab + row_, *from2 = slab + kOf1 + column_,
                 *weights = slab + kOf1 + kOf2;
    // More would exceed the instruction cache.
    constexpr int unroll = kGeneral || kRound > 0 ? 1 : 4;
#pragma unroll(unroll)
    for (int k = 0; k < Step::kTileK; ++k) {
      Scalar x1[Step::kThreadM], x2[Step::kThreadN];
      load_share<Rows>(from1 + k * FeedOf1::kPitch, x1);
      load_share<Columns>(from2 + k * FeedOf2::kPitch, x2);
      sums.template add<kRound, kPlain>(x1, x2, weights + k);
    }
  }

  template <class Of, int kCount>
  KRONOP_INLINE static void load_share(const Scalar* from, Scalar (&to)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += kRun) {
      const auto run = load<Scalar, kRun>(from + Of::place(i));
#pragma unroll
      for (int v = 0; v < kRun; ++v) to[i + v] = run.data[v];
    }
  }

  // Whether rows of Y, or of Z, allow vectorised accesses.
  KRONOP_INLINE static bool has_runs(const Output* from, long long row_step,
                                     long long column_step) {
    return (unsigned long long)from % (kRun * sizeof(Output)) == 0 && column_step == 1 &&
           row_step % kRun == 0;
  }

  // Stores the tile or, if kMirrored, its transpose on the other side of the diagonal.
  template <bool kMirrored>
  KRONOP_INLINE void write(const All& sums) const {
    const Parameters& p = parameters_;
    Output* const y = static_cast<Output*>(p.y) + y_;
    const Output* const z = p.z ? static_cast<const Output*>(p.z) + z_ : nullptr;
    const bool whole = place_.row + Step::kTileM <= p.m && place_.column + Step::kTileN <= p.n;
    if (whole && has_runs(y, p.y_row, p.y_column) && (!z || has_runs(z, p.z_row, p.z_column))) {
      write_as<kMirrored, true>(sums, y, z);
    } else {
      write_as<kMirrored, false>(sums, y, z);
    }
  }

  template <bool kMirrored, bool kRuns>
  KRONOP_INLINE void write_as(const All& sums, Output* y, const Output* z) const {
    using Outer = Either<kMirrored, Columns, Rows>;
    using Inner = Either<kMirrored, Rows, Columns>;
    constexpr int outer = kMirrored ? Step::kThreadN : Step::kThreadM,
                  inner = kMirrored ? Step::kThreadM : Step::kThreadN;
    const Parameters& p = parameters_;
    const Finish<Step> finish(p);
    const long long m = place_.row + row_, n = place_.column + column_, row0 = kMirrored ? n : m,
                    column0 = kMirrored ? m : n;
    const long long rows_left = p.m - row0, columns_left = p.n - column0,
                    on_diagonal = row0 + p.diagonal - column0;
    const long long y_column = kRuns ? 1 : p.y_column, z_column = kRuns ? 1 : p.z_column;
    y += row0 * p.y_row + column0 * y_column;
    z += row0 * p.z_row + column0 * z_column;
#pragma unroll
    for (int i = 0; i < outer; ++i) {
      Output* const y_row = y + Outer::place(i) * p.y_row;
      const Output* const z_row = z + Outer::place(i) * p.z_row;
#pragma unroll
      for (int j = 0; j < inner; j += kRun) {
        Vector<Output, kRun> source, result;
        if (kRuns && p.z) source = load<Output, kRun>(z_row + Inner::place(j));
#pragma unroll
        for (int v = 0; v < kRun; ++v) {
          const int column = Inner::place(j + v);
          Scalar value = kMirrored ? sums.of[j + v][i] : sums.of[i][j + v];
          if constexpr (Step::kRegularized) {
            if (on_diagonal + Outer::place(i) == column) value += values_[Step::kValues - 1];
          }
          const bool there = kRuns || (Outer::place(i) < rows_left && column < columns_left);
          if (!kRuns && there && p.z) source.data[v] = z_row[column * z_column];
          result.data[v] = p.z ? finish(value, source.data[v]) : finish(value);
          if (!kRuns && there) y_row[column * y_column] = result.data[v];
        }
        if (kRuns) store_whole<Output, kRun>(y_row + Inner::place(j), result);
      }
    }
  }
};

}  // namespace distance

template <class Step, class Parameters>
KRONOP_INLINE void distance_tile(const Parameters& parameters) {
  distance::Tile<Step, Parameters>(parameters, blockIdx.x).run();
}

}  // namespace kronop
