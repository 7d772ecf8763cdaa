// Product, scale and rounding of whole rows in one kernel, on tensor cores.
//
// A row is a matrix X of kContracted[0] x kContracted[1], and its product A' X B, with A and B the
// products of the factors of the two digits. A warp has kTiles x 16 columns of B:
//     Z' = B' X'  (16 x contracted[0]),  Y' = Z' A  (16 x produced[0])
// The rounded sums of the first product are the left operand of the second one, so Z stays in
// registers. A and B stay there for all rows if they are small, else they are loaded from shared
// memory, where their contracted index is contiguous. The next rows are copied meanwhile.
//
// All extents are zero-padded to multiples of 16. If X is finite, padded results are 0, and if it
// is not, the row has results that are not finite: they never change the row's largest magnitude.
#pragma once

#include "kronop/half_mma.cuh"
#include "quantized_pair_layout.cuh"

namespace kronop {
namespace quantized {

template <class Step>
class Pair {
  using Layout = PairLayout<Step>;
  using Input = typename Step::Input;
  static constexpr int kSteps0 = Layout::kIn0 / 16, kSteps1 = Layout::kIn1 / 16,
                       kPairs = Layout::kOut0 / 16, kTiles = Step::kTiles;

 public:
  static constexpr int kBytes = Layout::kElements * Step::kBits / 8;  // of a row of q

  KRONOP_INLINE Pair()
      : warp_(int(threadIdx.x / 32) % Layout::kWarps), own_(int(threadIdx.x / 32) / Layout::kWarps),
        lane_(int(threadIdx.x % 32)) {}

  // Zeroes the padding of tiles and matrices; a barrier for all warps.
  KRONOP_INLINE void clear() const {
    constexpr bool whole =
        Layout::kIn0 == Step::kContracted[0] && Layout::kIn1 == Step::kContracted[1] &&
        Layout::kOut0 == Step::kProduced[0] && Layout::kOut1 == Step::kProduced[1];
    if constexpr (!whole) {
      for (int i = 16 * int(threadIdx.x); i < Layout::kAtQ; i += 16 * Step::kThreads)
        store(shared_memory() + i, Vector<unsigned char, 16>{});
      __syncthreads();
    }
  }

  // Loads both matrices. Columns of B are permuted so that the sums of a thread are neighbours in
  // the row.
  template <class Parameters>
  KRONOP_INLINE void read(const Parameters& parameters, const PairPlace<Step>& place) const {
    read_matrix<0>(parameters, place, at<Input>(Layout::kAtA), Layout::kStrideA,
                   [](int q) { return q; });
    read_matrix<1>(parameters, place, at<Input>(Layout::kAtB), Layout::kStrideB,
                   [](int q) { return q / 16 * 16 + q % 16 / 2 + q % 2 * 8; });
  }

  // Loads the fragments that stay in registers, after a barrier.
  KRONOP_INLINE void keep() {
    if constexpr (Step::kKeepsB) {
#pragma unroll
      for (int k = 0; k < kSteps1; ++k) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) load_b(b_[k][tile], tile, k);
      }
    }
    if constexpr (Step::kKeepsA) {
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
#pragma unroll
        for (int k = 0; k < kSteps0; ++k) load_a(a_[n * kSteps0 + k], n, k);
      }
    }
  }

  // Starts to copy rows of X from `first` on to a stage.
  template <class Parameters>
  KRONOP_INLINE void copy(const Parameters& parameters, const PairPlace<Step>& place,
                          long long first, int stage) const {
    constexpr int p0 = Step::kContracted[0], p1 = Step::kContracted[1];
    const Input* const x =
        static_cast<const Input*>(parameters.x) + place.x + first * parameters.x_row;
    const int rows = rows_from(parameters, first);
    if constexpr (p1 % 8 == 0) {
      if (parameters.vectors_x) {
        constexpr int pieces = p1 / 8;
#pragma unroll
        for (int i = int(threadIdx.x); i < rows * p0 * pieces; i += Step::kThreads) {
          const int row = i / (p0 * pieces), digit = i / pieces % p0, piece = i % pieces;
          copy_asynchronously<16>(tile(stage, row) + digit * Layout::kStrideX + 8 * piece,
                                  x + row * parameters.x_row + (digit * p1 + 8 * piece));
        }
        return;
      }
    }
    for (int i = int(threadIdx.x); i < rows * p0 * p1; i += Step::kThreads) {
      const int row = i / (p0 * p1), column = i % (p0 * p1);
      tile(stage, row)[column / p1 * Layout::kStrideX + column % p1] =
          x[row * parameters.x_row + column * parameters.x_column];
    }
  }

  // Computes the warp's share of a row; returns the bits of its largest magnitude.
  KRONOP_INLINE unsigned multiply(int stage) {
    const Input* const x =
        tile(stage, own_) + (lane_ / 16 * 8 + lane_ % 8) * Layout::kStrideX + lane_ / 8 % 2 * 8;
    float sums[kSteps0][kTiles][2][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps1; ++k) {
      unsigned left[kTiles][4];
      if constexpr (!Step::kKeepsB) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) load_b(left[tile], tile, k);
      }
