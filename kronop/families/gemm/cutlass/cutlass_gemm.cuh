// Matrix products of CUTLASS 2.x, for sm_80 and all later GPUs: CUTLASS's main loops and epilogues,
// with tiles, batches and split-K slices handled by this kernel.
//
// CUTLASS's own kernels take a parameter struct that their host code computes. Here one thread
// computes the few parameters of the iterators, from plain numbers, in shared memory.
#pragma once

#include "kronop/cutlass_epilogues.cuh"
#include "kronop/cutlass_interleaved_columns.cuh"
#include "kronop/cutlass_place.cuh"
#include "kronop/cutlass_slices.cuh"

#include <cutlass/gemm/threadblock/default_mma.h>

#include "cutlass_parameters.cuh"

namespace kronop {
namespace cutlass_kernels {

namespace threadblock = cutlass::gemm::threadblock;

// The main loop; for interleaved operands, CUTLASS's with another order of B's columns.
template <class Mma, bool kInterleaved>
struct MainLoop {
  using Type = Mma;
};
template <class Shape, class IteratorA, class SharedA, cutlass::arch::CacheOperation::Kind kCacheA,
          class IteratorB, class SharedB, cutlass::arch::CacheOperation::Kind kCacheB, class Sum,
          class Layout, class Policy, int kStages>
struct MainLoop<threadblock::MmaMultistage<Shape, IteratorA, SharedA, kCacheA, IteratorB, SharedB,
                                           kCacheB, Sum, Layout, Policy, kStages>,
                true> {
  using Type =
      threadblock::MmaMultistage<Shape, IteratorA, SharedA, kCacheA, InOrderOfSums<IteratorB>,
                                 SharedB, kCacheB, Sum, Layout, Policy, kStages>;
};

// Constants that follow from the planner's decisions.
template <class Decisions>
struct GemmStep : Decisions {
  static constexpr bool kInterleaved = Decisions::kInterleave > 1;
  static constexpr bool kSimt = cutlass::platform::is_same<typename Decisions::OperatorClass,
                                                           cutlass::arch::OpClassSimt>::value;
  static constexpr int kPartitions = Decisions::kTileK / Decisions::kWarpK;
  using Tile = cutlass::gemm::GemmShape<Decisions::kTileM, Decisions::kTileN, Decisions::kTileK>;
  using WarpTile =
      cutlass::gemm::GemmShape<Decisions::kWarpM, Decisions::kWarpN, Decisions::kWarpK>;
  using Instruction = cutlass::gemm::GemmShape<Decisions::kInstructionM, Decisions::kInstructionN,
                                               Decisions::kInstructionK>;
  using PlainMma = typename threadblock::DefaultMma<
      typename Decisions::ElementA, typename Decisions::LayoutA, Decisions::kAlignmentA,
      typename Decisions::ElementB, typename Decisions::LayoutB, Decisions::kAlignmentB,
      typename Decisions::ElementAccumulator, typename Decisions::LayoutC,
      typename Decisions::OperatorClass, cutlass::arch::Sm80, Tile, WarpTile, Instruction,
      Decisions::kStages, typename Decisions::Operator, kInterleaved>::ThreadblockMma;
  using Mma = typename MainLoop<PlainMma, kInterleaved>::Type;
  using Functor = RenderedFunctor<Decisions, Decisions::kAlignmentC>;
  using Epilogue =
      typename EpilogueOf<GemmStep, typename Decisions::OperatorClass, kInterleaved, Functor>::Type;
  using OutputIterator = typename Epilogue::OutputTileIterator;
};

// Split-K slices store rows of sums.
template <class Step, bool = Step::kInterleaved>
struct Slices {
  using Sum = typename Step::ElementAccumulator;
  static constexpr int kWidth = Step::kSimt ? 1 : 16 / int(sizeof(Sum));
  using Functor = SumFunctor<Sum, kWidth>;
  using Epilogue = typename EpilogueOf<Step, typename Step::OperatorClass, false, Functor>::Type;
  using Output = typename Epilogue::OutputTileIterator;
  using Params = typename Output::Params;

  template <class Parameters>
  KRONOP_INLINE static Params params(const Parameters& p) {
    return Params(cutlass::layout::RowMajor(p.ld_partial));
  }
  template <class Known>
  KRONOP_INLINE static void store(typename Epilogue::SharedStorage& room, const Known& known,
                                  cutlass::MatrixCoord extent, cutlass::MatrixCoord start,
                                  int thread, int warp, int lane,
                                  const typename Step::Mma::FragmentC& sums) {
    const Output result(known.of_partial, known.partial, extent, thread, start);
    Epilogue epilogue(room, thread, warp, lane);
    epilogue(Functor(), result, sums, result);
  }
};

// Interleaved products have no split-K.
template <class Step>
struct Slices<Step, true> {
  struct Params {};
  struct Epilogue {
    struct SharedStorage {};
  };
  template <class Parameters>
  KRONOP_INLINE static Params params(const Parameters&) {
    return {};
  }
  template <class... Any>
  KRONOP_INLINE static void store(const Any&...) {}
};

// The offset of a problem of the batch from the first.
KRONOP_INLINE long long distance_to(int problem, const long long (&extents)[kBatchDims],
                                    const long long (&strides)[kBatchDims]) {
  long long left = problem, found = 0;
#pragma unroll
  for (int i = kBatchDims - 1; i >= 0; --i) {
    found += left % extents[i] * strides[i];
    left /= extents[i];
  }
  return found;
}

// What one thread computes for all threads.
template <class Step>
struct Prepared {
  using Slicing = Slices<Step>;
  typename Step::Mma::IteratorA::Params of_a;
  typename Step::Mma::IteratorB::Params of_b;
  typename Step::OutputIterator::Params of_source, of_result;
  typename Slicing::Params of_partial;
  typename Step::ElementA* a;
  typename Step::ElementB* b;
  typename Step::ElementOutput *source, *result;
  typename Step::ElementAccumulator* partial;

