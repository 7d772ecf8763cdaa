// Constants of a phase that contracts two digits (kron_pair.cuh): its sizes, and the fragments of
// both factors.
#pragma once

#include "kron_ends.cuh"

namespace kronop {
namespace kron {

// The left operand of a product with only 8 produced rows, half of an MMA's rows. The other half
// has the remainders of the values, so that two MMAs do what otherwise takes three.
template <class T>
struct alignas(16) Stacked {
  T data[4];
  Stacked() = default;
  KRONOP_INLINE explicit Stacked(const T (&from)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      data[2 * r] = round_to_tf32(from[r]);
      data[2 * r + 1] = from[r] - data[2 * r];
    }
  }
};

// A thread's fragments of a factor: held in registers, or read from shared memory each time.
template <class Fragment, int kCount, bool kInRegisters>
struct Held {
  Fragment fragments[kCount];
  KRONOP_INLINE explicit Held(const Fragment* from) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) fragments[i] = from[i * 32];
  }
  KRONOP_INLINE const Fragment& operator[](int i) const { return fragments[i]; }
};
template <class Fragment, int kCount>
struct Held<Fragment, kCount, false> {
  const Fragment* from;
  KRONOP_INLINE explicit Held(const Fragment* shared) : from(shared) {}
  KRONOP_INLINE const Fragment& operator[](int i) const { return from[i * 32]; }
};

// A block is all elements of the two digits at one free index.
template <class Step, int Phase>
struct PairOf {
  using Accumulator = typename Step::Accumulator;
  static constexpr int kInner = Step::kPhaseDigit[Phase], kOuter = Step::kPhaseOther[Phase];
  static constexpr int kP1 = Step::kContracted[kInner], kQ1 = Step::kProduced[kInner];
  static constexpr int kP2 = Step::kContracted[kOuter], kQ2 = Step::kProduced[kOuter];
  static constexpr int kStride1 = Step::kStride[kInner], kStride2 = Step::kStride[kOuter];
  static constexpr bool kUnit = kStride1 == 1;
  // Parts of 8 contracted or second produced indices, and of 16 first produced ones.
  static constexpr int kParts1 = (kP1 + 7) / 8, kParts2 = (kP2 + 7) / 8, kProduced2 = (kQ2 + 7) / 8,
                       kProduced1 = (kQ1 + 15) / 16;
  static constexpr int kLanes = Step::kPhaseLanes[Phase];  // blocks that a warp has at once
  static constexpr bool kNeighbours = Step::kPhaseNeighbours[Phase];
  static constexpr int kPlaces = kNeighbours ? 1 : kLanes;
  static constexpr int kBlocks = fibers_of<Step>(Phase);
  // Whether a block's first produced indices fit in 8 rows: the second product then has two blocks
  // at once.
  static constexpr bool kHalf = kQ1 <= 8;
  static constexpr int kSets = kHalf ? kLanes / 2 : kLanes;
  static constexpr bool kStacked = kHalf && Step::kSplit;
  static constexpr int kTogether = Step::kSplit ? 2 : 1 << 20;  // parts whose MMAs are one chain
  using Left = Either<kStacked, Stacked<Accumulator>, Split<Accumulator, 4, Step::kSplit>>;
  using Right = Split<Accumulator, 2, Step::kSplit>;
  static constexpr int kLeftCount = kProduced1 * kParts1, kRightCount = kParts2 * kProduced2;
  // Whether the factors are in registers for the whole phase, because they are small.
  static constexpr bool kHoldFactors =
      kProduced1 == 1 && kLeftCount * sizeof(Left) + kRightCount * sizeof(Right) <= 64;
  using LeftFactor = Held<Left, kLeftCount, kHoldFactors>;
  using RightFactor = Held<Right, kRightCount, kHoldFactors>;
  template <class T>
  using ElementsOf = T[kLanes][kParts1][kParts2][2];
  using Elements = ElementsOf<Accumulator>;
  using Sums = Accumulator[kSets][kProduced2][4];

  // Index along the first produced digit of row g of 8, in an order that avoids bank conflicts of
  // 16-byte accesses.
  KRONOP_INLINE static constexpr int row(int g) { return (g & 4) | (g & 1) << 1 | (g & 2) >> 1; }
  KRONOP_INLINE static constexpr int along(int t, int r) { return kUnit ? 2 * t + r : t + 4 * r; }

  struct LeftFragments {
    using Operand = Left;
    static constexpr int kDigit = kInner, kCount = kLeftCount, kElements = kStacked ? 2 : 4;
    static constexpr bool kWhole = kP1 % 8 == 0 && kQ1 % (kStacked ? 8 : 16) == 0;
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int i) {
      return part % kParts1 * 8 + along(thread % 4, kStacked ? i : i / 2);
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int i) {
      return part / kParts1 * 16 + row(thread / 4) + (kStacked ? 0 : i % 2 * 8);
    }
    KRONOP_INLINE static unsigned place(unsigned e) { return e; }
    KRONOP_INLINE static void put(Accumulator* to, unsigned e,
                                  const Accumulator (&items)[kElements]) {
      reinterpret_cast<Operand*>(to)[e] = Operand(items);
    }
  };
  struct RightFragments {
    using Operand = Right;
    static constexpr int kDigit = kOuter, kCount = kRightCount, kElements = 2;
    static constexpr bool kWhole = kP2 % 8 == 0 && kQ2 % 8 == 0;
    KRONOP_INLINE static unsigned contracted(unsigned part, unsigned thread, int r) {
      return part / kProduced2 * 8 + thread % 4 * 2 + r;
    }
    KRONOP_INLINE static unsigned produced(unsigned part, unsigned thread, int) {
      const unsigned g = thread / 4;
      return part % kProduced2 * 8 + g / 2 + g % 2 * 4;
    }
    KRONOP_INLINE static unsigned place(unsigned e) { return e; }
    KRONOP_INLINE static void put(Accumulator* to, unsigned e, const Accumulator (&items)[2]) {
      reinterpret_cast<Operand*>(to)[e] = Operand(items);
    }
  };
};

}  // namespace kron
}  // namespace kronop
