// The instructions for AMX tiles, and a thread's tile registers.
#pragma once

#include "kronop_x86/ahead.hpp"
#include "kronop_x86/tile.hpp"

#ifdef KRONOP_EMULATED_TILES
#include "tile_emulation.hpp"
// NOTE: Clang before 16 defines __AMXBF16__ and __AMXINT8__, without the underscore in the middle.
#elif defined(__AVX512BF16__) && (defined(__AMX_BF16__) || defined(__AMXBF16__)) && \
    (defined(__AMX_INT8__) || defined(__AMXINT8__))
#include <immintrin.h>
#else
#error "this C++ compiler knows no AMX: it takes g++ 11 or clang++ 12, or the target x86-avx512"
#endif

#include "kronop_x86/amx_factors.hpp"

namespace kronop {
namespace packed {

// ---- Instructions ----

#ifndef KRONOP_EMULATED_TILES
// Rounds to bf16, to nearest even. NaN stays NaN; subnormal numbers are flushed to zero.
KRONOP_INLINE Vector<uint16_t, 32> narrow(Vector<float, 16> low, Vector<float, 16> high) {
  return bit_cast<Vector<uint16_t, 32>>(
      _mm512_cvtne2ps_pbh(bit_cast<__m512>(high), bit_cast<__m512>(low)));
}
#endif

// Both vectors rounded to bf16 and interleaved: low[0] high[0] low[1] high[1] ...
KRONOP_INLINE Vector<uint16_t, 32> pairs(Vector<float, 16> low, Vector<float, 16> high) {
  const Vector<uint16_t, 32> both = narrow(low, high);
  using Half = Vector<uint16_t, 32>;
#if defined(__clang__)
  return __builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#else
  return __builtin_shuffle(both,
                           Half{0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
#endif
}

// ---- Tiles ----

struct alignas(64) TileConfiguration {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t lines[16];
};

// Tile registers 0 to 3 are sums, 4 and 5 the left operand, 6 and 7 the right one.
constexpr TileConfiguration configuration(int rows, int columns, int depth) {
  TileConfiguration made{1, 0, {}, {}, {}};
  for (int tile = 0; tile < 8; ++tile) {
    const bool left = tile == 4 || tile == 5, right = tile > 5;
    made.lines[tile] = uint8_t(right ? depth : rows);
    made.bytes[tile] = uint16_t(4 * (left ? depth : columns));
  }
  return made;
}
template <int kRows, int kColumns, int kDepth>
inline constexpr TileConfiguration kConfiguration = configuration(kRows, kColumns, kDepth);

// Asks Linux for permission to use AMX, once for all threads of the process. Fails if the system
// does not support AMX, or if a thread's signal stack is too small to save the tiles.
inline bool allow_tiles() {
#ifndef KRONOP_EMULATED_TILES
  constexpr long kArchPrctl = 158, kRequestPermission = 0x1023, kTileData = 18;
  static int allowed = 0;
  if (__atomic_load_n(&allowed, __ATOMIC_RELAXED)) return true;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(kArchPrctl), "D"(kRequestPermission), "S"(kTileData)
                   : "rcx", "r11", "memory");
  if (result != 0) return false;
  __atomic_store_n(&allowed, 1, __ATOMIC_RELAXED);
#endif
  return true;
}

// NOTE: a macro, because GCC's intrinsics take the number of a tile only as a literal.
#define KRONOP_TILE_PRODUCT(sum, left, right)      \
  do {                                             \
    if constexpr (detail::is_same<Sum, int32_t>) { \
      _tile_dpbssd(sum, left, right);              \
    } else {                                       \
      _tile_dpbf16ps(sum, left, right);            \
    }                                              \
  } while (false)

// A thread's tile registers, and the prefetches that it issues while they are busy, some before
// every block. A configuration is loaded only if it differs from the current one.
class TileEngine {
 public:
  Ahead ahead;

  TileEngine() = default;
  TileEngine(const TileEngine&) = delete;
  ~TileEngine() {
    if (current_) _tile_release();
  }

  template <Shape kShape>
  KRONOP_INLINE void begin() {
    const TileConfiguration* wanted =
        &kConfiguration<kShape.rows.size, kShape.columns.size, kShape.depth>;
    if (current_ != wanted) _tile_loadconfig(wanted);
    current_ = wanted;
  }

  // Computes the sums of a block over `steps` steps; their leading dimension is kPitch.
  template <Shape kShape, class Sum>
  static KRONOP_INLINE void block(const Operand& a, const Operand& b, int steps, Sum* sums) {
    block<kShape>(a, b, steps, sums, kPitch);
  }

  // The same with leading dimension `pitch`. kJoins: adds to the sums in memory.
  template <Shape kShape, bool kJoins = false, class Sum>
  static KRONOP_INLINE void block(const Operand& a, const Operand& b, int steps, Sum* sums,
                                  index_t pitch) {
    constexpr bool kTall = kShape.rows.tiles() == 2, kWide = kShape.columns.tiles() == 2;
    const char* left = static_cast<const char*>(a.data);
    const char* right = static_cast<const char*>(b.data);
    // NOTE: GCC does not know that _tile_loadd reads memory, and would move earlier stores behind
    // it.
    __asm__ volatile("" ::: "memory");
    const index_t line = pitch * kUnitBytes, down = kShape.rows.second * pitch;
    constexpr index_t kAcross = kShape.columns.second;
    if constexpr (kJoins) {
      _tile_loadd(0, sums, line);
      if constexpr (kWide) _tile_loadd(1, sums + kAcross, line);
      if constexpr (kTall) _tile_loadd(2, sums + down, line);
      if constexpr (kTall && kWide) _tile_loadd(3, sums + down + kAcross, line);
    } else {
      _tile_zero(0);
      if constexpr (kWide) _tile_zero(1);
      if constexpr (kTall) _tile_zero(2);
      if constexpr (kTall && kWide) _tile_zero(3);
    }
    for (int step = 0; step < steps; ++step) {
      _tile_loadd(6, right, b.line);
      _tile_loadd(4, left, a.line);
      KRONOP_TILE_PRODUCT(0, 4, 6);
      if constexpr (kWide) {
        _tile_loadd(7, right + b.second, b.line);
        KRONOP_TILE_PRODUCT(1, 4, 7);
      }
      if constexpr (kTall) {
        _tile_loadd(5, left + a.second, a.line);
        KRONOP_TILE_PRODUCT(2, 5, 6);
      }
      if constexpr (kTall && kWide) KRONOP_TILE_PRODUCT(3, 5, 7);
      left += a.step;
      right += b.step;
    }
    _tile_stored(0, sums, line);
    if constexpr (kWide) _tile_stored(1, sums + kAcross, line);
    if constexpr (kTall) _tile_stored(2, sums + down, line);
    if constexpr (kTall && kWide) _tile_stored(3, sums + down + kAcross, line);
  }

 private:
  const TileConfiguration* current_ = nullptr;
};

}  // namespace packed
}  // namespace kronop
