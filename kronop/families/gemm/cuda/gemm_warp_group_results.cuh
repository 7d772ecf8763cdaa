// The shared memory of products by warp groups, and how results are stored.
#pragma once

#include "gemm_warp_group_parameters.cuh"
#include "kronop/warp_group_products.cuh"

namespace kronop {
namespace gemm {

inline constexpr int kTeam = 128;  // threads of a warp group
inline constexpr int kLineBytes = 128;
inline constexpr int kBlock = 64 * kLineBytes;  // bytes of 64 lines
inline constexpr int kLine = 64;                // elements of 16 bits in a line

// Constants that follow from the decisions.
template <class Decided>
struct WarpGroupStep : Decided {
  // Whether float32 operands, contiguous along their other index, become planes of bfloat16.
  static constexpr bool kConverts = Decided::kSplit && Decided::kTurnedA;
  static constexpr int kTeams = Decided::kThreads / kTeam - 1 - int(kConverts),
                       kSharing = Decided::kAlternate ? 1 : kTeams;
  static constexpr int kParts = Decided::kTileM / 64 / kSharing;
  static constexpr int kSlab =
      kLineBytes / int(sizeof(typename Decided::Input));  // contracted elements
  // Planes of an operand: its values and, if these are split, also the remainders.
  static constexpr int kPlanes = kConverts ? 3 : Decided::kSplit ? 2 : 1;
  // Whether the sums of a slab's MMAs are added up by ordinary additions.
  static constexpr bool kChained = Decided::kSplit ||
                                   detail::same<typename Decided::Input, float_e4m3_t> ||
                                   detail::same<typename Decided::Input, float_e5m2_t>;
  static constexpr int kSlabBytes = (Decided::kTileM + Decided::kTileN) * kLineBytes;
  static constexpr int kPlaneBytes = kConverts ? kSlabBytes / 2 : kSlabBytes;
  static constexpr int kStageBytes = kPlanes * kPlaneBytes;
  // Columns of B that each block of a cluster brings.
  static constexpr int kShare = Decided::kTileN / Decided::kCluster;
  // Results in a line of shared memory, and in the lines that a team stores at once.
  static constexpr int kResults = kLineBytes / int(sizeof(typename Decided::Output));
  static constexpr int kPiece = kResults * Decided::kLines;
  static_assert(kPiece <= Decided::kTileN);
};

// Slabs as they are copied, if another warp group converts them.
template <class Step, bool = Step::kConverts>
struct WarpGroupCopies {
  KRONOP_INLINE void begin() {}
};
template <class Step>
struct WarpGroupCopies<Step, true> {
  unsigned char stages[Step::kCopies][Step::kSlabBytes];
  Barrier filled[Step::kCopies], free[Step::kCopies];

  KRONOP_INLINE void begin() {
    for (int i = 0; i < Step::kCopies; ++i) {
      filled[i].begin(1);
      free[i].begin(kTeam / 32);
    }
  }
};

// Barriers: a stage's slab has arrived (`filled`), all readers are done (`free`), the other team
// has waited for its slabs and this one may wait for its own (`order`).
template <class Step>
struct WarpGroupRoom {
  unsigned char stages[Step::kStages][Step::kStageBytes];
  unsigned char results[Step::kTeams][Step::kBuffers][Step::kLines][kBlock];
  WarpGroupCopies<Step> copies;
  Barrier filled[Step::kStages], free[Step::kStages], order[Step::kTeams];