#pragma unroll
      for (int n = 0; n < kSteps0; ++n) {
        unsigned right[4];
        load_matrices<false>(right, x + 16 * n * Layout::kStrideX + 16 * k);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          add(sums[n][tile], Step::kKeepsB ? b_[Step::kKeepsB ? k : 0][tile] : left[tile], right);
      }
    }
    unsigned z[kSteps0][kTiles][4];
#pragma unroll
    for (int n = 0; n < kSteps0; ++n) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          z[n][tile][i] =
              pack<Input>(sums[n][tile][i / 2][i % 2 * 2], sums[n][tile][i / 2][i % 2 * 2 + 1]);
      }
    }
    return multiply_again(z);
  }

  // The maximum over all warps of a row's largest magnitude; a barrier for all warps.
  KRONOP_INLINE unsigned agree(unsigned most) const {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = larger(most, from_lane(most, lane_ ^ step));
    unsigned* const found = at<unsigned>(Layout::kAtMost);
    if (lane_ == 0) found[own_ * Layout::kWarps + warp_] = most;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < Layout::kWarps; ++other)
      most = larger(most, found[own_ * Layout::kWarps + other]);
    return most;
  }

  // Stores the integers of the warp's share in shared memory, a byte each.
  KRONOP_INLINE void round(const Rounding<Step::kBits>& rounding) const {
    unsigned char* const q = at<unsigned char>(Layout::kAtQ) + own_ * Layout::kBytesQ;
#pragma unroll
    for (int i = 0; i < 4 * kPairs; ++i) {
      const int row = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
      if (Step::kProduced[0] % 16 != 0 && row >= Step::kProduced[0]) continue;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int column = 16 * (kTiles * warp_ + tile) + lane_ / 4 * 2;
        const unsigned low = rounding.template byte<Input>(low_of(y_[i][tile])),
                       high = rounding.template byte<Input>(high_of(y_[i][tile]));
        const unsigned both = take_bytes(low, high, 0x0040u) & rounding.kept;
        leave_two(q + row * Layout::kStrideQ + column, Step::kProduced[1] - column, both);
      }
    }
  }

  // Stores the rows from `first` on in global memory, after a barrier.
  template <class Parameters>
  KRONOP_INLINE void leave(const Parameters& parameters, const PairPlace<Step>& place,
                           long long first) const {
    constexpr int of_byte = 8 / Step::kBits, bytes = kBytes, pieces = bytes / 16;
    const int rows = rows_from(parameters, first);
    unsigned char* const to =
        static_cast<unsigned char*>(parameters.q) + place.q + first * parameters.q_row;
    if constexpr (bytes % 16 == 0) {
      if (parameters.vectors_q) {
        for (int i = int(threadIdx.x); i < rows * pieces; i += Step::kThreads) {
          unsigned words[4];
          piece_of(words, i / pieces, i % pieces);
          store_words(to + i / pieces * parameters.q_row + i % pieces * 16, words);
        }
        return;
      }
    }
    for (int i = int(threadIdx.x); i < rows * bytes; i += Step::kThreads) {
      const int row = i / bytes, item = i % bytes * of_byte;
      const unsigned low = *integer(row, item);
      to[row * parameters.q_row + i % bytes] =
          (unsigned char)(of_byte == 1
                              ? low
                              : (low & 0xfu) | (*integer(row, item + of_byte - 1) & 0xfu) << 4);
    }
  }

  KRONOP_INLINE int own() const { return own_; }
  KRONOP_INLINE bool leads() const { return warp_ == 0 && lane_ == 0; }

 private:
  template <class T>
  KRONOP_INLINE static T* at(int bytes) {
    return reinterpret_cast<T*>(shared_memory() + bytes);
  }
  // How many of a block's rows from `first` on exist.
  template <class Parameters>
  KRONOP_INLINE static int rows_from(const Parameters& parameters, long long first) {
    const long long left = parameters.rows - first;
    return Step::kRows == 1 || left >= Step::kRows ? Step::kRows : int(left);
  }
  KRONOP_INLINE static Input* tile(int stage, int row) {
    return at<Input>(0) + (stage * Step::kRows + row) * Layout::kTile;
  }
  KRONOP_INLINE static const unsigned char* integer(int row, int item) {
    constexpr int columns = Step::kProduced[1];
    const int place = Layout::kPieces ? item / columns * Layout::kStrideQ + item % columns : item;
    return at<unsigned char>(Layout::kAtQ) + row * Layout::kBytesQ + place;
  }
  KRONOP_INLINE static void piece_of(unsigned (&words)[4], int row, int piece) {
    if constexpr (Step::kBits == 8) {
      const auto found =
          load<unsigned, 4>(reinterpret_cast<const unsigned*>(integer(row, 16 * piece)));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = found.data[i];
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto found = load<unsigned, 4>(
            reinterpret_cast<const unsigned*>(integer(row, 32 * piece + 16 * half)));
        words[2 * half] = nibbles(found.data[0], found.data[1]);
        words[2 * half + 1] = nibbles(found.data[2], found.data[3]);
      }
    }
  }
  // Stores two neighbours, of which `there` exist.
  KRONOP_INLINE static void leave_two(unsigned char* to, int there, unsigned both) {
    if constexpr (Step::kProduced[1] % 2 == 0) {
      if (Layout::kPieces || there > 0)
        *reinterpret_cast<unsigned short*>(to) = (unsigned short)both;
    } else {
      if (there > 0) to[0] = (unsigned char)both;
      if (there > 1) to[1] = (unsigned char)(both >> 8);
    }
  }
  // The second product, which gives the row's largest magnitude.
  KRONOP_INLINE unsigned multiply_again(const unsigned (&z)[kSteps0][kTiles][4]) {
    unsigned most = 0;
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      float sums[kTiles][2][4] = {};
#pragma unroll
      for (int k = 0; k < kSteps0; ++k) {
        unsigned right[4];
        if constexpr (!Step::kKeepsA) load_a(right, n, k);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          add(sums[tile], z[k][tile],
              Step::kKeepsA ? a_[Step::kKeepsA ? n * kSteps0 + k : 0] : right);
      }
      // Two neighbours along the row are sums of lanes g and g + 8.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          y_[4 * n + i][tile] = pack<Input>(sums[tile][i / 2][i % 2], sums[tile][i / 2][i % 2 + 2]);
          most = larger(most, Magnitude<Input>::of_word(y_[4 * n + i][tile]));
        }
      }
    }
    return most;
  }
  KRONOP_INLINE static float low_of(unsigned word) {
    return convert<float>(Magnitude<Input>::number(word & 0xffffu));
  }
  KRONOP_INLINE static float high_of(unsigned word) {
    return convert<float>(Magnitude<Input>::number(word >> 16));
  }
  // Loads one digit's matrix; `to` gives the position of each column.
  template <int kDigit, class Parameters, class Place>
  KRONOP_INLINE static void read_matrix(const Parameters& parameters, const PairPlace<Step>& place,
                                        Input* memory, int stride, Place to) {
    constexpr int first = kDigit ? Step::kSplit : 0, end = kDigit ? Step::kFactors : Step::kSplit;
    constexpr int rows = Step::kContracted[kDigit], columns = Step::kProduced[kDigit];
    if constexpr (end - first == 1 && columns % 8 == 0) {
      if (parameters.vectors_factor[first]) {
        const Input* const from =
            static_cast<const Input*>(parameters.factor[first]) + place.factor[first];
#pragma unroll 4
        for (int i = int(threadIdx.x); i < rows * columns / 8; i += Step::kThreads) {
          const int p = i % rows, q = i / rows * 8;
          const auto values = load<Input, 8>(from + p * parameters.factor_row[first] + q);
#pragma unroll
          for (int v = 0; v < 8; ++v) memory[to(q + v) * stride + p] = values.data[v];
        }
        return;
      }
    }
    constexpr int together = end - first == 1 ? 4 : 1;
#pragma unroll together
    for (int i = int(threadIdx.x); i < rows * columns; i += Step::kThreads) {
      const int p = i / columns, q = i % columns;
      memory[to(q) * stride + p] = element_of<Step, first, end>(parameters, place, p, q);
    }
  }
  // Two MMAs with the same left operand.
  KRONOP_INLINE static void add(float (&sums)[2][4], const unsigned (&left)[4],
                                const unsigned (&right)[4]) {
    warp_multiply_add<Input>(sums[0], left, right[0], right[1]);
    warp_multiply_add<Input>(sums[1], left, right[2], right[3]);
  }
  KRONOP_INLINE void load_b(unsigned (&words)[4], int tile, int k) const {
    load_matrices<false>(words, at<Input>(Layout::kAtB) +
                                    (16 * (kTiles * warp_ + tile) + lane_ % 16) * Layout::kStrideB +
                                    16 * k + lane_ / 16 * 8);
  }
  KRONOP_INLINE void load_a(unsigned (&words)[4], int n, int k) const {
    load_matrices<false>(words, at<Input>(Layout::kAtA) +
                                    (16 * n + lane_ / 16 * 8 + lane_ % 8) * Layout::kStrideA +
                                    16 * k + lane_ / 8 % 2 * 8);
  }

  const int warp_, own_, lane_;
  unsigned a_[Step::kKeepsA ? kPairs * kSteps0 : 1][4], b_[Step::kKeepsB ? kSteps1 : 1][kTiles][4],
      y_[4 * kPairs][kTiles];
};

}  // namespace quantized

