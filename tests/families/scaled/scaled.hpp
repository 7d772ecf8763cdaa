// Y = epilogue(X * W), shared among threads.
#pragma once

#include "kronop_x86/numeric.hpp"
#include "kronop_x86/parallel.hpp"

namespace kronop {

template <int kScalars, class Scalar>
struct ScaledParameters {
  void *x, *w, *z, *y;
  index_t items, threads;
  Scalar scalars[kScalars];
};

template <class Step, class Parameters>
int scaled(const Parameters& parameters, bool alone) {
  using Input = typename Step::Input;
  using Output = typename Step::Output;
  using Accumulator = typename Step::Accumulator;
  using Compute = typename Step::Epilogue::Compute;
  const typename Step::Epilogue epilogue(parameters.scalars);
  share_out(parameters.items, parameters.threads, alone, [&](index_t, index_t first, index_t end) {
    for (index_t item = first; item < end; ++item) {
      const auto x = convert<Accumulator>(static_cast<const Input*>(parameters.x)[item]);
      const auto w = convert<Accumulator>(static_cast<const Input*>(parameters.w)[item]);
      const auto z = parameters.z ? convert<Compute>(static_cast<const Output*>(parameters.z)[item])
                                  : Compute{};
      const auto result = epilogue(convert<Compute>(x * w), z, Compute{});
      static_cast<Output*>(parameters.y)[item] = convert<Output>(result);
    }
  });
  return 0;
}

}  // namespace kronop
