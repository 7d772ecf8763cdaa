// Convolutions of CUTLASS 2.x as implicit matrix products, for sm_80 and all later GPUs: CUTLASS's
// iterators, main loops and epilogues, with tiles, groups and split-K slices handled by this
// kernel.
//
// CUTLASS's own kernels take a parameter struct that their host code computes. Here one thread
// computes the few parameters of the iterators, from plain numbers, in shared memory.
#pragma once

#include "kronop/cutlass_epilogues.cuh"
#include "kronop/cutlass_interleaved_columns.cuh"
#include "kronop/cutlass_place.cuh"
#include "kronop/cutlass_slices.cuh"

#include <cutlass/conv/kernel/default_conv2d_dgrad.h>
#include <cutlass/conv/kernel/default_conv2d_fprop.h>
#include <cutlass/conv/kernel/default_conv2d_wgrad.h>

#include "cutlass_conv2d_parameters.cuh"

namespace kronop {
namespace cutlass_kernels {

namespace conv = cutlass::conv;

template <conv::IteratorAlgorithm kValue>
struct IteratorWord {
  static constexpr conv::IteratorAlgorithm kAlgorithm = kValue;
};

// CUTLASS's templates for the three kinds. `Types` has the main loop and the epilogue of a functor.
//
// Results of fprop have one stride for all pixels, which CUTLASS calls unity strides: the strides
// of the convolution itself may be any.
struct Fprop {
  static constexpr bool kStridedRows = false;
  template <class S, class Functor>
  using Types = conv::kernel::DefaultConv2dFprop<
      typename S::ElementA, typename S::LayoutA, typename S::ElementB, typename S::LayoutB,
      typename Functor::ElementOutput, typename S::LayoutC, typename S::ElementAccumulator,
      typename S::OperatorClass, cutlass::arch::Sm80, typename S::Tile, typename S::WarpTile,
      typename S::Instruction, Functor, void, S::kStages, typename S::Operator,
      S::Iterator::kAlgorithm, conv::StrideSupport::kUnity, S::kAlignmentA, S::kAlignmentB>;
};
template <conv::StrideSupport kStrides>
struct Dgrad {
  // Rows of a tile are pixels of images to which the same pixels of filters contribute.
  static constexpr bool kStridedRows = kStrides == conv::StrideSupport::kStrided;
  template <class S, class Functor>
  using Types = conv::kernel::DefaultConv2dDgrad<
      typename S::ElementA, typename S::LayoutA, typename S::ElementB, typename S::LayoutB,
      typename Functor::ElementOutput, typename S::LayoutC, typename S::ElementAccumulator,
      typename S::OperatorClass, cutlass::arch::Sm80, typename S::Tile, typename S::WarpTile,
      typename S::Instruction, Functor, void, S::kStages, typename S::Operator,
      S::Iterator::kAlgorithm, kStrides, S::kAlignmentA, S::kAlignmentB>;
};
using UnityDgrad = Dgrad<conv::StrideSupport::kUnity>;
using StridedDgrad = Dgrad<conv::StrideSupport::kStrided>;
struct Wgrad {
  static constexpr bool kStridedRows = false;
  template <class S, class Functor>
  using Types = conv::kernel::DefaultConv2dWgrad<
      typename S::ElementA, typename S::LayoutA, typename S::ElementB, typename S::LayoutB,
      typename Functor::ElementOutput, typename S::LayoutC, typename S::ElementAccumulator,
      typename S::OperatorClass, cutlass::arch::Sm80, typename S::Tile, typename S::WarpTile,
      typename S::Instruction, Functor, void, S::kStages, typename S::Operator,
      S::Iterator::kAlgorithm, conv::StrideSupport::kStrided, S::kAlignmentA, S::kAlignmentB>;
};

// The main loop; for interleaved operands, CUTLASS's with another order of B's columns.
template <class Mma, bool kInterleaved>
struct ConvMainLoop {
  using Type = Mma;
};
template <class Shape, class IteratorA, class SharedA, cutlass::arch::CacheOperation::Kind kCacheA,
          class IteratorB, class SharedB, cutlass::arch::CacheOperation::Kind kCacheB, class Policy,
          int kStages>
struct ConvMainLoop<
    conv::threadblock::ImplicitGemmMultistage<Shape, IteratorA, SharedA, kCacheA, IteratorB,
                                              SharedB, kCacheB, Policy, kStages>,
    true> {
  using Type = conv::threadblock::ImplicitGemmMultistage<Shape, IteratorA, SharedA, kCacheA,
                                                         InOrderOfSums<IteratorB>, SharedB, kCacheB,
                                                         Policy, kStages>;
};

// Constants that follow from the planner's decisions.
template <class Decisions>
struct ConvStep : Decisions {
  static constexpr bool kInterleaved = Decisions::kInterleave > 1;
  static constexpr bool kStridedRows = Decisions::Kind::kStridedRows;
  static constexpr bool kSimt = cutlass::platform::is_same<typename Decisions::OperatorClass,
                                                           cutlass::arch::OpClassSimt>::value;
  using Tile = cutlass::gemm::GemmShape<Decisions::kTileM, Decisions::kTileN, Decisions::kTileK>;
  using WarpTile =
      cutlass::gemm::GemmShape<Decisions::kWarpM, Decisions::kWarpN, Decisions::kWarpK>;
  using Instruction = cutlass::gemm::GemmShape<Decisions::kInstructionM, Decisions::kInstructionN,
                                               Decisions::kInstructionK>;
  using Functor = RenderedFunctor<Decisions, Decisions::kAlignmentC>;
  using Types = typename Decisions::Kind::template Types<ConvStep, Functor>;
  using Mma = typename ConvMainLoop<typename Types::Mma, kInterleaved>::Type;
  using Epilogue = typename Types::Epilogue;
  using OutputIterator = typename Epilogue::OutputTileIterator;
};

template <class Parameters>
KRONOP_INLINE conv::Conv2dProblemSize size_of(const Parameters& p) {
  return conv::Conv2dProblemSize(
      p.images, p.h, p.w, p.c, p.k, p.r, p.s, p.p, p.q, p.pad_h, p.pad_w, p.stride_h, p.stride_w,
      p.dilation_h, p.dilation_w,
      p.flipped ? conv::Mode::kConvolution : conv::Mode::kCrossCorrelation, int(p.slices));
}

// Where a tile's rows begin among the pixels of images, and of filters, if rows are strided.
struct FirstPixel {
  int r, s;
  bool any;  // Whether there are such pixels in images.

