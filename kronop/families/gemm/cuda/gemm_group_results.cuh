// The shared memory of products by warp groups, and how sums leave it as results.
#pragma once

#include "kronop/group_products.cuh"
#include "kronop/tensor_map.cuh"

namespace kronop {
namespace gemm {

inline constexpr int kTeam = 128;      // threads of a warp group
inline constexpr int kLineBytes = 128;
inline constexpr int kBlock = 64 * kLineBytes;  // bytes of 64 lines
inline constexpr int kLine = 64;       // elements of 16 bits in a line

// What follows from the decisions.
template <class Decided>
struct GroupStep : Decided {
  static constexpr int kTeams = Decided::kThreads / kTeam - 1, kParts = Decided::kTileM / 64 / kTeams;
  static constexpr int kSlab = kLineBytes / int(sizeof(typename Decided::Input));  // contracted elements
  static constexpr int kStageBytes = (Decided::kTileM + Decided::kTileN) * kLineBytes;
  // Results in a line of shared memory, and lines that a team's results take at once.
  static constexpr int kResults = kLineBytes / int(sizeof(typename Decided::Output));
  static constexpr int kPiece = kResults * Decided::kLines;
};

template <class Step>
struct GroupRoom {
  unsigned char stages[Step::kStages][Step::kStageBytes];
  unsigned char results[Step::kTeams][Step::kLines][kBlock];
  Barrier filled[Step::kStages], free[Step::kStages];

  KRONOP_INLINE void begin() {
    for (int i = 0; i < Step::kStages; ++i) {
      filled[i].begin(1);
      free[i].begin(Step::kTeams * 4 * Step::kCluster);
    }
  }
};

// A team's way from sums to memory: in registers through the epilogue, then by way of shared memory,
// from where whole lines are written.
template <class Step, class Parameters>
class GroupResults {
 public:
  using Output = typename Step::Output;

  KRONOP_INLINE GroupResults(const Parameters& parameters, GroupRoom<Step>& room)
      : p_(parameters), finish_(parameters), own_(room.results[threadIdx.x / kTeam][0]) {}

  template <class Sums>
  KRONOP_INLINE void write(const Sums& sums, long long m, long long n, int problem) {
    const int team = threadIdx.x / kTeam;
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
      const long long row = m + (team * Step::kParts + part) * 64;
#pragma unroll
      for (int first = 0; first < Step::kTileN; first += Step::kPiece) {
        if (threadIdx.x % kTeam == 0) wait_for_reads_of_stores();
        wait_for_team<kTeam>(team);
        fill(sums[part], first, row, n, problem);
        publish_to_group_products();
        wait_for_team<kTeam>(team);
        if (p_.maps_y) {
          if (threadIdx.x % kTeam == 0) store_lines(row, n + first, problem);
        } else {
          copy_out(row, n + first, problem);
        }
      }
    }
  }

 private:
  // Where result (row, column) of a piece lies.
  KRONOP_INLINE unsigned char* place(int row, int column) const {
    const int byte = column % Step::kResults * int(sizeof(Output));
    return own_ + column / Step::kResults * kBlock + row * kLineBytes + ((byte / 16 ^ row % 8) * 16 + byte % 16);
  }

  template <class Sums>
  KRONOP_INLINE void fill(const Sums& sums, int first, long long m, long long n, int problem) {
    const int thread = threadIdx.x % 32, warp = threadIdx.x % kTeam / 32, row = warp * 16 + thread / 4;
#pragma unroll
    for (int j = 0; j < Step::kPiece / 16; ++j) {
      Output values[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int block = first / 8 + 2 * j + i / 2;
        finish(values[i], sums[block][i % 2 * 2], sums[block][i % 2 * 2 + 1], m + row + i % 2 * 8, n + 8 * block + thread % 4 * 2, problem);
      }
      if constexpr (sizeof(Output) == 2) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = values[i][0].bits | unsigned(values[i][1].bits) << 16;
        store_matrices<false>(place(warp * 16 + thread / 8 % 2 * 8 + thread % 8, 16 * j + thread / 16 * 8), words);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          *reinterpret_cast<Vector<Output, 2>*>(place(row + i % 2 * 8, 16 * j + i / 2 * 8 + thread % 4 * 2)) = {values[i][0], values[i][1]};
        }
      }
    }
  }

  // Two neighbours of a row through the epilogue.
  template <class Sum>
  KRONOP_INLINE void finish(Output (&values)[2], Sum first, Sum second, long long m, long long n, int problem) {
    const Sum both[2] = {first, second};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Output source{}, bias{};
      const bool exists = m < p_.m && n + i < p_.n;
      if (p_.z && exists) source = static_cast<const Output*>(p_.z)[m * p_.z_row + (n + i) * p_.z_column + problem * p_.z_batch];
      if (p_.bias && exists) bias = static_cast<const Output*>(p_.bias)[(n + i) * p_.bias_column];
      values[i] = p_.bias ? finish_(both[i], source, bias) : p_.z ? finish_(both[i], source) : finish_(both[i]);
    }
  }

  KRONOP_INLINE void store_lines(long long m, long long n, int problem) const {
#pragma unroll
    for (int line = 0; line < Step::kLines; ++line) store_box(own_ + line * kBlock, p_.y_map, {int(n) + line * Step::kResults, int(m), problem});
    commit_stores();
  }

  // Where no map describes Y: neighbours in memory by neighbouring threads.
  KRONOP_INLINE void copy_out(long long m, long long n, int problem) const {
    const bool by_rows = p_.y_column == 1;
    auto* const to = static_cast<Output*>(p_.y) + problem * p_.y_batch;
    for (int i = threadIdx.x % kTeam; i < 64 * Step::kPiece; i += kTeam) {
      const int row = by_rows ? i / Step::kPiece : i % 64, column = by_rows ? i % Step::kPiece : i / 64;
      if (m + row < p_.m && n + column < p_.n) {
        to[(m + row) * p_.y_row + (n + column) * p_.y_column] = *reinterpret_cast<const Output*>(place(row, column));
      }
    }
  }

  const Parameters& p_;
  Finish<Step> finish_;
  unsigned char* own_;
};

}  // namespace gemm
}  // namespace kronop