  KRONOP_INLINE void begin() {
    for (int i = 0; i < Step::kTeams; ++i) order[i].begin(kTeam / 32);
    copies.begin();
    for (int i = 0; i < Step::kStages; ++i) {
      filled[i].begin(Step::kConverts ? kTeam / 32 : 1);
      free[i].begin(Step::kSharing * 4 * Step::kCluster);
    }
  }
};

// The address of result (row, column) of a piece in a team's lines.
template <class Step>
KRONOP_INLINE unsigned char* place_in_lines(unsigned char* lines, int row, int column) {
  const int byte = column % Step::kResults * int(sizeof(typename Step::Output));
  return lines + column / Step::kResults * kBlock + row * kLineBytes +
         ((byte / 16 ^ row % 8) * 16 + byte % 16);
}

// Whether rows of C and D are elsewhere in memory than those of a product.
template <class Member>
inline constexpr bool kScattered = requires(const Member& p) { p.row_in_memory(0); };

// Where they are.
template <class Member>
KRONOP_INLINE long long row_in_memory(const Member& p, long long m) {
  if constexpr (kScattered<Member>) {
    return p.row_in_memory(m);
  } else {
    return m;
  }
}

// Brings a matrix's rows to the level-2 cache, for a team: `at` has the addresses of their first
// elements. Loads behind the last product would wait for memory otherwise.
template <class At>
KRONOP_INLINE void prefetch_rows(int rows, int bytes, const At& at) {
  const int row = threadIdx.x % kTeam;
  if (row >= rows) return;
  const auto* const from = reinterpret_cast<const char*>(at(row));
  for (int byte = 0; byte < bytes; byte += kLineBytes) prefetch_line(from + byte);
}

// Rows, or columns, of a tile that exist.
template <int kTile>
KRONOP_INLINE int extent_of(long long left) {
  return left < kTile ? int(left) : kTile;
}

// Stores a team's sums: the epilogue is applied in registers, and results go through shared memory,
// from which whole lines are stored.
template <class Step>
class WarpGroupResults {
 public:
  using Output = typename Step::Output;

  template <class Parameters>
  KRONOP_INLINE WarpGroupResults(const Parameters& parameters, WarpGroupRoom<Step>& room)
      : finish_(parameters), own_(room.results[threadIdx.x / kTeam][0][0]) {}

  // Before the sums of a tile are added up, from row m and column n on.
  template <class Member>
  KRONOP_INLINE static void prefetch(const Member& p, long long m, long long n, int problem) {
    if (kScattered<Member> || !p.z || p.z_column != 1) return;
    const auto* const from =
        static_cast<const Output*>(p.z) + problem * p.z_batch + m * p.z_row + n;
    prefetch_rows(extent_of<Step::kParts * 64>(p.m - m),
                  extent_of<Step::kTileN>(p.n - n) * int(sizeof(Output)),
                  [&](int row) { return from + row * p.z_row; });
  }

  // Stores still read shared memory: it must not change, and the block must not end. The last kMost
  // stores may go on.
  template <int kMost = 0>
  KRONOP_INLINE void wait_for_reads() const {
    if (threadIdx.x % kTeam == 0) wait_for_reads_of_stores<kMost>();
  }

  // For a team and a problem of the grouped GEMM, with sums of kParts x 64 rows from m on.
  template <class Member, class Sums>
  KRONOP_INLINE void write(const Member& p, const Sums& sums, long long m, long long n,
                           int problem) {
    const int team = threadIdx.x / kTeam;
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
      const long long row = m + part * 64;
#pragma unroll
      for (int first = 0; first < Step::kTileN; first += Step::kPiece) {
        wait_for_reads<Step::kBuffers - 1>();
        wait_for_team<kTeam>(team);
        fill(p, sums[part], first, row, n, problem);
        publish_to_warp_group_products();
        wait_for_team<kTeam>(team);
        if (p.maps_y) {
          if (threadIdx.x % kTeam == 0) store_lines(p, row, n + first, problem);
        } else {
          copy_out(p, row, n + first, problem);
        }
        turn_buffers();
      }
    }
  }

 private:
  using Pair = Vector<Output, 2>;

  KRONOP_INLINE unsigned char* place(int row, int column) const {
    return place_in_lines<Step>(own_ + buffer_ * Step::kLines * kBlock, row, column);
  }
  KRONOP_INLINE void turn_buffers() {
    if constexpr (Step::kBuffers > 1) buffer_ = 1 - buffer_;
  }

  // Whether C may be read in pairs. NOTE: NVRTC 13.0 then spills 1016 bytes of products of int8,
  // and 104 where A is turned; 13.5 does not.
  static constexpr bool kReadsPairs =
      !detail::same<typename Step::Input, int8_t> && !Step::kTurnedA;

