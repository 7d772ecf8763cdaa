// Work shared among threads.
#pragma once

#include "kronop_x86/numeric.hpp"

namespace kronop {

// action(share, first, end) for `shares` contiguous parts of [0, items), each on a thread of its own
// where OpenMP is there. One share makes no parallel region: entering one takes microseconds.
template <class Action>
KRONOP_INLINE void share_out(index_t items, index_t shares, const Action& action) {
  if (shares <= 1) {
    action(0, 0, items);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(int(shares))
#endif
  for (index_t share = 0; share < shares; ++share) {
    action(share, items * share / shares, items * (share + 1) / shares);
  }
}

}  // namespace kronop
