// Quantizes rows of numbers: integers, and a scale for each row; the definition in description.py.
#pragma once

#include "kronop_x86/functions.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop {

struct QuantizedRowsParameters {
  void* y;       // (rows, kColumns), contiguous
  void* q;       // the same, packed
  void* scales;  // (rows)
  index_t rows, threads;
  double clip;
};

namespace quantized {

// The bits of a number's magnitude as a float. They have the order of the magnitudes, with infinity
// and NaN above all others.
template <class Element>
KRONOP_INLINE uint32_t magnitude(Element value) {
  return __builtin_bit_cast(uint32_t, convert<float>(value)) & 0x7fffffffu;
}

template <class Step>
KRONOP_INLINE void round_row(const typename Step::Element* row, int8_t* q, float* scale_of_row,
                             float clip) {
  constexpr int top = (1 << (Step::kBits - 1)) - 1;
  uint32_t most = 0;
  for (index_t column = 0; column < Step::kColumns; ++column) {
    const uint32_t own = magnitude(row[column]);
    most = own > most ? own : most;
  }
  const float scale = clip * __builtin_bit_cast(float, most) / float(top);
  const bool finite = most < 0x7f800000u, large = scale >= 0x1p-100f;
  *scale_of_row = !finite ? __builtin_nanf("") : large ? scale : 1.0f;
  if (!finite || !large) {
    __builtin_memset(q, 0, Step::kColumns * Step::kBits / 8);
    return;
  }
  const auto integer = [&](index_t column) {
    const float scaled = convert<float>(row[column]) / scale;
    const float above = scaled < float(-top - 1) ? float(-top - 1) : scaled;
    return int(__builtin_rintf(above > float(top) ? float(top) : above));
  };
  if constexpr (Step::kBits == 8) {
    for (index_t column = 0; column < Step::kColumns; ++column) q[column] = int8_t(integer(column));
  } else {
    for (index_t byte = 0; byte < Step::kColumns / 2; ++byte)
      q[byte] = int8_t((integer(2 * byte) & 15) | integer(2 * byte + 1) << 4);
  }
}

}  // namespace quantized

template <class Step, class Parameters>
int quantized_rows(const Parameters& parameters, bool alone) {
  constexpr index_t columns = Step::kColumns, bytes = columns * Step::kBits / 8;
  const auto* const y = static_cast<const typename Step::Element*>(parameters.y);
  share_out(parameters.rows, parameters.threads, alone, [&](index_t, index_t first, index_t end) {
    for (index_t row = first; row < end; ++row) {
      quantized::round_row<Step>(
          y + row * columns, static_cast<int8_t*>(parameters.q) + row * bytes,
          static_cast<float*>(parameters.scales) + row, float(parameters.clip));
    }
  });
  return 0;
}

}  // namespace kronop
