// Kernels of pairs of points that follow from inner products, on the tensor cores of sm_90a:
//
//     sum over k of (x1[m, k] - x2[n, k])^2 = |x1[m]|^2 + |x2[n]|^2 - 2 x1[m] x2[n]
//
// distance_pack.cuh has left images and norms of all points in the workspace. Blocks are
// persistent. One producer warp loads images, with a bulk copy each, into a ring of stages; two
// consumer warp groups multiply them, 64 rows each, and compute results from the sums.
#pragma once

#include "distance_warp_group_results.cuh"
#include "distance_warp_group_sums.cuh"

namespace kronop {
namespace distance {

// Each of a warp's first threads copies one image of a stage, and its points' facts. Out of bounds
// images are not copied: stale data only enters sums that are never stored.
template <class Step, class Parameters>
KRONOP_INLINE void fill_stages(const Parameters& parameters, WarpGroupRoom<Step>& room) {
  using Room = WarpGroupRoom<Step>;
  constexpr int of_rows = Step::kTileM / kGranule, facts_bytes = kGranule * int(sizeof(Facts));
  const int part = threadIdx.x % kTeam;
  if (part >= Room::kParts) return;
  const bool is_row = part < of_rows;
  const long long granules = granules_of(is_row ? parameters.m : parameters.n),
                  slabs = ceil_div(parameters.k, kSlab<Step>);
  const auto* images =
      static_cast<const unsigned char*>(is_row ? parameters.images1 : parameters.images2);
  const auto* facts = static_cast<const Facts*>(is_row ? parameters.facts1 : parameters.facts2);
  const auto bring = [](Barrier& filled, bool there, void* to, const void* from, int bytes) {
    if (there) {
      filled.arrive_with(to, from, bytes);
    } else {
      filled.arrive();
    }
  };
  Turn<Step::kStages> turn;
  Turn<Room::kBuffers> buffer;
  wait_for_launch_before();
#pragma unroll 1
  for (WarpGroupWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const long long problem =
        packed_problem(parameters, walk.problem, is_row ? parameters.packed1 : parameters.packed2);
    const long long within = is_row ? walk.row * of_rows + part
                                    : walk.column * (Step::kTileN / kGranule) + (part - of_rows);
    const bool there = within < granules;
    const long long granule = problem * granules + within;
    const unsigned char* image = images + granule * slabs * kImage;
    // In the first round all stages and buffers are free.
    room.facts_free[buffer.stage].wait(buffer.parity ^ 1);
    bring(room.facts_filled[buffer.stage], there, room.facts[buffer.stage][part],
          facts + granule * kGranule, facts_bytes);
    buffer.advance();
#pragma unroll 1
    for (long long slab = 0; slab < slabs; ++slab) {
      room.free[turn.stage].wait(turn.parity ^ 1);
      bring(room.filled[turn.stage], there, room.stages[turn.stage] + part * kImage, image, kImage);
      image += kImage;
      turn.advance();
    }
  }
}

template <class Step, class Parameters>
KRONOP_INLINE void use_stages(const Parameters& parameters, WarpGroupRoom<Step>& room) {
  const long long slabs = ceil_div(parameters.k, kSlab<Step>);
  const WarpGroupResults<Step, Parameters> results(parameters);
  WarpGroupStages<Step> stages(room);
  Turn<WarpGroupRoom<Step>::kBuffers> buffer;
#pragma unroll 1
  for (WarpGroupWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    WarpGroupSums<Step> sums;
    sums.add_up(slabs, stages);
    room.facts_filled[buffer.stage].wait(buffer.parity);
    results.write(walk, sums.of, room.facts[buffer.stage][0]);
    wait_for_warp();
    if (threadIdx.x % 32 == 0) room.facts_free[buffer.stage].arrive();
    buffer.advance();
  }
}

}  // namespace distance

template <class Step, class Parameters>
KRONOP_INLINE void distance_warp_group(const Parameters& parameters) {
  auto& room = *reinterpret_cast<distance::WarpGroupRoom<Step>*>(shared_memory());
  static_assert(sizeof(room) == Step::kSharedBytes);
  if (threadIdx.x == 0) {
    room.begin();
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < Step::kTileM * 2) {
    take_registers<Step::kProductRegisters>();
    distance::use_stages<Step>(parameters, room);
  } else {
    give_registers_back<Step::kCopyRegisters>();
    distance::fill_stages<Step>(parameters, room);
  }
}

}  // namespace kronop
