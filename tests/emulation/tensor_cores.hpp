// Products of the tensor cores, of a warp and of a warp group: every thread brings its operands,
// waits for the others of its warp, and computes the sums that are its own.
#pragma once

#include "fibres.hpp"

#pragma GCC push_options
#pragma GCC optimize("O2")

namespace kronop {
struct float_e4m3_t;
struct float_e5m2_t;
}  // namespace kronop

namespace emulation {

// The operands that the threads of a warp bring to a product.
template <class T>
struct Operands {
  T a[32][4], b[32][2];
};
template <class T>
inline Operands<T> operands[most_warps];

// The tensor cores drop the low 13 bits of a float32 operand. They truncate sums as well, which are
// exact here.
EMULATION_INLINE float operand(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0xffffe000u);
}
EMULATION_INLINE double operand(double x) { return x; }

// Adds to a thread's share of 16 rows x 8 `count` sums the products of left(row, k)
// and right(column, k), of k < kSteps. Each element is read once, since finding one
// takes most of a run.
template <class Wide, int kSteps, class Sum, class Left, class Right>
EMULATION_INLINE void add_products(Sum (*sums)[4], int count, bool more, Left left, Right right) {
  const int thread = int(current % 32);
  Wide rows[2][kSteps], column[kSteps];
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < kSteps; ++k) rows[half][k] = left(thread / 4 + 8 * half, k);
  }
  for (int n = 0; n < count; ++n) {
    for (int r = 0; r < 2; ++r) {
      for (int k = 0; k < kSteps; ++k) column[k] = right(8 * n + thread % 4 * 2 + r, k);
      for (int half = 0; half < 2; ++half) {
        Wide sum = more ? Wide(sums[n][2 * half + r]) : Wide(0);
        for (int k = 0; k < kSteps; ++k) sum += rows[half][k] * column[k];
        sums[n][2 * half + r] = Sum(sum);
      }
    }
  }
}

template <class T>
inline void warp_multiply_add(T (&sums)[4], const T (&a)[4], const T (&b)[2]) {
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(operands<T>[warp].a[thread], a, sizeof(a));
  std::memcpy(operands<T>[warp].b[thread], b, sizeof(b));
  wait(Waiting::warp);
  const Operands<T>& all = operands<T>[warp];
  add_products<double, 8>(
      &sums, 1, true,
      [&](int lane, int k) EMULATION_INLINED {
        return double(operand(all.a[lane % 8 * 4 + k % 4][lane / 8 + 2 * (k / 4)]));
      },
      [&](int produced, int k)
          EMULATION_INLINED { return double(operand(all.b[produced * 4 + k % 4][k / 4])); });
  wait(Waiting::warp);
}

// A product of a warp group in TF32. Each warp computes its own rows, so warps do not wait for
// others of the warp group.
template <int N>
inline void warp_group_multiply_add(float (&sums)[N][4], const float (&a)[4], const float* b,
                                    int columns, bool more) {
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(operands<float>[warp].a[thread], a, sizeof(a));
  wait(Waiting::warp);
  const Operands<float>& all = operands<float>[warp];
  add_products<double, 8>(
      sums, N, more,
      [&](int lane, int k) EMULATION_INLINED {
        return double(operand(all.a[lane % 8 * 4 + k % 4][lane / 8 + 2 * (k / 4)]));
      },
      [&](int column, int k) EMULATION_INLINED {
        return double(
            operand(b[(k / 4 * (columns / 8) + column / 8) * 32 + column % 8 * 4 + k % 4]));
      });
  wait(Waiting::warp);
}

// Some 8 x 8 matrices of 16-bit elements, as ldmatrix and stmatrix move them: each thread gives the
// address of one row.
struct Matrices {
  unsigned short* rows[32];
};
inline Matrices matrices[most_warps];

