// Functors that CUTLASS's epilogues call with fragments of sums: the rendered epilogue, or nothing.
#pragma once

#include <cutlass/array.h>

#include "activations.cuh"

namespace kronop {
namespace cutlass_kernels {

// Converts an element to kronop's type with the same bits, or back.
template <class To, class From>
KRONOP_INLINE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// The type names that CUTLASS expects in an epilogue functor.
template <class Output, class Sum, int kWidth>
struct FunctorBase {
  using ElementOutput = Output;
  using ElementC = Output;
  using ElementD = Output;
  using ElementAccumulator = Sum;
  using ElementCompute = Sum;
  static constexpr int kCount = kWidth;
  using FragmentOutput = cutlass::Array<Output, kWidth>;
  using FragmentSource = FragmentOutput;
  using FragmentAccumulator = cutlass::Array<Sum, kWidth>;
};

// The rendered epilogue. The source is read if `reads`.
template <class Step, int kWidth>
struct RenderedFunctor
    : FunctorBase<typename Step::ElementOutput, typename Step::ElementAccumulator, kWidth> {
  using Base = FunctorBase<typename Step::ElementOutput, typename Step::ElementAccumulator, kWidth>;
  using Compute = typename Step::Epilogue::Compute;
  using typename Base::FragmentAccumulator;
  using typename Base::FragmentOutput;

  typename Step::Epilogue epilogue;
  bool reads;

  template <class Scalar>
  KRONOP_INLINE RenderedFunctor(const Scalar* scalars, bool reads)
      : epilogue(scalars), reads(reads) {}

  KRONOP_INLINE bool is_source_needed() const { return reads; }

  KRONOP_INLINE FragmentOutput operator()(const FragmentAccumulator& sums,
                                          const FragmentOutput& source) const {
    FragmentOutput results;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const typename Base::ElementOutput added = source[i];
      results[i] = result_of(sums[i], convert<Compute>(same_bits<typename Step::Output>(added)));
    }
    return results;
  }
  KRONOP_INLINE FragmentOutput operator()(const FragmentAccumulator& sums) const {
    FragmentOutput results;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) results[i] = result_of(sums[i], Compute(0));
    return results;
  }

 private:
  KRONOP_INLINE typename Base::ElementOutput result_of(typename Base::ElementAccumulator sum,
                                                       Compute source) const {
    const Compute value =
        epilogue(convert<Compute>(same_bits<typename Step::Accumulator>(sum)), source, Compute(0));
    return same_bits<typename Base::ElementOutput>(convert<typename Step::Output>(value));
  }
};

// Stores sums unchanged, for split-K slices.
template <class Sum, int kWidth>
struct SumFunctor : FunctorBase<Sum, Sum, kWidth> {
  using Base = FunctorBase<Sum, Sum, kWidth>;
  using typename Base::FragmentAccumulator;
  using typename Base::FragmentOutput;

  KRONOP_INLINE bool is_source_needed() const { return false; }
  KRONOP_INLINE FragmentOutput operator()(const FragmentAccumulator& sums,
                                          const FragmentOutput&) const {
    return sums;
  }
  KRONOP_INLINE FragmentOutput operator()(const FragmentAccumulator& sums) const { return sums; }
};

}  // namespace cutlass_kernels
}  // namespace kronop
