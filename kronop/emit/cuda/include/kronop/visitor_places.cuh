// The shared memory in which threads combine the values of a visitor tree's reductions.
#pragma once

#include "memory.cuh"
#include "visitor.cuh"

namespace kronop {

// For a Layout whose threads are a whole block, with its shared memory.
struct OfBlock {
  KRONOP_INLINE static int thread() { return threadIdx.x; }
  KRONOP_INLINE static void wait() { __syncthreads(); }
  KRONOP_INLINE static unsigned char* places() { return shared_memory(); }
};

// The threads' values of reductions in shared memory. Threads that hold sums of one row are
// neighbours in a warp, and so are their places; the places of the next row begin an odd number
// further on. So there are no bank conflicts, neither among these threads nor among those that
// combine one row each. The places of one thread's columns are neighbours.
template <class Step, class Layout>
struct VisitorPlaces {
  using Epilogue = typename Step::Epilogue;
  using Compute = typename Epilogue::Compute;

  template <class Kept>
  struct Of {
    static constexpr int kExtent = 0, kHolders = 0, kOfHolder = 0, kOfExtent = 0, kCount = 0;
  };
  template <class Join>
  struct Of<Reduced<Join, Axis::kRow>> {
    static constexpr int kExtent = Step::kTileM, kHolders = Layout::kHoldersOfRows;
    static constexpr int kOfHolder = 1, kOfExtent = kHolders | 1, kCount = kExtent * kOfExtent;
  };
  template <class Join>
  struct Of<Reduced<Join, Axis::kColumn>> {
    static constexpr int kExtent = Step::kTileN, kHolders = Layout::kHoldersOfColumns;
    static constexpr int kOfHolder = kExtent, kOfExtent = 1, kCount = kExtent * kHolders;
  };
  template <int kIndex, class Kept, class... Others>
  KRONOP_INLINE static constexpr auto of(Types<Kept, Others...>) {
    if constexpr (kIndex == 0) {
      return Of<Kept>{};
    } else {
      return of<kIndex - 1>(Types<Others...>{});
    }
  }
  template <int kIndex>
  using At = decltype(of<kIndex>(typename Epilogue::Results{}));
  template <int kIndex>
  KRONOP_INLINE static constexpr int extent() {
    return At<kIndex>::kExtent;
  }
  template <int kIndex>
  KRONOP_INLINE static constexpr int holders() {
    return At<kIndex>::kHolders;
  }
  template <int kIndex>
  KRONOP_INLINE static constexpr int count() {
    return At<kIndex>::kCount;
  }
  template <int kIndex>
  KRONOP_INLINE static constexpr int before() {
    if constexpr (kIndex == 0) {
      return 0;
    } else {
      return before<kIndex - 1>() + count<kIndex - 1>();
    }
  }
  template <int kIndex>
  KRONOP_INLINE static Compute* places() {
    return reinterpret_cast<Compute*>(Layout::places()) + before<kIndex>();
  }
  // The place of a holder (a thread), for a row or column of the tile.
  template <int kIndex>
  KRONOP_INLINE static Compute& place(int holder, int of) {
    return places<kIndex>()[holder * At<kIndex>::kOfHolder + of * At<kIndex>::kOfExtent];
  }
};

}  // namespace kronop
