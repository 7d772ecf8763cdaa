// Takes the place of CUTLASS's header of this name, whose division is a breakpoint on a device:
// CUTLASS's tile scheduler divides where numbers of tiles are no powers of two.
#pragma once

#include "cutlass/cutlass.h"

namespace cutlass {

struct uint128_t {
  unsigned long long low, high;

  CUTLASS_HOST_DEVICE uint128_t(unsigned long long low = 0, unsigned long long high = 0)
      : low(low), high(high) {}

  // The quotient, which fits in 64 bits if `high` is less than the divisor; bit by bit.
  CUTLASS_HOST_DEVICE unsigned long long operator/(unsigned long long divisor) const {
    unsigned long long rest = high, quotient = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const bool carried = rest >> 63;
      rest = rest << 1 | (low >> bit & 1);
      const bool fits = carried || rest >= divisor;
      rest -= fits ? divisor : 0;
      quotient = quotient << 1 | fits;
    }
    return quotient;
  }
};

}  // namespace cutlass
