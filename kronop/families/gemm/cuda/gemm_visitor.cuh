// The end of a kernel for both kinds of epilogues: gemm_results.cuh, or a visitor tree.
#pragma once

#include "gemm_results.cuh"
#include "kronop/visitor_results.cuh"

namespace kronop {
namespace gemm {

static_assert(kBatchDims == kVisitedBatch);

template <class Step, class Parameters, class Layout>
struct ResultsFor {
  using Type = Results<Step, Parameters>;
};
template <class Step, class Parameters, class Layout>
  requires Visits<typename Step::Epilogue>
struct ResultsFor<Step, Parameters, Layout> {
  using Type = VisitorResults<Step, Parameters, Layout>;
};
template <class Step, class Parameters, class Layout>
using ResultsOf = typename ResultsFor<Step, Parameters, Layout>::Type;

}  // namespace gemm
}  // namespace kronop