  KRONOP_INLINE static FirstPixel of_tile(const conv::Conv2dProblemSize& size,
                                          const cutlass::FastDivmod& stride_h,
                                          const cutlass::FastDivmod& stride_w, int row,
                                          int tiles_of_each) {
    const int index = row / tiles_of_each;
    const int r = index / size.stride_w, s = index % size.stride_w;
    const bool flipped = size.mode == conv::Mode::kConvolution;
    int h, w;
    conv::strided_dgrad_starting_coords(size, stride_h, stride_w, flipped ? size.R - 1 - r : r,
                                        flipped ? size.S - 1 - s : s, h, w);
    return {r, s, h < size.H && w < size.W};
  }
};

// How an epilogue's iterator of tiles of results is made: for plain rows, strided rows and panels.
template <class Iterator, bool kStridedRows, bool kInterleaved>
struct Tiles {
  using Params = typename Iterator::Params;

  KRONOP_INLINE static Params params(const conv::Conv2dProblemSize&, long long leading, int) {
    return Params(cutlass::layout::RowMajor(leading));
  }
  template <class Known>
  KRONOP_INLINE static Iterator at(const Known& known, const Params& params,
                                   typename Iterator::Element* pointer, FirstPixel,
                                   cutlass::MatrixCoord start) {
    return Iterator(params, pointer, known.extent, threadIdx.x, start);
  }
};
template <class Iterator>
struct Tiles<Iterator, true, false> {
  using Params = typename Iterator::Params;

  KRONOP_INLINE static Params params(const conv::Conv2dProblemSize& size, long long leading,
                                     int rows) {
    return Params(cutlass::layout::RowMajor(leading), size, rows);
  }
  template <class Known>
  KRONOP_INLINE static Iterator at(const Known& known, const Params& params,
                                   typename Iterator::Element* pointer, FirstPixel first,
                                   cutlass::MatrixCoord start) {
    return Iterator(params, pointer, known.extent, threadIdx.x, known.stride_h, known.stride_w,
                    first.r, first.s, start);
  }
};
template <class Iterator>
struct Tiles<Iterator, false, true> {
  using Params = typename Iterator::Params;