  template <class Member, class Sums>
  KRONOP_INLINE void fill(const Member& p, const Sums& sums, int first, long long m, long long n,
                          int problem) {
    if (p.z && p.bias) {
      fill_with<Reads::kAny, Reads::kAny>(p, sums, first, m, n, problem);
    } else if (kReadsPairs && p.z && in_pairs(p, p.z, p.z_column, p.z_row | p.z_batch)) {
      constexpr Reads reads = kReadsPairs ? Reads::kPairs : Reads::kAny;
      fill_with<reads, Reads::kNone>(p, sums, first, m, n, problem);
    } else if (p.z) {
      fill_with<Reads::kAny, Reads::kNone>(p, sums, first, m, n, problem);
    } else if (p.bias && p.bias_row == 0 && in_pairs(p, p.bias, p.bias_column, 0)) {
      fill_with<Reads::kNone, Reads::kRepeated>(p, sums, first, m, n, problem);
    } else if (p.bias) {
      fill_with<Reads::kNone, Reads::kAny>(p, sums, first, m, n, problem);
    } else {
      fill_with<Reads::kNone, Reads::kNone>(p, sums, first, m, n, problem);
    }
  }

  // How C, or the bias, is loaded: pairs of neighbours that are the same in all rows, pairs of each
  // row, or single elements.
  enum class Reads { kNone, kRepeated, kPairs, kAny };

  // Whether an operand has complete and aligned pairs: `steps` has the bits of all other strides.
  template <class Member>
  KRONOP_INLINE static bool in_pairs(const Member& p, const void* from, long long column,
                                     long long steps) {
    return column == 1 && ((p.n | steps) & 1) == 0 && (unsigned long long)from % sizeof(Pair) == 0;
  }

