// The shared memory of products by warp groups, and how sums leave it as results.
#pragma once

#include "gemm_group_parameters.cuh"
#include "kronop/group_products.cuh"

namespace kronop {
namespace gemm {

inline constexpr int kTeam = 128;      // threads of a warp group
inline constexpr int kLineBytes = 128;
inline constexpr int kBlock = 64 * kLineBytes;  // bytes of 64 lines
inline constexpr int kLine = 64;       // elements of 16 bits in a line

// What follows from the decisions.
template <class Decided>
struct GroupStep : Decided {
  static constexpr int kTeams = Decided::kThreads / kTeam - 1, kSharing = Decided::kAlternate ? 1 : kTeams;
  static constexpr int kParts = Decided::kTileM / 64 / kSharing;
  static constexpr int kSlab = kLineBytes / int(sizeof(typename Decided::Input));  // contracted elements
  // Planes of an operand: its values or, where these are split, also what rounding left of them.
  static constexpr int kPlanes = Decided::kSplit ? 2 : 1;
  static constexpr int kPlaneBytes = (Decided::kTileM + Decided::kTileN) * kLineBytes;
  static constexpr int kStageBytes = kPlanes * kPlaneBytes;
  // Results in a line of shared memory, and lines that a team's results take at once.
  static constexpr int kResults = kLineBytes / int(sizeof(typename Decided::Output));
  static constexpr int kPiece = kResults * Decided::kLines;
};

template <class Step>
struct GroupRoom {
  unsigned char stages[Step::kStages][Step::kStageBytes];
  unsigned char results[Step::kTeams][Step::kLines][kBlock];
  Barrier filled[Step::kStages], free[Step::kStages], order[Step::kTeams];

  KRONOP_INLINE void begin() {
    for (int i = 0; i < Step::kTeams; ++i) order[i].begin(kTeam / 32);
    for (int i = 0; i < Step::kStages; ++i) {
      filled[i].begin(1);
      free[i].begin(Step::kSharing * 4 * Step::kCluster);
    }
  }
};

// A team's way from sums to memory: in registers through the epilogue, then by way of shared memory,
// from where whole lines are written.
template <class Step>
class GroupResults {
 public:
  using Output = typename Step::Output;

  template <class Parameters>
  KRONOP_INLINE GroupResults(const Parameters& parameters, GroupRoom<Step>& room)
      : finish_(parameters), own_(room.results[threadIdx.x / kTeam][0]) {}

  // Of a team and a product of the group, with sums of kParts times 64 rows from m on.
  template <class Member, class Sums>
  KRONOP_INLINE void write(const Member& p, const Sums& sums, long long m, long long n, int problem) {
    const int team = threadIdx.x / kTeam;
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
      const long long row = m + part * 64;
#pragma unroll
      for (int first = 0; first < Step::kTileN; first += Step::kPiece) {
        if (threadIdx.x % kTeam == 0) wait_for_reads_of_stores();
        wait_for_team<kTeam>(team);
        fill(p, sums[part], first, row, n, problem);
        publish_to_group_products();
        wait_for_team<kTeam>(team);
        if (p.maps_y) {
          if (threadIdx.x % kTeam == 0) store_lines(p, row, n + first, problem);
        } else {
          copy_out(p, row, n + first, problem);
        }
      }
    }
  }

 private:
  using Pair = Vector<Output, 2>;

  // Where result (row, column) of a piece lies.
  KRONOP_INLINE unsigned char* place(int row, int column) const {
    const int byte = column % Step::kResults * int(sizeof(Output));
    return own_ + column / Step::kResults * kBlock + row * kLineBytes + ((byte / 16 ^ row % 8) * 16 + byte % 16);
  }

  template <class Member, class Sums>
  KRONOP_INLINE void fill(const Member& p, const Sums& sums, int first, long long m, long long n, int problem) {
    if (p.z || p.bias) {
      fill_with<true>(p, sums, first, m, n, problem);
    } else {
      fill_with<false>(p, sums, first, m, n, problem);
    }
  }

