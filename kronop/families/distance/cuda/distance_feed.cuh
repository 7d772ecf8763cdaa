// How rows of an operand are copied to shared memory, as [k][row], while the previous slab is
// computed: asynchronously or, if elements are to be converted or checked, through registers.
#pragma once

#include "distance_terms.cuh"

namespace kronop {
namespace distance {

// A tile of kTile rows; each slab has kTileK columns (indices k).
//
// Threads copy single elements, so that strides and alignment are arbitrary. Neighbouring threads
// copy neighbouring columns or, where rows are contiguous, neighbouring rows.
template <class Step, int kTile, bool kDirectly>
class Feed {
  using Input = typename Step::Input;
  using Scalar = typename Step::Accumulator;
  // Neighbouring columns: 32 bytes of 4-byte elements, the unit of the level-2 cache.
  static constexpr int kColumns = Step::kTileK < 8 ? Step::kTileK : 8,
                       kColumnTiles = Step::kTileK / kColumns;

 public:
  // NOTE: padded to 4 words more than a multiple of 32 banks: the 8 columns of 4 rows that a warp
  // stores are in different banks.
  static constexpr int kPitch = kTile + 16 / int(sizeof(Scalar));
  static constexpr int kEach = kTile * Step::kTileK / Step::kThreads;  // elements of a thread
  static_assert(Step::kTileK % kColumns == 0 && kTile * Step::kTileK % Step::kThreads == 0 &&
                kEach % kColumnTiles == 0);
  static_assert(Step::kThreads % kTile == 0 && Step::kThreads % kColumns == 0);

  // The tile starts at row `first` of `rows`; rows start at `from`.
  KRONOP_INLINE Feed(const Input* from, long long first, long long rows, long long row_step,
                     long long column_step)
      : row_step_(row_step), column_step_(column_step),
        along_rows_(row_step == 1 && column_step != 1) {
    const long long left = rows - first;
    rows_ = left < kTile ? int(left) : kTile;
    const Places at(along_rows_);
    shared_ = at.column * kPitch + at.row;
    from_ = from + (first + at.row) * row_step + at.column * column_step;
  }

  // Starts to copy the next slab, of which `left` columns exist, to `slab`; others become 0.
  KRONOP_INLINE void fetch(Scalar* slab, int left) {
    const bool whole = rows_ == kTile && left >= Step::kTileK;
    if (along_rows_) {
      whole ? fetch_as<true, true>(slab, left) : fetch_as<true, false>(slab, left);
    } else {
      whole ? fetch_as<false, true>(slab, left) : fetch_as<false, false>(slab, left);
    }
    from_ += Step::kTileK * column_step_;
  }

  // Stores the slab that is in registers; returns whether all its elements are plain.
  template <class IsPlain>
  KRONOP_INLINE bool store_to(Scalar* slab, const IsPlain& is_plain) const {
    bool plain = true;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const Scalar value = convert<Scalar>(held_[i]);
      plain = is_plain(value) && plain;
      slab[shared_ + (along_rows_ ? Places::shared_of(true, i) : Places::shared_of(false, i))] =
          value;
    }
    return plain;
  }

 private:
  // The position of a thread's first element, and the offset from it to element i.
  struct Places {
    int row, column;
    KRONOP_INLINE explicit Places(bool along_rows) {
      const int thread = threadIdx.x;
      row = along_rows ? thread % kTile : thread / kColumns;
      column = along_rows ? thread / kTile : thread % kColumns;
    }
    KRONOP_INLINE static constexpr int row_of(bool along_rows, int i) {
      return along_rows ? 0 : i / kColumnTiles * (Step::kThreads / kColumns);
    }
    KRONOP_INLINE static constexpr int column_of(bool along_rows, int i) {
      return along_rows ? i * (Step::kThreads / kTile) : i % kColumnTiles * kColumns;
    }
    KRONOP_INLINE static constexpr int shared_of(bool along_rows, int i) {
      return column_of(along_rows, i) * kPitch + row_of(along_rows, i);
    }
  };

  const Input* from_;
  long long row_step_, column_step_;
  int rows_, shared_;
  bool along_rows_;
  Input held_[kDirectly ? 1 : kEach];

  template <bool kAlongRows, bool kWhole>
  KRONOP_INLINE void fetch_as(Scalar* slab, int left) {
    const Places at(kAlongRows);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = Places::row_of(kAlongRows, i), column = Places::column_of(kAlongRows, i);
      const Input* from = from_ + (row * row_step_ + column * column_step_);
      Scalar* to = slab + (shared_ + Places::shared_of(kAlongRows, i));
      const bool there = kWhole || (at.row + row < rows_ && at.column + column < left);
      if constexpr (!kDirectly) {
        held_[i] = there ? *from : Input{};
      } else if constexpr (kWhole) {
        copy_asynchronously<sizeof(Scalar)>(to, from);
      } else {
        copy_or_clear<sizeof(Scalar)>(to, from, there ? int(sizeof(Scalar)) : 0);
      }
    }
  }
};

}  // namespace distance
}  // namespace kronop
