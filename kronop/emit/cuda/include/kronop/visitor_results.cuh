// Applies a visitor tree to sums: operands are read, D and auxiliary results are written.
//
// For a reduction, each thread first combines its own values of a row, or of a column, in shared
// memory. The block combines these to one partial result, and a second launch combines the partial
// results of all blocks. So the result is deterministic.
#pragma once

#include "visitor_places.cuh"

namespace kronop {

inline constexpr int kVisitedBatch = 4;

// The results of one problem of the batch. A Layout tells how many threads hold sums of a row, or
// of a column, of a tile, and which of them this thread is; also this thread's number among the
// tile's kThreads threads, how these synchronise, and where they combine values.
template <class Step, class Parameters, class Layout>
class VisitorResults {
 public:
  using Sum = typename Step::Accumulator;
  using Epilogue = typename Step::Epilogue;
  using Compute = typename Epilogue::Compute;
  using Fold = VisitorPlaces<Step, Layout>;

  KRONOP_INLINE VisitorResults(const Parameters& parameters, long long problem)
      : p_(parameters), epilogue_(parameters.scalars), problem_(problem) {
    for_each_visited([&]<class Element, int kAt>() {
      long long offset = 0;
      for_each_digit(problem, p_.batch, [&](int axis, long long digit) {
        offset += digit * p_.visited_batch[kAt * kVisitedBatch + axis];
      });
      at_[kAt] = static_cast<Element*>(p_.visited[kAt]) + offset;
    });
  }

  // Operands with contiguous rows that differ: where they begin, and how far rows are apart. Before
  // `begin`.
  template <class Visit>
  KRONOP_INLINE void for_each_tensor(const Visit& visit) const {
    for_each_type(typename Epilogue::Operands{}, [&]<class Element, int kAt>() {
      if constexpr (!repeats<kAt>()) {
        if (p_.visited_column[kAt] == 1 && p_.visited_row[kAt] != 0)
          visit(static_cast<const Element*>(at_[kAt]), p_.visited_row[kAt]);
      }
    });
  }

  // The thread's results begin in row m and column n.
  KRONOP_INLINE void begin(long long m, long long n) {
    m_ = m;
    n_ = n;
    for_each_visited([&]<class Element, int kAt>() {
      Element* const at =
          static_cast<Element*>(at_[kAt]) + m * p_.visited_row[kAt] + n * p_.visited_column[kAt];
      at_[kAt] = at;
      const long long column = p_.visited_column[kAt];
      run_[kAt] =
          column == 1 ? run_of<Element>((unsigned long long)at, p_.visited_row[kAt]) : column != 0;
    });
  }

  // Initialises the places of reductions. Every thread of a tile calls this after the last other
  // use of that shared memory, and after `begin`; the tile begins in row m and column n.
  KRONOP_INLINE void open(long long m, long long n) {
    tile_m_ = m;
    tile_n_ = n;
    Layout::wait();
    for_each_reduction([&]<class Join, Axis kAxis, int kIndex>() {
      Compute* const places = Fold::template places<kIndex>();
      for (int i = Layout::thread(); i < Fold::template count<kIndex>(); i += Step::kThreads)
        places[i] = Join::template none<Compute>();
    });
    Layout::wait();
  }

  // The results of kM x kN sums, `m` rows and `n` columns behind the thread's first one; out of
  // bounds ones are skipped. Rows are finished one by one, which takes fewer registers.
  template <int kM, int kN>
  KRONOP_INLINE void store(int m, int n, const Sum (&sums)[kM][kN]) const {
    const int rows = near(p_.m - m_ - m), columns = near(p_.n - n_ - n);
    if (columns <= 0) return;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      if (i >= rows) continue;
      Loaded<kN> loaded;
      load_row(m + i, n, columns, loaded);
      finish_row<false>(m + i, n, columns, sums[i], loaded);
    }
  }