template <class Step, class Parameters>
KRONOP_INLINE void quantized_pair(const Parameters& parameters) {
  using namespace quantized;
  const PairPlace<Step> place(parameters);
  const long long step = parameters.blocks * Step::kRows,
                  start = (long long)blockIdx.x % parameters.blocks * Step::kRows;
  Pair<Step> pair;
  pair.clear();
  pair.copy(parameters, place, start, 0);
  pair.read(parameters, place);
  __syncthreads();
  pair.keep();
  int stage = 0;
  for (long long first = start; first < parameters.rows; first += step) {
    wait_for_copies();
    __syncthreads();  // The rows are there, and all threads have left the previous ones.
    const bool more = first + step < parameters.rows;
    if (Step::kStages == 2 && more) pair.copy(parameters, place, first + step, stage ^ 1);
    const unsigned most = pair.agree(pair.multiply(stage));
    if (Step::kStages == 1 && more) pair.copy(parameters, place, first + step, 0);
    const auto rounding =
        Rounding<Step::kBits>::template of<typename Step::Input>(most, float(parameters.clip));
    pair.round(rounding);
    const long long row = first + pair.own();
    if (pair.leads() && row < parameters.rows)
      static_cast<float*>(
          parameters.scales)[(place.q + row * parameters.q_row) / Pair<Step>::kBytes] =
          rounding.scale;
    __syncthreads();
    pair.leave(parameters, place, first);
    if (Step::kStages == 2) stage ^= 1;
  }
}

}  // namespace kronop