template <bool kTurned, bool kStore, int N>
inline void move_matrices(unsigned (&words)[N], const void* row) {
  const unsigned warp = current / 32, thread = current % 32;
  matrices[warp].rows[thread] = static_cast<unsigned short*>(const_cast<void*>(row));
  if (reinterpret_cast<std::size_t>(row) % 16 != 0) std::abort();
  wait(Waiting::warp);
  for (int m = 0; m < N; ++m) {
    for (int r = 0; r < 2; ++r) {
      const int lane = thread / 4, index = thread % 4 * 2 + r;
      unsigned short& element = kTurned ? matrices[warp].rows[8 * m + index][lane]
                                        : matrices[warp].rows[8 * m + lane][index];
      if constexpr (kStore) {
        element = static_cast<unsigned short>(words[m] >> 16 * r);
      } else {
        words[m] = (r ? words[m] & 0xffffu : 0) | unsigned(element) << 16 * r;
      }
    }
  }
  wait(Waiting::warp);
}

// The operands that the threads of a warp bring to a product of 16-bit or 8-bit elements.
struct Words {
  unsigned a[32][4], b[32][2];
};
inline Words words_of[most_warps];

// Row `lane` and contracted index k of the left operand.
EMULATION_INLINE unsigned short left_of(const Words& all, int lane, int k) {
  return static_cast<unsigned short>(all.a[lane % 8 * 4 + k % 8 / 2][lane / 8 + k / 8 * 2] >>
                                     16 * (k % 2));
}

// Byte k % 4 of a word.
EMULATION_INLINE unsigned byte_of(unsigned word, int k) { return word >> 8 * (k % 4) & 0xffu; }

// Converts with F16C: a cast from _Float16 calls a function of libgcc, which took half of some
// runs.
EMULATION_INLINE float of_half(unsigned short bits) {
  typedef short Halves __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps(Halves{static_cast<short>(bits)})[0];
}

// What another thread of the warp has.
inline unsigned from_lane(unsigned word, int lane) {
  const unsigned warp = current / 32;
  words_of[warp].a[current % 32][0] = word;
  wait(Waiting::warp);
  const unsigned there = words_of[warp].a[lane][0];
  wait(Waiting::warp);
  return there;
}
inline float from_lane(float value, int lane) {
  return __builtin_bit_cast(float, from_lane(__builtin_bit_cast(unsigned, value), lane));
}
inline double from_lane(double value, int lane) {
  const auto bits = __builtin_bit_cast(unsigned long long, value);
  const unsigned long long low = from_lane(unsigned(bits), lane),
                           high = from_lane(unsigned(bits >> 32), lane);
  return __builtin_bit_cast(double, high << 32 | low);
}

inline bool some_of_warp(bool holds) {
  bool some = false;
  for (int lane = 0; lane < 32; ++lane) some |= from_lane(unsigned(holds), lane) != 0;
  return some;
}

template <class T>
EMULATION_INLINE double widened(unsigned short bits) {
  if (__is_same(T, kronop::half_t)) return double(of_half(bits));
  return double(__builtin_bit_cast(float, unsigned(bits) << 16));
}

template <class T>
inline void warp_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  words_of[warp].b[thread][0] = b0;
  words_of[warp].b[thread][1] = b1;
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  add_products<double, 16>(
      &sums, 1, true,
      [&](int lane, int k) EMULATION_INLINED { return widened<T>(left_of(all, lane, k)); },
      [&](int produced, int k) EMULATION_INLINED {
        return widened<T>(
            static_cast<unsigned short>(all.b[produced * 4 + k % 8 / 2][k / 8] >> 16 * (k % 2)));
      });
  wait(Waiting::warp);
}

// A product of float16 with 8 contracted indices, as Turing has it.
inline void half_multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
  const unsigned a[4] = {a0, a1, 0, 0};
  warp_multiply_add<kronop::half_t>(sums, a, b, 0);
}

// A product of bytes. Those of the left operand are signed or not; sums wrap.
template <class Sum, int N>
inline void warp_multiply_add(Sum (&sums)[4], const unsigned (&a)[2 * N], const unsigned (&b)[N],
                              bool is_signed) {
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  std::memcpy(words_of[warp].b[thread], b, sizeof(b));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  const auto left = [&](int lane, int k) EMULATION_INLINED {
    const unsigned byte = byte_of(all.a[lane % 8 * 4 + k % 16 / 4][lane / 8 + k / 16 * 2], k);
    return unsigned(is_signed ? int(static_cast<signed char>(byte)) : int(byte));
  };
  const auto right = [&](int produced, int k) EMULATION_INLINED {
    return unsigned(
        int(static_cast<signed char>(byte_of(all.b[produced * 4 + k % 16 / 4][k / 16], k))));
  };
  add_products<unsigned, 16 * N>(reinterpret_cast<int (*)[4]>(&sums), 1, true, left, right);
  wait(Waiting::warp);
}