  template <class Parameters>
  KRONOP_INLINE void compute(const Parameters& p, int problem) {
    using OutputLayout = typename Step::LayoutC;
    of_a = typename Step::Mma::IteratorA::Params(typename Step::LayoutA(p.ld_a));
    of_b = typename Step::Mma::IteratorB::Params(typename Step::LayoutB(p.ld_b));
    of_source = typename Step::OutputIterator::Params(OutputLayout(p.ld_source));
    of_result = typename Step::OutputIterator::Params(OutputLayout(p.ld_result));
    of_partial = Slicing::params(p);
    const int slice = p.partial ? problem : 0, member = p.partial ? 0 : problem;
    a = static_cast<typename Step::ElementA*>(p.a) + distance_to(member, p.batch, p.a_batch);
    b = static_cast<typename Step::ElementB*>(p.b) + distance_to(member, p.batch, p.b_batch);
    source = static_cast<typename Step::ElementOutput*>(p.source) +
             distance_to(member, p.batch, p.source_batch);
    result = static_cast<typename Step::ElementOutput*>(p.result) +
             distance_to(member, p.batch, p.result_batch);
    partial =
        static_cast<typename Step::ElementAccumulator*>(p.partial) + slice * p.m * p.ld_partial;
  }
};

// Dynamic shared memory: shared by main loop and epilogue, which do not overlap.
template <class Step>
struct Room {
  union {
    typename Step::Mma::SharedStorage products;
    typename Step::Epilogue::SharedStorage results;
    typename Slices<Step>::Epilogue::SharedStorage partial;
  };
  Prepared<Step> prepared;
};

}  // namespace cutlass_kernels

template <class Decisions, class Parameters>
KRONOP_INLINE void cutlass_gemm(const Parameters& p) {
  using namespace cutlass_kernels;
  using Step = GemmStep<Decisions>;
  using Mma = typename Step::Mma;
  static_assert(sizeof(Room<Step>) <= Decisions::kSharedBytes,
                "the planner counts too little shared memory");
  static_assert(Decisions::kThreads == 32 * Mma::WarpCount::kCount,
                "the planner counts other threads");
  extern __shared__ __align__(16) char memory[];
  Room<Step>& room = *reinterpret_cast<Room<Step>*>(memory);

  if (p.adds_up) {
    add_slices<Decisions>(p);
    return;
  }
  const int rows = int((p.m + Step::kTileM - 1) / Step::kTileM),
            columns = int((p.n + Step::kTileN - 1) / Step::kTileN);
  const Place place = Place::of_block<Step::kSwizzle>(rows, columns);
  if (threadIdx.x == 0) room.prepared.compute(p, place.index);
  __syncthreads();
  const Prepared<Step>& known = room.prepared;

  const int first = p.partial ? place.index * int(p.depth) : 0;
  const int left = int(p.k) - first, depth = p.partial && left > p.depth ? int(p.depth) : left;
  const int m = int(p.m), n = int(p.n), row = place.row * Step::kTileM,
            column = place.column * Step::kTileN;
  const int thread = threadIdx.x, warp = cutlass::canonical_warp_idx_sync(),
            lane = threadIdx.x % 32;
  typename Mma::IteratorA a(known.of_a, known.a, {m, first + depth}, thread, {row, first});
  const cutlass::MatrixCoord extent_b(first + depth, n), start_b(first, column);
  typename Mma::IteratorB b(known.of_b, known.b, extent_b, thread, start_b);
  typename Mma::FragmentC sums;
  sums.clear();
  {
    Mma mma(room.products, thread, warp, lane);
    const int slabs = (depth + Step::kTileK - 1) / Step::kTileK;
    if (slabs > 0) mma(slabs, sums, a, b, sums);
  }
  __syncthreads();

  const cutlass::MatrixCoord extent(m, n), start(row, column);
  if (p.partial) {
    Slices<Step>::store(room.partial, known, extent, start, thread, warp, lane, sums);
  } else {
    using Output = typename Step::OutputIterator;
    const Output source(known.of_source, known.source, extent, thread, start);
    const Output result(known.of_result, known.result, extent, thread, start);
    typename Step::Epilogue epilogue(room.results, thread, warp, lane);
    epilogue(typename Step::Functor(p.scalars, p.source != nullptr), result, sums, source);
  }
}

}  // namespace kronop