  KRONOP_INLINE static Params params(const conv::Conv2dProblemSize& size, long long, int) {
    return Params(Iterator::Layout::packed(size.output_extent()));
  }
  template <class Known>
  KRONOP_INLINE static Iterator at(const Known& known, const Params& params,
                                   typename Iterator::Element* pointer, FirstPixel,
                                   cutlass::MatrixCoord start) {
    return Iterator(params, pointer, known.size.output_extent(), threadIdx.x, start);
  }
};
template <class Step, class Epilogue>
using TilesOf =
    Tiles<typename Epilogue::OutputTileIterator, Step::kStridedRows, Step::kInterleaved>;

// Split-K slices store rows of sums.
template <class Step, bool = Step::kInterleaved>
struct ConvSlices {
  using Sum = typename Step::ElementAccumulator;
  static constexpr int kWidth = Step::kSimt ? 1 : 16 / int(sizeof(Sum));
  using Functor = SumFunctor<Sum, kWidth>;
  using Epilogue = typename Step::Kind::template Types<Step, Functor>::Epilogue;
  using Places = TilesOf<Step, Epilogue>;
  template <class Known>
  KRONOP_INLINE static void store(typename Epilogue::SharedStorage& room, const Known& known,
                                  const conv::Conv2dProblemSize& size, long long leading,
                                  FirstPixel first, cutlass::MatrixCoord start, int warp,
                                  const typename Step::Mma::FragmentC& sums) {
    const auto of_partial = Places::params(size, leading, Step::kTileM);
    const auto result = Places::at(known, of_partial, known.partial, first, start);
    Epilogue epilogue(room, threadIdx.x, warp, threadIdx.x % 32);
    epilogue(Functor(), result, sums, result);
  }
};

// Interleaved convolutions have no split-K.
template <class Step>
struct ConvSlices<Step, true> {
  struct Epilogue {
    struct SharedStorage {};
  };
  template <class... Any>
  KRONOP_INLINE static void store(const Any&...) {}
};

// What one thread computes for all threads.
template <class Step>
struct ConvPrepared {
  conv::Conv2dProblemSize size;
  typename Step::Mma::IteratorA::Params of_a;
  typename Step::Mma::IteratorB::Params of_b;
  cutlass::FastDivmod stride_h, stride_w;
  cutlass::MatrixCoord extent;
  typename Step::ElementA* a;
  typename Step::ElementB* b;
  typename Step::ElementOutput *source, *result;
  typename Step::ElementAccumulator* partial;

  template <class Parameters>
  KRONOP_INLINE void compute(const Parameters& p, int group, int slice) {
    size = size_of(p);
    of_a = Step::Mma::IteratorA::getParams(size, layout_a(p));
    of_b = typename Step::Mma::IteratorB::Params(size, layout_b(p));
    stride_h = cutlass::FastDivmod(size.stride_h);
    stride_w = cutlass::FastDivmod(size.stride_w);
    extent = cutlass::MatrixCoord(int(p.m), int(p.n));
    a = static_cast<typename Step::ElementA*>(p.a) + group * p.a_group;
    b = static_cast<typename Step::ElementB*>(p.b) + group * p.b_group;
    source = static_cast<typename Step::ElementOutput*>(p.source) + group * p.source_group;
    result = static_cast<typename Step::ElementOutput*>(p.result) + group * p.result_group;
    partial =
        static_cast<typename Step::ElementAccumulator*>(p.partial) + slice * p.m * p.ld_partial;
  }

