// Results of distance_warp_group.cuh, from sums of products.
#pragma once

#include "distance_warp_group_tiles.cuh"
#include "distance_lengths.cuh"
#include "kronop/instructions.cuh"

namespace kronop {

namespace distance {

// Stores a team's rows of tiles. A thread has two neighbouring columns of rows g and g + 8 in each
// eight columns, as warp_group_products.cuh says: elements (h, r) of columns 8 n + {0, 1}.
template <class Step, class Parameters>
class WarpGroupResults {
  using Output = typename Step::Output;
  using Pair = Vector<Facts, 2>;
  static constexpr int kN = Step::kTileN / 8, kTerms = count_of(Step::kTerm);
  static constexpr int kNever = 1 << 20;
  static constexpr bool kLengths = Lengths<Step>::kAreAll, kScales = Step::kSplit || kLengths;
  // NOTE: products of split elements are too small: the tensor cores truncate, and the product of
  // both remainders is omitted. For points near each other this is 1.5e-7 of the sum in the mean,
  // by a model that explains the errors measured on one H200; this factor corrects most of it.
  static constexpr float kTwice = Step::kSplit ? 2 + 0x1p-22f : 2;
  // How many blocks of eight columns a quad of threads exchanges, so that its elements of a row
  // fill a sector of 32 bytes, the smallest unit that memory writes.
  static constexpr int kJoined = 4 / int(sizeof(Output) < 4 ? sizeof(Output) : 4);
  static constexpr bool kMayJoin = kJoined <= 2 && sizeof(Output) <= 4;

  const Parameters& parameters_;
  const Finish<Step> finish_;
  bool same_;  // whether x1 and x2 are the same points

  // This thread's part of a tile.
  struct Share {
    Output *y, *mirrored;  // its first element, and the one on the other side of the diagonal
    const Output *z, *z_mirrored;
    int rows, columns;                                // in bounds, from the first element on
    int diagonal, itself, regular, regular_mirrored;  // each holds where 8 n + r - 8 h is this
    bool crosses;  // whether a part of the tile is below the diagonal, and skipped
    float h[Step::kValues > 0 ? Step::kValues : 1];
  };

 public:
  KRONOP_INLINE explicit WarpGroupResults(const Parameters& p) : parameters_(p), finish_(p) {
    same_ = p.x1 == p.x2 && p.x1_row == p.x2_row && p.x1_column == p.x2_column;
#pragma unroll
    for (int d = 0; d < kBatchDims; ++d) same_ = same_ && p.x1_batch[d] == p.x2_batch[d];
  }

  // `facts` are those of the tile's rows, then of its columns.
  KRONOP_INLINE void write(const WarpGroupWalk<Step, Parameters>& walk, const float (&sums)[kN][4],
                           const Facts* facts) const {
    const Parameters& p = parameters_;
    const int row_within = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4,
              column_within = threadIdx.x % 4 * 2;
    const long long tile_column = (long long)walk.column * Step::kTileN;
    const long long row = (long long)walk.row * Step::kTileM + row_within,
                    column = tile_column + column_within;
    Share share;
    Output* const y = static_cast<Output*>(p.y) + offset_in_batch(walk.problem, p.batch, p.y_batch);
    const Output* const z =
        static_cast<const Output*>(p.z) + offset_in_batch(walk.problem, p.batch, p.z_batch);
    share.y = y + row * p.y_row + column * p.y_column;
    share.mirrored = y + column * p.y_row + row * p.y_column;
    share.z = z + row * p.z_row + column * p.z_column;
    share.z_mirrored = z + column * p.z_row + row * p.z_column;
    share.rows = near(p.m - row);
    share.columns = near(p.n - column);
    share.diagonal = near(row - column);
    share.itself = same_ ? share.diagonal : kNever;
    share.regular = near(row + p.diagonal - column);
    share.regular_mirrored = near(row - p.diagonal - column);
    share.crosses = Step::kSymmetric && tile_column < (long long)(walk.row + 1) * Step::kTileM;
    load_values(share.h, walk.problem);
    const long long apart = (long long)walk.row * Step::kTileM - tile_column;
    constexpr int run = 2 * kJoined;  // elements that are stored at once
    const bool whole = share.columns + column_within >= Step::kTileN || p.n % run == 0;
    const bool aligned = p.y_column == 1 && p.y_row % run == 0 &&
                         (unsigned long long)y % (run * sizeof(Output)) == 0;
    const Facts* const of_rows = facts + row_within;
    const Facts* const of_columns = facts + Step::kTileM + column_within;
    // A decision of the whole warp.
    if constexpr (kLengths) {
      if (has_unusual(of_rows, of_columns)) {
        write_wide(share, sums, of_rows, of_columns);
        return;
      }
    }
    if constexpr (kMayJoin) {
      const bool special =
          share.crosses || (same_ && is_inside(apart)) ||
          (Step::kRegularized &&
           (is_inside(apart + p.diagonal) || (Step::kSymmetric && is_inside(apart - p.diagonal))));
      if (whole && aligned && !p.z && !special) {
        write_runs(share, sums, of_rows, of_columns);
        return;
      }
    }
    write_each(share, sums, of_rows, of_columns);
  }