  // A thread's share of a piece: in each block of 8 columns two neighbours, of two rows. kMore: there
  // is something to add.
  template <bool kMore, class Member, class Sums>
  KRONOP_INLINE void fill_with(const Member& p, const Sums& sums, int first, long long m, long long n, int problem) {
    const int thread = threadIdx.x % 32, warp = threadIdx.x % kTeam / 32, row = warp * 16 + thread / 4, column = thread % 4 * 2;
    More more(p, m + row, n + first + column, problem);
#pragma unroll
    for (int j = 0; j < Step::kPiece / 16; ++j) {
      Pair values[4];
      if constexpr (kMore) more.load(p, 16 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& own = sums[first / 8 + 2 * j + i / 2];
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          if constexpr (kMore) {
            values[i].data[v] = finish_(own[i % 2 * 2 + v], more.source[i].data[v], more.bias[i].data[v]);
          } else {
            values[i].data[v] = finish_(own[i % 2 * 2 + v]);
          }
        }
      }
      if constexpr (sizeof(Output) == 2) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = values[i].data[0].bits | unsigned(values[i].data[1].bits) << 16;
        store_matrices<false>(place(warp * 16 + thread / 8 % 2 * 8 + thread % 8, 16 * j + thread / 16 * 8), words);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) *reinterpret_cast<Pair*>(place(row + i % 2 * 8, 16 * j + i / 2 * 8 + column)) = values[i];
      }
    }
  }

  // What is added to a thread's results of 16 columns: of C for rows m and m + 8, and the bias.
  struct More {
    const Output *z, *added;
    int rows, columns;
    Pair source[4], bias[4];

    template <class Member>
    KRONOP_INLINE More(const Member& p, long long m, long long n, int problem)
        : z(p.z ? static_cast<const Output*>(p.z) + m * p.z_row + n * p.z_column + problem * p.z_batch : nullptr),
          added(p.bias ? static_cast<const Output*>(p.bias) + m * p.bias_row + n * p.bias_column : nullptr),
          rows(int(at_most(p.m - m, 9))),
          columns(int(at_most(p.n - n, Step::kTileN))) {}

    // Of the 16 columns from `at` on. What does not exist is 0.
    template <class Member>
    KRONOP_INLINE void load(const Member& p, int at) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int here = at + i / 2 * 8, down = i % 2 * 8, left = rows > down ? columns - here : 0;
        bias[i] = added ? pair_of(added + down * p.bias_row + here * p.bias_column, p.bias_column, left) : no_bias();
        source[i] = z ? pair_of(z + down * p.z_row + here * p.z_column, p.z_column, left) : Pair{};
      }
    }
  };
  KRONOP_INLINE static long long at_most(long long value, long long most) { return value < most ? value : most; }

  // Two neighbours of a row, as far as they exist.
  KRONOP_INLINE static Pair pair_of(const Output* from, long long column, int left) {
    Pair pair{};
    if (left > 0) pair.data[0] = from[0];
    if (left > 1) pair.data[1] = from[column];
    return pair;
  }
  KRONOP_INLINE static Pair no_bias() {
    const Output none = convert<Output>(Finish<Step>::no_bias());
    return {none, none};
  }

  template <class Member>
  KRONOP_INLINE void store_lines(const Member& p, long long m, long long n, int problem) const {
#pragma unroll
    for (int line = 0; line < Step::kLines; ++line) store_box(own_ + line * kBlock, p.y_map, BoxPlace{int(n) + line * Step::kResults, int(m), problem});
    commit_stores();
  }

  // Where no map describes Y: neighbours in memory by neighbouring threads.
  template <class Member>
  KRONOP_INLINE void copy_out(const Member& p, long long m, long long n, int problem) const {
    const bool by_rows = p.y_column == 1;
    auto* const to = static_cast<Output*>(p.y) + problem * p.y_batch;
    for (int i = threadIdx.x % kTeam; i < 64 * Step::kPiece; i += kTeam) {
      const int row = by_rows ? i / Step::kPiece : i % 64, column = by_rows ? i % Step::kPiece : i / 64;
      if (m + row < p.m && n + column < p.n) {
        to[(m + row) * p.y_row + (n + column) * p.y_column] = *reinterpret_cast<const Output*>(place(row, column));
      }
    }
  }

  Finish<Step> finish_;
  unsigned char* own_;
};

}  // namespace gemm
}  // namespace kronop
