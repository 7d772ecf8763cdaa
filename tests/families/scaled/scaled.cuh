// Y = epilogue(X * W), a thread for each element.
#pragma once

#include "kronop/memory.cuh"

namespace kronop {

template <int kScalars, class Scalar>
struct ScaledParameters {
  void *x, *w, *z, *y;
  long long items, threads;
  Scalar scalars[kScalars];
};

template <class Step, class Parameters>
KRONOP_INLINE void scaled(const Parameters& parameters) {
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  const long long item = (long long)blockIdx.x * Step::kThreads + threadIdx.x;
  if (item >= parameters.items) return;
  const auto x = convert<Accumulator>(static_cast<const Input*>(parameters.x)[item]);
  const auto w = convert<Accumulator>(static_cast<const Input*>(parameters.w)[item]);
  const Output z = parameters.z ? static_cast<const Output*>(parameters.z)[item] : Output{};
  static_cast<Output*>(parameters.y)[item] = Finish<Step>(parameters)(x * w, z);
}

}  // namespace kronop