// An 8-bit float: e5m2 is the upper byte of a float16; the float16 with e4m3's fields is
// 2^8 times too small.
template <class T>
EMULATION_INLINE double widened_byte(unsigned byte) {
  if (__is_same(T, kronop::float_e5m2_t))
    return double(of_half(static_cast<unsigned short>(byte << 8)));
  if ((byte & 0x7f) == 0x7f) return __builtin_nan("");
  return 256 *
         double(of_half(static_cast<unsigned short>((byte & 0x80) << 8 | (byte & 0x7f) << 7)));
}

template <class T>
inline void warp_multiply_add_quarters(float (&sums)[4], const unsigned (&a)[4],
                                       const unsigned (&b)[2]) {
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  std::memcpy(words_of[warp].b[thread], b, sizeof(b));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  add_products<double, 32>(
      &sums, 1, true,
      [&](int lane, int k) EMULATION_INLINED {
        return widened_byte<T>(byte_of(all.a[lane % 8 * 4 + k % 16 / 4][lane / 8 + k / 16 * 2], k));
      },
      [&](int produced, int k) EMULATION_INLINED {
        return widened_byte<T>(byte_of(all.b[produced * 4 + k % 16 / 4][k / 16], k));
      });
  wait(Waiting::warp);
}

// A product of float16 whose sums are float16, two in a word.
inline void warp_multiply_add_halves(unsigned (&sums)[2], const unsigned (&a)[4],
                                     const unsigned (&b)[2]) {
  float wide[4];
  for (int e = 0; e < 4; ++e)
    wide[e] = of_half(static_cast<unsigned short>(sums[e / 2] >> 16 * (e % 2)));
  warp_multiply_add<kronop::half_t>(wide, a, b[0], b[1]);
  for (int e = 0; e < 4; ++e) {
    const unsigned half = __builtin_bit_cast(unsigned short, _Float16(wide[e]));
    sums[e / 2] = e % 2 ? sums[e / 2] | half << 16 : half;
  }
}

inline unsigned take_bytes(unsigned first, unsigned second, unsigned which) {
  const unsigned long long both = (unsigned long long)second << 32 | first;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) word |= unsigned(both >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
  return word;
}

struct Matrix {
  const unsigned char* from;
  int columns;
  Matrix(const void* from, int columns)
      : from(static_cast<const unsigned char*>(from)), columns(columns) {}
};

template <class T, int N>
inline void warp_group_multiply_add(float (&sums)[N][4], const unsigned (&a)[4],
                                    const Matrix& matrix, int bytes, bool more) {
  const auto* b = reinterpret_cast<const unsigned short*>(matrix.from + bytes);
  const int columns = matrix.columns;
  const unsigned warp = current / 32, thread = current % 32;
  std::memcpy(words_of[warp].a[thread], a, sizeof(a));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  add_products<double, 16>(
      sums, N, more,
      [&](int lane, int k) EMULATION_INLINED { return widened<T>(left_of(all, lane, k)); },
      [&](int column, int k)
          EMULATION_INLINED { return widened<T>(b[(k / 8 * columns + column) * 8 + k % 8]); });
  wait(Waiting::warp);
}

// A matrix in shared memory whose rows are swizzled (warp_group_products.cuh), and its elements.
struct WarpGroupMatrix {
  std::size_t from;
  int eight_rows, row_bytes, part;
  WarpGroupMatrix(const void* from, int eight_rows, int row_bytes, int part = 16)
      : from(reinterpret_cast<std::size_t>(from)), eight_rows(eight_rows), row_bytes(row_bytes),
        part(part) {}
  WarpGroupMatrix after(int bytes) const {
    WarpGroupMatrix result = *this;
    result.from += bytes;
    return result;
  }
  template <class T>
  EMULATION_INLINE T at(int row, int along) const {
    // A row's bytes are a power of two, and a division takes longer than all else here.
    const int bytes = along * int(sizeof(T)), parts = bytes >> __builtin_ctz(unsigned(row_bytes));
    const std::size_t place = from + parts * part + row / 8 * eight_rows + row % 8 * row_bytes +
                              (bytes & (row_bytes - 1));
    const std::size_t mask = row_bytes == 128 ? 7 : row_bytes == 64 ? 3 : 1;
    return *reinterpret_cast<const T*>(place ^ (place >> 7 & mask) << 4);
  }
};