  // A thread's share of a piece: in each block of 8 columns two neighbours, of two rows. The source
  // and bias of the next columns are loaded while 16 are computed.
  template <Reads kSource, Reads kBias, class Member, class Sums>
  KRONOP_INLINE void fill_with(const Member& p, const Sums& sums, int first, long long m,
                               long long n, int problem) {
    constexpr int times = Step::kPiece / 16;
    const int thread = threadIdx.x % 32, warp = threadIdx.x % kTeam / 32,
              row = warp * 16 + thread / 4, column = thread % 4 * 2;
    const long long left = p.n - n - first - column, down = p.m - m - row;
    const int columns = int(left < Step::kTileN ? left : Step::kTileN),
              rows = int(down < 9 ? down : 9);
    const Operand<kSource, Member> source(p, p.z, problem * p.z_batch, m + row, n + first + column,
                                          p.z_row, p.z_column);
    const Operand<kBias, Member> bias(p, p.bias, 0, m + row, n + first + column, p.bias_row,
                                      p.bias_column);
    constexpr int ahead = kBias == Reads::kNone ? 3 : 1, held = ahead + 1;
    Pair sources[held][4], biases[held][4];
    const auto bring = [&](int j) {
      source.load(sources[j % held], 16 * j, rows, columns);
      bias.load(biases[j % held], 16 * j, rows, columns);
    };
#pragma unroll
    for (int j = 0; j < math::min(ahead, times); ++j) bring(j);
#pragma unroll
    for (int j = 0; j < times; ++j) {
      if (j + ahead < times) bring(j + ahead);
      Pair values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& own = sums[first / 8 + 2 * j + i / 2];
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const auto sum = own[i % 2 * 2 + v];
          if constexpr (kBias != Reads::kNone) {
            values[i].data[v] =
                finish_(sum, kSource != Reads::kNone ? sources[j % held][i].data[v] : Output{},
                        biases[j % held][i].data[v]);
          } else if constexpr (kSource != Reads::kNone) {
            values[i].data[v] = finish_(sum, sources[j % held][i].data[v]);
          } else {
            values[i].data[v] = finish_(sum);
          }
        }
      }
      put(values, warp * 16, 16 * j);
    }
  }

  // Stores a warp's 16 x 16 results at `row` and `column` of the piece.
  KRONOP_INLINE void put(const Pair (&values)[4], int row, int column) const {
    const int thread = threadIdx.x % 32;
    if constexpr (sizeof(Output) == 2) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = values[i].data[0].bits | unsigned(values[i].data[1].bits) << 16;
      store_matrices<false>(place(row + thread / 8 % 2 * 8 + thread % 8, column + thread / 16 * 8),
                            words);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<Pair*>(
            place(row + thread / 4 + i % 2 * 8, column + i / 2 * 8 + thread % 4 * 2)) = values[i];
    }
  }

  // C, or the bias, from a thread's first result on; empty if there is none.
  template <Reads kReads, class Member>
  struct Operand {
    const Output *start, *own;
    long long row, column;
    long long scattered;  // From row 0 to row 8, where rows are scattered.

    KRONOP_INLINE Operand(const Member& p, const void* from, long long offset, long long m,
                          long long n, long long row, long long column)
        : start(static_cast<const Output*>(from) + offset),
          own(start + row_in_memory(p, m) * row + n * column), row(row), column(column),
          scattered((row_in_memory(p, m + 8) - row_in_memory(p, m)) * row) {}

    // To the row of pair i.
    KRONOP_INLINE long long below(int i) const {
      return kScattered<Member> ? i % 2 * scattered : i % 2 * 8 * row;
    }

    // Loads rows 0 and 8 and 16 columns from `at` on. For results that are out of bounds, any valid
    // element is loaded: conditions would serialise the loads.
    KRONOP_INLINE void load(Pair (&pairs)[4], int at, int rows, int columns) const {
      if constexpr (kReads == Reads::kRepeated) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int along = at + i / 2 * 8;
          pairs[i] = i % 2 ? pairs[i - 1]
                           : *reinterpret_cast<const Pair*>(columns > along ? own + along : start);
        }
      } else if constexpr (kReads == Reads::kPairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int along = at + i / 2 * 8;
          const bool there = rows > i % 2 * 8 && columns > along;
          const Output* const from = there ? own + along : start;
          pairs[i] = *reinterpret_cast<const Pair*>(from + (there ? below(i) : 0));
        }
      } else if constexpr (kReads == Reads::kAny) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int along = at + i / 2 * 8, down = i % 2 * 8;
          const bool first = rows > down && columns > along,
                     second = rows > down && columns > along + 1;
          const Output* const from = own + below(i) + along * column;
          pairs[i].data[0] = *(first ? from : start);
          pairs[i].data[1] = *(second ? from + column : start);
        }
      }
    }
  };

  template <class Member>
  KRONOP_INLINE void store_lines(const Member& p, long long m, long long n, int problem) const {
#pragma unroll
    for (int line = 0; line < Step::kLines; ++line) {
      const void* const from = place(0, line * Step::kResults);
      const int column = int(n) + line * Step::kResults;
      if constexpr (requires { p.store_rows(from, column, m, problem); }) {
        p.store_rows(from, column, m, problem);
      } else {
        store_box(from, p.y_map, BoxPlace{column, int(m), problem});
      }
    }
    commit_stores();
  }

  // Without a map of Y: coalesced stores.
  template <class Member>
  KRONOP_INLINE void copy_out(const Member& p, long long m, long long n, int problem) const {
    const bool by_rows = p.y_column == 1;
    auto* const to = static_cast<Output*>(p.y) + problem * p.y_batch;
    for (int i = threadIdx.x % kTeam; i < 64 * Step::kPiece; i += kTeam) {
      const int row = by_rows ? i / Step::kPiece : i % 64,
                column = by_rows ? i % Step::kPiece : i / 64;
      if (m + row < p.m && n + column < p.n) {
        to[row_in_memory(p, m + row) * p.y_row + (n + column) * p.y_column] =
            *reinterpret_cast<const Output*>(place(row, column));
      }
    }
  }

  Finish<Step> finish_;
  unsigned char* const own_;
  int buffer_ = 0;
};

}  // namespace gemm
}  // namespace kronop
