// What kernels of CUTLASS 3.x get from kronop: the rendered epilogue, and tensor maps passed as
// parameters. Included after CUTLASS's own headers.
#pragma once

#include "cutlass_functors.cuh"
#include "tensor_map.cuh"

namespace kronop {
namespace cutlass_kernels {

// The rendered epilogue, one element at a time.
template <class Step>
struct ElementFunctor : RenderedFunctor<Step, 1> {
  using Base = RenderedFunctor<Step, 1>;
  using Sum = typename Base::ElementAccumulator;
  using Output = typename Base::ElementOutput;

  struct Params {
    typename Step::Scalar scalars[4];
    bool reads;
  };

  KRONOP_INLINE explicit ElementFunctor(const Params& params)
      : Base(params.scalars, params.reads) {}

  KRONOP_INLINE Output operator()(const Sum& sum, const Output& source) const {
    typename Base::FragmentAccumulator sums;
    typename Base::FragmentOutput sources;
    sums[0] = sum, sources[0] = source;
    return Base::operator()(sums, sources)[0];
  }
  KRONOP_INLINE Output operator()(const Sum& sum) const {
    typename Base::FragmentAccumulator sums;
    sums[0] = sum;
    return Base::operator()(sums)[0];
  }
};

// Replaces a tensor map, which CUTLASS leaves empty if it is built on a device.
KRONOP_INLINE void place_map(const cute::TmaDescriptor* to, const TensorMap& from) {
  *reinterpret_cast<TensorMap*>(const_cast<cute::TmaDescriptor*>(to)) = from;
}

}  // namespace cutlass_kernels
}  // namespace kronop