 private:
  // Whether the square of a length of one of this warp's points exceeds the range of float32; Pack
  // marks such points.
  KRONOP_INLINE static bool has_unusual(const Facts* of_rows, const Facts* of_columns) {
    bool found = of_rows[0].norm < 0 || of_rows[8].norm < 0;
#pragma unroll 1
    for (int n = threadIdx.x % 32 / 4; n < kN; n += 8)
      found = found || of_columns[8 * n].norm < 0 || of_columns[8 * n + 1].norm < 0;
    return some_of_warp(found);
  }

  // Clamps a number that matters only if it is small.
  KRONOP_INLINE static int near(long long x) {
    return x < kNever ? x > -kNever ? int(x) : -kNever : kNever;
  }

  // Whether a diagonal crosses the tile; `apart` is its distance from the tile's first element.
  KRONOP_INLINE static bool is_inside(long long apart) {
    return apart > -Step::kTileM && apart < Step::kTileN;
  }

  KRONOP_INLINE void load_values(float* h, long long problem) const {
    const Parameters& p = parameters_;
#pragma unroll
    for (int i = 0; i < Step::kValues; ++i) {
      const float* from = static_cast<const float*>(p.value[i]);
      long long at = 0;
      if (from)
        for_each_digit<kBatchDims>(problem, p.batch, [&](int d, long long digit) {
          at += digit * p.value_batch[kBatchDims * i + d];
        });
      h[i] = from ? from[at] : float(p.number[i]);
    }
  }

