// Convolutions of CUTLASS 3.x as implicit matrix products, for sm_90a: one warp group copies, of
// images by tensor maps of pixels (im2col), and one multiplies and stores its results from
// registers.
#pragma once

#include "kronop/hopper_prelude.cuh"

#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

// CuTe's header encodes maps of pixels in a function of the host's, by the driver if CUDA is 12 or
// later. Maps are passed here, but what else this function computes is needed. NVRTC can't push
// macros and pop them.
#if __CUDACC_VER_MAJOR__ == 12
#define KRONOP_CUDACC_MAJOR 12
#else
#define KRONOP_CUDACC_MAJOR 13
#endif
#undef __CUDACC_VER_MAJOR__
#undef CUTE_HOST
#define __CUDACC_VER_MAJOR__ 11
#define CUTE_HOST CUTE_HOST_DEVICE
#define Im2ColTmaDescriptor TmaDescriptor
#include <cute/atom/copy_traits_sm90_im2col.hpp>
#undef Im2ColTmaDescriptor
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ KRONOP_CUDACC_MAJOR

#include <cutlass/conv/collective/collective_builder.hpp>

#include "kronop/hopper_adapters.cuh"
#include "hopper_conv2d_parameters.cuh"

namespace kronop {
namespace cutlass_kernels {

namespace conv = cutlass::conv;

template <conv::Operator kValue>
struct Kind {
  static constexpr conv::Operator kOperator = kValue;
};

template <class Decisions>
struct HopperConv2dStep : Decisions {
  static constexpr conv::Operator kOperator = Decisions::Kind::kOperator;
  static constexpr bool kWgrad = kOperator == conv::Operator::kWgrad;
  using Element = typename Decisions::Element;
  // Sums run over channels and pixels of a filter, and so do columns of wgrad: tiles are of
  // channels alone.
  using Columns = cute::Int<Decisions::kTileN>;
  using Tile = cute::Shape<cute::Int<Decisions::kTileM>,
                           cute::conditional_t<kWgrad, cute::Shape<Columns>, Columns>,
                           cute::Shape<cute::Int<Decisions::kTileK>>>;
  using Cluster =
      cute::Shape<cute::Int<Decisions::kCluster>, cute::Int<Decisions::kClusterN>, cute::_1>;
  static constexpr int kAlignment = 16 / int(sizeof(Element));
  using MainLoop = typename conv::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, kOperator, Element,
      cutlass::layout::TensorNHWC, kAlignment, Element, cutlass::layout::TensorNHWC, kAlignment,
      typename Decisions::ElementAccumulator, Tile, Cluster,
      conv::collective::StageCount<Decisions::kStages>,
      conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;
  // Strides of results: rows, columns (of wgrad channels, S and R), problems (there is one).
  using ColumnStrides = cute::Stride<long long, long long, long long>;
  using Strides =
      cute::Stride<long long, cute::conditional_t<kWgrad, ColumnStrides, long long>, cute::Int<0>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<conv::ConvProblemShape<kOperator, 2>,
                                                      MainLoop, HopperEpilogue<Decisions, Strides>>;
  using Params = typename Kernel::Params;
  using Arguments = typename Kernel::Arguments;

  static KRONOP_INLINE Strides strides(long long row, long long column, int c, int s) {
    if constexpr (kWgrad) {
      return {row, {column, c * column, (long long)s * c * column}, {}};
    } else {
      return {row, column, {}};
    }
  }

  template <class Parameters>
  static KRONOP_INLINE Arguments arguments(const Parameters& p) {
    Arguments found{};
    auto& shape = found.problem_shape;
    const int n = p.images, h = p.h, w = p.w, c = p.c, k = p.k, r = p.r, s = p.s;
    shape.mode = conv::Mode::kCrossCorrelation;
    shape.traversal_stride = {int(p.stride_h), int(p.stride_w)};
    shape.dilation = {int(p.dilation_h), int(p.dilation_w)};
    shape.lower_padding = {int(p.pad_h), int(p.pad_w)};
    // What the last pixel of a result meets beyond the end of an image.
    shape.upper_padding = {
        int((p.p - 1) * p.stride_h - p.pad_h + (r - 1) * p.dilation_h - (h - 1)),
        int((p.q - 1) * p.stride_w - p.pad_w + (s - 1) * p.dilation_w - (w - 1))};
    shape.set_shape_stride_ABC({n, h, w, c}, {}, {k, r, s, c}, {}, {n, int(p.p), int(p.q), k}, {});
    place_results(found.epilogue, p, strides(p.result_row, p.result_column, c, s),
                  strides(p.source_row, p.source_column, c, s));
    return found;
  }
};

}  // namespace cutlass_kernels

template <class Decisions, class Parameters>
KRONOP_INLINE void hopper_conv2d(const Parameters& p) {
  cutlass_kernels::run_prepared<cutlass_kernels::HopperConv2dStep<Decisions>>(p);
}

}  // namespace kronop
