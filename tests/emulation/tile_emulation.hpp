// AMX tiles and the other instructions of amx_tiles.hpp in plain C++, so that kernels on tiles run
// on any machine.
//
// Semantics of the Intel manual (volume 2, TDPBF16PS, TDPBSSD, TILELOADD, VCVTNE2PS2BF16): bf16
// subnormals count as zero, tiny sums are flushed to zero, rounding is to nearest even. A tile
// instruction whose tiles' sizes do not fit together ends the process, as it faults on the machine.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace emulation {

struct Tile {
  int lines, bytes;
  unsigned char data[16][64];
};
inline thread_local Tile tiles[8];
inline thread_local bool configured;
inline thread_local long dots;  // tile products done

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

inline float from_bits(unsigned short bits) {
  const unsigned wide = unsigned(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return flushed(value);
}

inline unsigned short to_bits(float value) {
  value = flushed(value);
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return static_cast<unsigned short>((bits >> 16) | 0x40);
  return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class T>
T at(const Tile& tile, int line, int index) {
  T value;
  std::memcpy(&value, tile.data[line] + index * sizeof(T), sizeof(T));
  return value;
}

inline void check(const Tile& sum, const Tile& a, const Tile& b) {
  require(configured && sum.lines && a.lines && b.lines);
  require(sum.lines == a.lines && sum.bytes == b.bytes && a.bytes == 4 * b.lines);
  ++dots;
}

}  // namespace emulation

[[gnu::noinline]] inline void _tile_loadconfig(const void* configuration) {
  const auto* bytes = static_cast<const unsigned char*>(configuration);
  emulation::require(bytes[0] == 1 && bytes[1] == 0);
  for (int i = 2; i < 16; ++i) emulation::require(bytes[i] == 0);
  for (int i = 0; i < 8; ++i) {
    emulation::Tile& tile = emulation::tiles[i];
    tile.bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i];
    tile.lines = bytes[48 + i];
    emulation::require(tile.bytes <= 64 && tile.lines <= 16 &&
                       (tile.bytes > 0) == (tile.lines > 0));
    std::memset(tile.data, 0, sizeof(tile.data));
  }
  emulation::configured = true;
}
[[gnu::noinline]] inline void _tile_release() { emulation::configured = false; }
[[gnu::noinline]] inline void _tile_zero(int tile) {
  emulation::require(emulation::configured);
  std::memset(emulation::tiles[tile].data, 0, sizeof(emulation::Tile::data));
}
[[gnu::noinline]] inline void _tile_loadd(int tile, const void* from, long stride) {
  emulation::Tile& to = emulation::tiles[tile];
  emulation::require(emulation::configured);
  std::memset(to.data, 0, sizeof(to.data));
  for (int i = 0; i < to.lines; ++i)
    std::memcpy(to.data[i], static_cast<const char*>(from) + i * stride, to.bytes);
}
[[gnu::noinline]] inline void _tile_stored(int tile, void* to, long stride) {
  const emulation::Tile& from = emulation::tiles[tile];
  emulation::require(emulation::configured);
  for (int i = 0; i < from.lines; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, from.data[i], from.bytes);
}

[[gnu::noinline]] inline void _tile_dpbf16ps(int sum, int left, int right) {
  using namespace emulation;
  Tile& c = tiles[sum];
  check(c, tiles[left], tiles[right]);
  const int depth = tiles[right].lines;
  const auto widen = [](const Tile& tile, float (&wide)[16][32]) {
    for (int i = 0; i < tile.lines; ++i) {
      for (int j = 0; j < tile.bytes / 2; ++j)
        wide[i][j] = from_bits(at<unsigned short>(tile, i, j));
    }
  };
  float a[16][32], b[16][32];
  widen(tiles[left], a);
  widen(tiles[right], b);
  for (int m = 0; m < c.lines; ++m) {
    for (int n = 0; n < c.bytes / 4; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < depth; ++k) {
        even = flushed(std::fma(a[m][2 * k], b[k][2 * n], even));
        odd = flushed(std::fma(a[m][2 * k + 1], b[k][2 * n + 1], odd));
      }
      const float result = flushed(at<float>(c, m, n) + flushed(even + odd));
      std::memcpy(c.data[m] + 4 * n, &result, 4);
    }
  }
}

[[gnu::noinline]] inline void _tile_dpbssd(int sum, int left, int right) {
  using namespace emulation;
  Tile& c = tiles[sum];
  const Tile &a = tiles[left], &b = tiles[right];
  check(c, a, b);
  for (int m = 0; m < c.lines; ++m) {
    for (int n = 0; n < c.bytes / 4; ++n) {
      unsigned result = at<unsigned>(c, m, n);  // wraps
      for (int k = 0; k < a.bytes; ++k) {
        result += unsigned(at<signed char>(a, m, k) * at<signed char>(b, k / 4, 4 * n + k % 4));
      }
      std::memcpy(c.data[m] + 4 * n, &result, 4);
    }
  }
}

namespace kronop::packed {

[[gnu::noinline]] inline Vector<uint16_t, 32> narrow(Vector<float, 16> low,
                                                     Vector<float, 16> high) {
  float values[32];
  std::memcpy(values, &low, 64);
  std::memcpy(values + 16, &high, 64);
  uint16_t result[32];
  for (int i = 0; i < 32; ++i) result[i] = emulation::to_bits(values[i]);
  return load<uint16_t, 32>(result);
}

}  // namespace kronop::packed