  // Stores rows with vectorised accesses, if no pair is special.
  KRONOP_INLINE void write_runs(const Share& share, const float (&sums)[kN][4],
                                const Facts* of_rows, const Facts* of_columns) const {
    const long long row_step = parameters_.y_row;
    const int quad = threadIdx.x % 32 / 4 * 4, t = threadIdx.x % 4;
    const Facts a[2] = {of_rows[0], of_rows[8]};
    // Where this thread's vector begins, relative to its first element: in block t / 2 of the two
    // that are exchanged.
    const int to = kJoined == 1 ? 0 : t / 2 * 8 + t % 2 * 4 - t * 2;
    Output* const y[2] = {share.y + to, share.y + (8 * row_step + to)};
    Output* mirrored = share.mirrored;
    Pair next = load<Facts, 2>(of_columns);
#pragma unroll
    for (int n = 0; n < kN; n += kJoined) {
      unsigned words[kJoined][2][sizeof(Output) == 4 ? 2 : 1];
#pragma unroll
      for (int j = 0; j < kJoined; ++j) {
        const Pair b = next;
        if (n + j + 1 < kN) next = load<Facts, 2>(of_columns + 8 * (n + j + 1));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          Output values[2];
#pragma unroll
          for (int r = 0; r < 2; ++r)
            values[r] = finish_(value(sums[n + j][2 * h + r], a[h], b.data[r], false, share));
          set_words(words[j][h], values[0], values[1]);
          if constexpr (Step::kSymmetric) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              if (8 * h < share.rows && 8 * (n + j) + r < share.columns)
                mirrored[r * row_step + 8 * h] = values[r];
            }
          }
        }
        mirrored += 8 * row_step;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        unsigned run[2];
        if constexpr (kJoined == 1) {
          run[0] = words[0][h][0];
          run[1] = words[0][h][1];
        } else {
          // Two threads have four columns of each eight; they get pairs from the others.
          const int from = t == 1 ? 2 : t == 2 ? 1 : t;
          const unsigned first = from_lane(t % 2 ? words[1][h][0] : words[0][h][0], quad + from);
          const unsigned second =
              from_lane(t % 2 ? words[0][h][0] : words[1][h][0], quad + (from ^ 1));
          run[0] = t < 2 ? first : second;
          run[1] = t < 2 ? second : first;
        }
        if (8 * h < share.rows && 8 * n + to < share.columns) store_words(y[h] + 8 * n, run);
      }
    }
  }
  KRONOP_INLINE static void set_words(unsigned (&words)[2], Output first, Output second) {
    words[0] = __builtin_bit_cast(unsigned, first);
    words[1] = __builtin_bit_cast(unsigned, second);
  }
  KRONOP_INLINE static void set_words(unsigned (&words)[1], Output first, Output second) {
    words[0] = first.bits | unsigned(second.bits) << 16;
  }

  // Stores element by element.
  KRONOP_INLINE void write_each(const Share& share, const float (&sums)[kN][4],
                                const Facts* of_rows, const Facts* of_columns) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      if (8 * n >= share.columns) break;
      const Pair b = load<Facts, 2>(of_columns + 8 * n);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (8 * h >= share.rows) continue;
        float values[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          values[r] = value(sums[n][2 * h + r], of_rows[8 * h], b.data[r],
                            8 * n + r - 8 * h == share.itself, share);
          write_one(share, n, h, r, values[r]);
        }
        if constexpr (Step::kSymmetric) write_mirrored(share, n, h, values);
      }
    }
  }
  KRONOP_INLINE void write_one(const Share& share, int n, int h, int r, float value) const {
    const Parameters& p = parameters_;
    const int place = 8 * n + r - 8 * h;
    if (8 * n + r >= share.columns || (share.crosses && place < share.diagonal)) return;
    const float result = regularized(value, place == share.regular, share);
    share.y[8 * h * p.y_row + (8 * n + r) * p.y_column] =
        p.z ? finish_(result, share.z[8 * h * p.z_row + (8 * n + r) * p.z_column])
            : finish_(result);
  }

  // As `write_each`, in double precision. Kernels of lengths are not symmetric: the two norms
  // differ.
  KRONOP_INLINE void write_wide(const Share& share, const float (&sums)[kN][4],
                                const Facts* of_rows, const Facts* of_columns) const {
#pragma unroll 1
    for (int at = 0; at < 4 * kN; ++at) {
      const int n = at / 4, h = at / 2 % 2, r = at % 2;
      if (8 * n >= share.columns || 8 * h >= share.rows) continue;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4 * kN; ++i) sum = i == at ? sums[i / 4][i % 4] : sum;
      write_one(share, n, h, r, wide_value(sum, of_rows[8 * h], of_columns[8 * n + r], share.h));
    }
  }

  // Stores two elements on the other side of the diagonal.
  KRONOP_INLINE void write_mirrored(const Share& share, int n, int h,
                                    const float (&values)[2]) const {
    const Parameters& p = parameters_;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int place = 8 * n + r - 8 * h;
      if (8 * n + r >= share.columns || place <= share.diagonal) continue;
      const float result = regularized(values[r], place == share.regular_mirrored, share);
      share.mirrored[(8 * n + r) * p.y_row + 8 * h * p.y_column] =
          p.z ? finish_(result, share.z_mirrored[(8 * n + r) * p.z_row + 8 * h * p.z_column])
              : finish_(result);
    }
  }

  KRONOP_INLINE static float regularized(float value, bool is_regular, const Share& share) {
    if constexpr (Step::kRegularized)
      return is_regular ? value + share.h[Step::kValues - 1] : value;
    return value;
  }

  // The kernel's value; `itself`: both points are the same.
  KRONOP_INLINE static float value(float product, Facts a, Facts b, bool itself,
                                   const Share& share) {
    float s[kTerms];
    // NOTE: the product of both scales alone may overflow.
    if constexpr (kScales) product *= a.scale;
    set<0>(s, product, a, b, itself);
    return Step::Kernel::value(s, share.h);
  }
  KRONOP_INLINE static float wide_value(float product, Facts a, Facts b, const float* h) {
    return Lengths<Step>::value(product * double(a.scale) * b.scale, wide_square(a), wide_square(b),
                                h);
  }
  KRONOP_INLINE static double wide_square(Facts of) {
    return of.norm < 0 ? -of.norm * double(of.scale) * of.scale : of.norm;
  }
  template <int kTerm>
  KRONOP_INLINE static void set(float (&s)[kTerms], float product, Facts a, Facts b, bool itself) {
    constexpr TermKind kind = TermKind(Step::kTerm[kTerm]);
    const float scale = kScales ? b.scale : 1.0f;
    if constexpr (kind == TermKind::kTwo) {
      // A NaN, as of the distance from infinity to itself, must not become 0.
      s[kTerm] = larger(
          itself ? a.norm - a.norm : multiply_add(product, -kTwice * scale, a.norm + b.norm), 0.0f);
    } else {
      s[kTerm] = kind == TermKind::kDot     ? product * scale
                 : kind == TermKind::kNormA ? a.norm
                                            : b.norm;
    }
    if constexpr (kTerm + 1 < kTerms) set<kTerm + 1>(s, product, a, b, itself);
  }
};

}  // namespace distance
}  // namespace kronop