 private:
  template <class Parameters>
  KRONOP_INLINE auto layout_a(const Parameters& p) const {
    if constexpr (Step::kInterleaved)
      return Step::LayoutA::packed(size.activation_extent());
    else
      return typename Step::LayoutA(int(p.a_steps[0]), int(p.a_steps[1]), int(p.a_steps[2]));
  }
  template <class Parameters>
  KRONOP_INLINE auto layout_b(const Parameters& p) const {
    if constexpr (Step::kInterleaved)
      return Step::LayoutB::packed(size.filter_extent());
    else
      return typename Step::LayoutB(int(p.b_steps[0]), int(p.b_steps[1]), int(p.b_steps[2]));
  }
};

// Dynamic shared memory: shared by main loop and epilogue, which do not overlap.
template <class Step>
struct ConvRoom {
  union {
    typename Step::Mma::SharedStorage products;
    typename Step::Epilogue::SharedStorage results;
    typename ConvSlices<Step>::Epilogue::SharedStorage partial;
  };
  ConvPrepared<Step> prepared;
};

// Adds up the products of a tile, in a slice whose first index is `start`.
template <class Step, class Parameters>
KRONOP_INLINE void multiply(ConvRoom<Step>& room, const Parameters& p, FirstPixel first, int row,
                            int column, int start, int warp, typename Step::Mma::FragmentC& sums) {
  using Mma = typename Step::Mma;
  const ConvPrepared<Step>& known = room.prepared;
  const conv::Conv2dProblemSize size = size_of(p);
  const int thread = threadIdx.x;
  Mma mma(room.products, thread, warp, thread % 32);
  const cutlass::MatrixCoord of_a(row, start), of_b(start, column);
  if constexpr (Step::kStridedRows) {
    if (first.r >= size.R || first.s >= size.S) return;
    typename Mma::IteratorA a(known.of_a, size, known.a, thread, known.stride_h, known.stride_w,
                              first.r, first.s, of_a);
    typename Mma::IteratorB b(known.of_b, size, known.b, thread, first.r, first.s, of_b);
    mma(int(p.depth) * size.num_gemm_k_filter_positions(first.r, first.s), sums, a, b, sums);
  } else {
    typename Mma::IteratorA a(known.of_a, size, known.a, thread, of_a);
    typename Mma::IteratorB b(known.of_b, size, known.b, thread, of_b);
    mma(int(p.depth * p.taps), sums, a, b, sums);
  }
}

}  // namespace cutlass_kernels

template <class Decisions, class Parameters>
KRONOP_INLINE void cutlass_conv2d(const Parameters& p) {
  using namespace cutlass_kernels;
  using Step = ConvStep<Decisions>;
  using Mma = typename Step::Mma;
  static_assert(sizeof(ConvRoom<Step>) <= Decisions::kSharedBytes,
                "the planner counts too little shared memory");
  static_assert(Decisions::kThreads == 32 * Mma::WarpCount::kCount,
                "the planner counts other threads");
  extern __shared__ __align__(16) char memory[];
  ConvRoom<Step>& room = *reinterpret_cast<ConvRoom<Step>*>(memory);

  if (p.adds_up) {
    add_slices<Decisions>(p);
    return;
  }
  const Place place = Place::of_block<Step::kSwizzle>(int(p.row_tiles), int(p.column_tiles));
  const int slice = p.partial ? place.index : 0;
  if (threadIdx.x == 0) room.prepared.compute(p, p.partial ? 0 : place.index, slice);
  __syncthreads();
  const ConvPrepared<Step>& known = room.prepared;

  FirstPixel first{0, 0, true};
  if constexpr (Step::kStridedRows)
    first = FirstPixel::of_tile(size_of(p), known.stride_h, known.stride_w, place.row,
                                int(p.row_tiles / (p.stride_h * p.stride_w)));
  if (!first.any) return;
  const int row = place.row * Step::kTileM, column = place.column * Step::kTileN;
  const int warp = cutlass::canonical_warp_idx_sync();
  typename Mma::FragmentC sums;
  sums.clear();
  multiply<Step>(room, p, first, row, column, slice * Step::kTileK, warp, sums);
  __syncthreads();

  const cutlass::MatrixCoord start(row, column);
  const conv::Conv2dProblemSize size = size_of(p);
  if (p.partial) {
    ConvSlices<Step>::store(room.partial, known, size, p.ld_partial, first, start, warp, sums);
  } else {
    using Places = TilesOf<Step, typename Step::Epilogue>;
    const auto of_source = Places::params(size, p.ld_source, Step::kTileM);
    const auto of_result = Places::params(size, p.ld_result, Step::kTileM);
    const auto source = Places::at(known, of_source, known.source, first, start);
    const auto result = Places::at(known, of_result, known.result, first, start);
    typename Step::Epilogue epilogue(room.results, threadIdx.x, warp, threadIdx.x % 32);
    epilogue(typename Step::Functor(p.scalars, p.source != nullptr), result, sums, source);
  }
}

}  // namespace kronop