template <class T, int N>
inline void warp_group_product(float (&sums)[N][4], const unsigned (&a)[4],
                               const WarpGroupMatrix& b, bool more) {
  const unsigned warp = current / 32;
  std::memcpy(words_of[warp].a[current % 32], a, sizeof(a));
  wait(Waiting::warp);
  const Words& all = words_of[warp];
  if constexpr (sizeof(T) == 4) {
    const auto left = [&](int row, int k) EMULATION_INLINED {
      return double(
          operand(__builtin_bit_cast(float, all.a[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)])));
    };
    add_products<double, 8>(sums, N, more, left, [&](int column, int k) EMULATION_INLINED {
      return double(operand(b.at<float>(column, k)));
    });
  } else {
    const auto left = [&](int row, int k)
                          EMULATION_INLINED { return widened<T>(left_of(all, row, k)); };
    add_products<double, 16>(sums, N, more, left, [&](int column, int k) EMULATION_INLINED {
      return widened<T>(b.at<unsigned short>(column, k));
    });
  }
  wait(Waiting::warp);
}

// A float32 as a copy by a tensor map rounds it to TF32. NaN stays NaN.
inline float rounded_as_copied(float x) {
  return x == x
             ? __builtin_bit_cast(float, (__builtin_bit_cast(unsigned, x) + 0x1000u) & 0xffffe000u)
             : x;
}

// Products of TF32, and of bytes, whose operands are both in shared memory.
template <int N>
inline void product_of(float (&sums)[N][4], const WarpGroupMatrix& a, const WarpGroupMatrix& b,
                       bool more, float) {
  const int first = int(current / 32 % 4 * 16);
  const auto left = [&](int row, int k)
                        EMULATION_INLINED { return double(operand(a.at<float>(first + row, k))); };
  add_products<double, 8>(sums, N, more, left, [&](int column, int k) EMULATION_INLINED {
    return double(operand(b.at<float>(column, k)));
  });
}
template <int N, class Byte>
inline void product_of(float (&sums)[N][4], const WarpGroupMatrix& a, const WarpGroupMatrix& b,
                       bool more, Byte) {
  const int first = int(current / 32 % 4 * 16);
  const auto left = [&](int row, int k) EMULATION_INLINED {
    return widened_byte<Byte>(a.at<unsigned char>(first + row, k));
  };
  add_products<double, 32>(sums, N, more, left, [&](int column, int k) EMULATION_INLINED {
    return widened_byte<Byte>(b.at<unsigned char>(column, k));
  });
}
template <class Sum, int N, class Byte>
inline void product_of(Sum (&sums)[N][4], const WarpGroupMatrix& a, const WarpGroupMatrix& b,
                       bool more, Byte) {
  const int first = int(current / 32 % 4 * 16);
  const auto left = [&](int row, int k) EMULATION_INLINED {
    return unsigned(int(a.at<signed char>(first + row, k)));
  };
  add_products<unsigned, 32>(reinterpret_cast<int (*)[4]>(sums), N, more, left,
                             [&](int column, int k) EMULATION_INLINED {
                               return unsigned(int(b.at<signed char>(column, k)));
                             });
}

template <class T, bool kTurned, bool kTurnedRight = false, int N>
inline void warp_group_product(float (&sums)[N][4], const WarpGroupMatrix& a,
                               const WarpGroupMatrix& b, bool more) {
  const int first = int(current / 32 % 4 * 16);
  const auto left = [&](int row, int k) EMULATION_INLINED {
    return widened<T>(kTurned ? a.at<unsigned short>(k, first + row)
                              : a.at<unsigned short>(first + row, k));
  };
  const auto right = [&](int column, int k) EMULATION_INLINED {
    return widened<T>(kTurnedRight ? b.at<unsigned short>(k, column)
                                   : b.at<unsigned short>(column, k));
  };
  add_products<double, 16>(sums, N, more, left, right);
}

}  // namespace emulation

#pragma GCC pop_options