  // Whether `rows` rows of kN results, from row `m` and column `n` behind the thread's first result
  // on, all exist and can be read and written with vectorised accesses.
  template <int kN>
  KRONOP_INLINE bool is_whole(int m, int n, int rows) const {
    bool whole = near(p_.m - m_ - m) >= rows && near(p_.n - n_ - n) >= kN;
    for_each_type(typename Epilogue::Operands{}, [&]<class Element, int kAt>() {
      whole &= repeats<kAt>() ? run_[kAt] == 0 : run_[kAt] >= width<Element, kN>;
    });
    for_each_type(typename Epilogue::Results{}, [&]<class Kept, int kIndex>() {
      constexpr int kAt = Epilogue::kOperands + kIndex;
      if constexpr (!detail::is_reduced<Kept>) whole &= run_[kAt] >= width<Kept, kN>;
    });
    return whole;
  }

  // The results of kM complete rows, kApart from each other. All loads are issued before the first
  // result is computed. NOTE: there is no branch in between: where two branches load a value, the
  // load is waited for where they meet.
  template <int kApart, int kM, int kN>
  KRONOP_INLINE void store_whole_rows(int m, int n, const Sum (&sums)[kM][kN]) const {
    Loaded<kN> loaded[kM];
    for_each_type(typename Epilogue::Operands{}, [&]<class Element, int kAt>() {
      const Element* from = near_at<Element, kAt>(m, n);
#pragma unroll
      for (int i = 0; i < kM; ++i, from += kApart * p_.visited_row[kAt]) {
        auto& run = loaded[i].operands.template at<kAt>();
        if constexpr (repeats<kAt>()) {
          run.data[0] = *from;
        } else {
          load_whole(from, run);
        }
      }
    });
#pragma unroll
    for (int i = 0; i < kM; ++i) finish_row<true>(m + i * kApart, n, kN, sums[i], loaded[i]);
  }

  // Combines the threads' values of each row and column. Every thread of the tile calls this.
  KRONOP_INLINE void close() const {
    Layout::wait();
    for_each_reduction([&]<class Join, Axis kAxis, int kIndex>() {
      constexpr int extent = Fold::template extent<kIndex>(),
                    holders = Fold::template holders<kIndex>();
      const long long first = kAxis == Axis::kRow ? tile_m_ : tile_n_,
                      all = kAxis == Axis::kRow ? p_.m : p_.n;
      for (int i = Layout::thread(); i < extent; i += Step::kThreads) {
        Compute joined = Fold::template place<kIndex>(0, i);
        for (int h = 1; h < holders; ++h)
          joined = Join::join(joined, Fold::template place<kIndex>(h, i));
        if (first + i < all)
          *part<kAxis, kIndex>(
              kAxis == Axis::kRow ? tile_n_ / Step::kTileN : tile_m_ / Step::kTileM, first + i) =
              joined;
      }
    });
  }

  // Combines the partial results of every reduction, for the kThreads / `shares` results of block
  // `block`: `shares` threads, a power of two, for each result.
  KRONOP_INLINE static void join(const Parameters& p, long long block, int shares) {
    long long problem = block;
    const int together = Step::kThreads / shares;
    const long long within = split(problem, ceil_div(p.m > p.n ? p.m : p.n, together));
    VisitorResults(p, problem).join_parts(within * together + threadIdx.x % together, shares);
  }

 private:
  // Every thread of a block calls this.
  KRONOP_INLINE void join_parts(long long place, int shares) const {
    const int together = Step::kThreads / shares, share = threadIdx.x / together;
    for_each_reduction([&]<class Join, Axis kAxis, int kIndex>() {
      constexpr int at = Epilogue::kOperands + kIndex;
      const bool exists = place < (kAxis == Axis::kRow ? p_.m : p_.n);
      Compute joined = Join::template none<Compute>();
      if (exists && share < parts<kAxis>()) {
        joined = *part<kAxis, kIndex>(share, place);
        for (long long i = share + shares; i < parts<kAxis>(); i += shares)
          joined = Join::join(joined, *part<kAxis, kIndex>(i, place));
      }
      if (shares > 1) {
        Compute* const places = reinterpret_cast<Compute*>(shared_memory());
        __syncthreads();
        places[threadIdx.x] = joined;
        __syncthreads();
        for (int s = 1; share == 0 && s < shares && s < parts<kAxis>(); ++s)
          joined = Join::join(joined, places[threadIdx.x + s * together]);
      }
      if (exists && share == 0)
        static_cast<Compute*>(
            at_[at])[place * (kAxis == Axis::kRow ? p_.visited_row[at] : p_.visited_column[at])] =
            joined;
    });
  }

  static constexpr int kVisited = Epilogue::kOperands + Epilogue::kResults;
  template <int kN>
  struct Values {
    Compute operands[Epilogue::kOperands + 1][kN], kept[Epilogue::kResults][kN];
  };
  // What the functor gets as `at`.
  template <int kN>
  struct At {
    Values<kN>& values;
    int j;
    KRONOP_INLINE Compute operand(int index) const { return values.operands[index][j]; }
    KRONOP_INLINE void keep(int index, Compute value) const { values.kept[index][j] = value; }
  };

  // kN neighbouring elements of a row, loaded but unconverted: converting would wait for them.
  template <int kN>
  struct Loaded {
    template <class Element>
    using Run = Vector<Element, kN>;
    template <class... Elements>
    static Each<Run<Elements>...> of(Types<Elements...>);
    decltype(of(typename Epilogue::Operands{})) operands;
  };
  // Only the first `columns` neighbours exist.
  template <int kN>
  KRONOP_INLINE void load_row(int m, int n, int columns, Loaded<kN>& loaded) const {
    for_each_type(typename Epilogue::Operands{}, [&]<class Element, int kAt>() {
      load_run<Element, kAt>(m, n, columns, loaded.operands.template at<kAt>());
    });
  }
  template <bool kWhole, int kN>
  KRONOP_INLINE void finish_row(int m, int n, int columns, const Sum (&sums)[kN],
                                const Loaded<kN>& loaded) const {
    Values<kN> values;
    for_each_type(typename Epilogue::Operands{}, [&]<class Element, int kAt>() {
      const auto& run = loaded.operands.template at<kAt>();
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        bool one = run_[kAt] == 0;
        if constexpr (kWhole) one = repeats<kAt>();
        values.operands[kAt][j] = convert<Compute>(run.data[one ? 0 : j]);
      }
    });
#pragma unroll
    for (int j = 0; j < kN; ++j) epilogue_(convert<Compute>(sums[j]), At<kN>{values, j});
    for_each_type(typename Epilogue::Results{}, [&]<class Kept, int kIndex>() {
      keep<kWhole, kIndex>(static_cast<Kept*>(nullptr), m, n, columns, values.kept[kIndex]);
    });
  }

  // The element type of a result in memory.
  template <class Kept>
  struct StoredAs {
    using Type = Kept;
  };
  template <class Join, Axis kAxis>
  struct StoredAs<Reduced<Join, kAxis>> {
    using Type = Compute;
  };
  template <class Visit>
  KRONOP_INLINE static void for_each_visited(const Visit& visit) {
    for_each_type(typename Epilogue::Operands{}, visit);
    for_each_type(typename Epilogue::Results{}, [&]<class Kept, int kIndex>() {
      visit.template operator()<typename StoredAs<Kept>::Type, Epilogue::kOperands + kIndex>();
    });
  }
  template <class Visit>
  KRONOP_INLINE static void for_each_reduction(const Visit& visit) {
    for_each_type(typename Epilogue::Results{}, [&]<class Kept, int kIndex>() {
      visit_reduced<kIndex>(static_cast<Kept*>(nullptr), visit);
    });
  }
  template <int kIndex, class Kept, class Visit>
  KRONOP_INLINE static void visit_reduced(Kept*, const Visit&) {}
  template <int kIndex, class Join, Axis kAxis, class Visit>
  KRONOP_INLINE static void visit_reduced(Reduced<Join, kAxis>*, const Visit& visit) {
    visit.template operator()<Join, kAxis, kIndex>();
  }

  template <Axis kAxis>
  KRONOP_INLINE long long parts() const {
    return kAxis == Axis::kRow ? ceil_div(p_.n, Step::kTileN) : ceil_div(p_.m, Step::kTileM);
  }
  template <Axis kAxis, int kIndex>
  KRONOP_INLINE Compute* part(long long which, long long place) const {
    auto* const first =
        reinterpret_cast<Compute*>(static_cast<char*>(p_.partial) + p_.folds[kIndex]);
    return first + (problem_ * parts<kAxis>() + which) * (kAxis == Axis::kRow ? p_.m : p_.n) +
           place;
  }

  // How many neighbours of a row are contiguous and aligned in every row.
  template <class Element>
  KRONOP_INLINE static int run_of(unsigned long long from, long long apart) {
    const unsigned long long bytes = (from | (unsigned long long)apart * sizeof(Element)) & 15;
    return (bytes == 0 ? 16 : int(bytes & (0 - bytes))) / int(sizeof(Element));
  }
  // Whether an operand is broadcast along rows, known from the tree.
  template <int kAt>
  KRONOP_INLINE static constexpr bool repeats() {
    return Step::kRepeating >> kAt & 1;
  }
  template <class Element, int kCount>
  static constexpr int width =
      kCount * int(sizeof(Element)) > 16 ? 16 / int(sizeof(Element)) : kCount;

  template <class Element, int kAt>
  KRONOP_INLINE Element* near_at(int m, int n) const {
    return static_cast<Element*>(at_[kAt]) + m * p_.visited_row[kAt] + n * p_.visited_column[kAt];
  }

  // NOTE: out of bounds elements are zero: functors compute them; the results are dropped.
  template <class Element, int kAt, int kN>
  KRONOP_INLINE void load_run(int m, int n, int columns, Vector<Element, kN>& values) const {
    constexpr int kWidth = width<Element, kN>;
    const Element* const from = near_at<Element, kAt>(m, n);
    if (run_[kAt] == 0) {
      values.data[0] = *from;
    } else if (columns >= kN && run_[kAt] >= kWidth) {
      load_whole(from, values);
    } else {
#pragma unroll
      for (int j = 0; j < kN; ++j)
        values.data[j] = j < columns ? from[j * p_.visited_column[kAt]] : Element{};
    }
  }

  template <class Element, int kN>
  KRONOP_INLINE static void load_whole(const Element* from, Vector<Element, kN>& values) {
    constexpr int kWidth = width<Element, kN>;
#pragma unroll
    for (int j = 0; j < kN; j += kWidth) {
      const auto run = load<Element, kWidth>(from + j);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) values.data[j + v] = run.data[v];
    }
  }

  template <bool kWhole, int kIndex, class Element, int kN>
  KRONOP_INLINE void keep(Element*, int m, int n, int columns, const Compute (&values)[kN]) const {
    constexpr int kAt = Epilogue::kOperands + kIndex, kWidth = width<Element, kN>;
    Element* const to = near_at<Element, kAt>(m, n);
    const bool together = kWhole || (columns >= kN && run_[kAt] >= kWidth);
#pragma unroll
    for (int j = 0; j < kN; j += kWidth) {
      Vector<Element, kWidth> run;
#pragma unroll
      for (int v = 0; v < kWidth; ++v) run.data[v] = convert<Element>(values[j + v]);
      if (together) {
        store_whole<Element, kWidth>(to + j, run);
      } else {
#pragma unroll
        for (int v = 0; v < kWidth; ++v) {
          if (j + v < columns) to[(j + v) * p_.visited_column[kAt]] = run.data[v];
        }
      }
    }
  }
  template <bool kWhole, int kIndex, class Join, Axis kAxis, int kN>
  KRONOP_INLINE void keep(Reduced<Join, kAxis>*, int m, int n, int columns,
                          const Compute (&values)[kN]) const {
    const int row = int(m_ - tile_m_) + m, column = int(n_ - tile_n_) + n;
    if constexpr (kAxis == Axis::kRow) {
      Compute joined = values[0];
#pragma unroll
      for (int j = 1; j < kN; ++j) {
        if (kWhole || j < columns) joined = Join::join(joined, values[j]);
      }
      Compute& place = Fold::template place<kIndex>(Layout::holder_of_row(), row);
      place = Join::join(place, joined);
    } else {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        Compute& place = Fold::template place<kIndex>(Layout::holder_of_column(), column + j);
        place = Join::join(place, values[j]);
      }
    }
  }

  KRONOP_INLINE static int near(long long value) {
    return value < (1 << 20) ? int(value) : 1 << 20;
  }

  const Parameters& p_;
  const Epilogue epilogue_;
  const long long problem_;
  long long m_ = 0, n_ = 0, tile_m_ = 0, tile_n_ = 0;
  void* at_[kVisited];
  int run_[kVisited];  // neighbours of a row that are moved at once; 0 for a broadcast
};

}  // namespace kronop
