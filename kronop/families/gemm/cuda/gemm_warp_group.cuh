// Matrix products by warp groups of sm_90a (wgmma), whose operands TMA copies.
//
// Blocks are persistent and warp-specialised: a producer warp copies slabs of A and B into a ring
// of stages; two consumer warp groups (teams) multiply them and store results, while the slabs of
// the next tile are already being copied. The teams share each tile (cooperative), or alternate
// tiles (kAlternate, ping-pong): then one multiplies while the other stores. Blocks of a cluster
// have tiles below each other, and each multicasts its share of B.
//
// A slab has 128 bytes of contracted elements. If a 16-bit operand is contiguous along its other
// index instead (kTurned), 64 of these are a line of 128 bytes.
//
// float32 as three TF32 products (kSplit): gemm_split.cuh has left two planes of both operands in
// the workspace, values and remainders. A slab has both planes. If both operands are contiguous
// along their other index, as those of a wgrad are, gemm_warp_group_planes.cuh splits them in
// shared memory instead.
#pragma once

#include "gemm_warp_group_mma.cuh"
#include "gemm_warp_group_planes.cuh"
#include "gemm_warp_group_visitor.cuh"

namespace kronop {
namespace gemm {

// The tiles of a persistent block, for each problem of a grouped GEMM: first a column of the band
// of kBand tiles along M, then the next column, so that concurrent blocks share operands in the
// level-2 cache.
template <class Step, class Parameters>
class WarpGroupWalk {
 public:
  using Member = typename Parameters::Member;
  int row = 0, column = 0, problem = 0, turn = 0;

  KRONOP_INLINE explicit WarpGroupWalk(const Parameters& parameters)
      : p_(parameters), at_(blockIdx.x / Step::kCluster) {
    measure();
    find();
  }
  KRONOP_INLINE bool more() const { return member_ < p_.count(); }
  KRONOP_INLINE const Member& member() const { return p_.member(member_); }
  KRONOP_INLINE int slabs() const { return int(ceil_div(member().k, Step::kSlab)); }
  KRONOP_INLINE void advance() {
    at_ += gridDim.x / Step::kCluster;
    ++turn;
    find();
  }

 private:
  KRONOP_INLINE void measure() {
    across_ = int(ceil_div(member().m, Step::kTileM * Step::kCluster));
    along_ = int(ceil_div(member().n, Step::kTileN));
    tiles_ = (long long)across_ * along_ * member().problems;
  }
  KRONOP_INLINE void find() {
    while (at_ >= tiles_) {
      at_ -= tiles_;
      if (++member_ == p_.count()) return;
      measure();
    }
    const int each = across_ * along_, index = int(at_ % each);
    problem = int(at_ / each);
    const int of_band = Step::kBand * along_, band = index / of_band, within = index % of_band;
    const int left = across_ - band * Step::kBand, rows = left < Step::kBand ? left : Step::kBand;
    row = (band * Step::kBand + within % rows) * Step::kCluster +
          (Step::kCluster > 1 ? cluster_rank() : 0);
    column = within / rows;
  }

  const Parameters& p_;
  long long at_, tiles_;  // relative to the problem's first tile
  int member_ = 0, across_, along_;
};

// Starts copies of `kCount` lines of an operand from `first` on, for the slab at k.
template <int kCount, bool kTurned, class Load>
KRONOP_INLINE void load_slab(unsigned char* to, int k, int first, Load load) {
  if constexpr (kTurned) {
#pragma unroll
    for (int part = 0; part < kCount / kLine; ++part)
      load(to + part * kBlock, first + part * kLine, k);
  } else {
    load(to, k, first);
  }
}

// Prefetches the tensor maps of the next tile, if it is of another problem: the first copy with a
// map waits until the map is loaded. With k = 0 there are no maps of operands.
template <class Walk>
KRONOP_INLINE void prefetch_next(Walk walk) {
  const auto* const own = &walk.member();
  walk.advance();
  if (!walk.more() || &walk.member() == own) return;
  if (walk.member().k > 0) {
    prefetch_map(walk.member().a_map);
    prefetch_map(walk.member().b_map);
  }
  if constexpr (requires { walk.member().y_map; }) {
    if (walk.member().maps_y) prefetch_map(walk.member().y_map);
  }
}

// Starts a copy of a share of B, to all blocks of the cluster.
template <class Step, int kAxes>
KRONOP_INLINE void load_share(void* to, const TensorMap& map, Barrier& filled,
                              const BoxPlace<kAxes>& place) {
  if constexpr (Step::kCluster > 1) {
    load_box_of_cluster(to, map, filled, place, (1u << Step::kCluster) - 1);
  } else {
    load_box(to, map, filled, place);
  }
}

// What copies fill: the stages that are multiplied, or those that are converted.
template <class Step>
KRONOP_INLINE auto& copied(WarpGroupRoom<Step>& room) {
  if constexpr (Step::kConverts) {
    return room.copies;
  } else {
    return room;
  }
}

// A feed brings the slabs of one tile in turn. This one brings boxes of matrices.
template <class Step, class Walk>
class BoxFeed {
 public:
  KRONOP_INLINE BoxFeed(const Walk& walk, int rank)
      : walk_(walk), p_(walk.member()), rank_(rank), a_problem_(p_.a_repeats ? 0 : walk.problem),
        b_problem_(p_.b_repeats ? 0 : walk.problem) {}

  KRONOP_INLINE void bring(int slab, unsigned char* stage, Barrier& filled) const {
#pragma unroll
    for (int plane = 0; plane < Step::kPlanes; ++plane) {
      const int of_a = a_problem_ * Step::kPlanes + plane,
                of_b = b_problem_ * Step::kPlanes + plane;
      unsigned char* const a = stage + plane * Step::kPlaneBytes;
      load_slab<Step::kTileM, Step::kTurnedA>(
          a, slab * Step::kSlab, walk_.row * Step::kTileM, [&](void* to, int along, int across) {
            load_box(to, p_.a_map, filled, BoxPlace{along, across, of_a});
          });
      unsigned char* const b = a + (Step::kTileM + rank_ * Step::kShare) * kLineBytes;
      load_slab<Step::kShare, Step::kTurnedB>(
          b, slab * Step::kSlab, walk_.column * Step::kTileN + rank_ * Step::kShare,
          [&](void* to, int along, int across) {
            load_share<Step>(to, p_.b_map, filled, BoxPlace{along, across, of_b});
          });
    }
  }

 private:
  const Walk& walk_;
  const typename Walk::Member& p_;
  int rank_, a_problem_, b_problem_;
};

template <class Step, template <class, class> class Feed, class Parameters>
KRONOP_INLINE void bring_slabs(const Parameters& parameters, WarpGroupRoom<Step>& room) {
  using Walk = WarpGroupWalk<Step, Parameters>;
  const int rank = Step::kCluster > 1 ? cluster_rank() : 0;
  auto& to = copied(room);
  Turn<int(sizeof(to.stages) / sizeof(to.stages[0]))> turn;
#pragma unroll 1
  for (Walk walk(parameters); walk.more(); walk.advance()) {
    if constexpr (requires { parameters.members; }) prefetch_next(walk);
    Feed<Step, Walk> feed(walk, rank);
    const int slabs = walk.slabs();
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab, turn.advance()) {
      // In the first round all stages are free.
      to.free[turn.stage].wait(turn.parity ^ 1);
      Barrier& filled = to.filled[turn.stage];
      expect_bytes(filled, sizeof(to.stages[0]));
      feed.bring(slab, to.stages[turn.stage], filled);
    }
  }
}

// Splits the slabs of all tiles in turn.
template <class Step, class Parameters>
KRONOP_INLINE void convert_slabs(const Parameters& parameters, WarpGroupRoom<Step>& room) {
  Turn<Step::kCopies> from;
  Turn<Step::kStages> to;
#pragma unroll 1
  for (WarpGroupWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const int slabs = walk.slabs();
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab, from.advance(), to.advance()) {
      room.copies.filled[from.stage].wait(from.parity);
      room.free[to.stage].wait(to.parity ^ 1);
      split_slab<Step>(room.copies.stages[from.stage], room.stages[to.stage]);
      publish_to_warp_group_products();
      wait_for_warp();
      if (threadIdx.x % 32 == 0) {
        room.filled[to.stage].arrive();
        room.copies.free[from.stage].arrive();
      }
    }
  }
}

// A team's accumulators: `sums` has kParts x 64 rows.
template <class Step>
struct WarpGroupSums {
  using Input = typename Step::Input;
  typename Step::Accumulator of[Step::kParts][Step::kTileN / 8][4];

  KRONOP_INLINE void add_up(int slabs, WarpGroupRoom<Step>& room, Turn<Step::kStages>& turn) {
    if constexpr (Step::kChained) {
      add_up_chains(slabs, room, turn);
    } else {
      add_up_slabs(slabs, room, turn);
    }
  }

 private:
  KRONOP_INLINE void add_up_slabs(int slabs, WarpGroupRoom<Step>& room, Turn<Step::kStages>& turn) {
    int before = 0;
    if (slabs == 0) clear();
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab, turn.advance()) {
      room.filled[turn.stage].wait(turn.parity);
      const WarpGroupMatrix a = left(room, turn.stage), b = right(room, turn.stage);
      begin_warp_group_products();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int part = 0; part < Step::kParts; ++part) {
          multiply(of[part], a.after(part * kBlock + step * (Step::kTurnedA ? 2048 : 32)),
                   b.after(step * (Step::kTurnedB ? 2048 : 32)), slab > 0 || step > 0);
        }
      }
      commit_warp_group_products();
      if (slab > 0) {
        wait_for_warp_group_products<1>();
        release(room, before);
      }
      before = turn.stage;
    }
    wait_for_warp_group_products<0>();
    if (slabs > 0) release(room, before);
  }

  // The MMAs of a slab are a chain of their own, small ones first, as everywhere (mma.cuh). NOTE:
  // tensor cores truncate instead of rounding, sums of 8-bit floats to about 14 bits, so chains are
  // added up here.
  KRONOP_INLINE void add_up_chains(int slabs, WarpGroupRoom<Step>& room,
                                   Turn<Step::kStages>& turn) {
    static_assert(Step::kParts == 1, "sums and a chain take as many registers");
    constexpr int rest = Step::kPlaneBytes;
    typename Step::Accumulator chain[Step::kTileN / 8][4];
    clear();
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab, turn.advance()) {
      room.filled[turn.stage].wait(turn.parity);
      begin_warp_group_products();
      if constexpr (Step::kConverts) {
        multiply_planes<Step>(chain, room.stages[turn.stage]);
      } else {
        const WarpGroupMatrix a = left(room, turn.stage), b = right(room, turn.stage);
        if constexpr (Step::kSplit) {
#pragma unroll
          for (int step = 0; step < 4; ++step) {
            multiply(chain, a.after(rest + step * 32), b.after(step * 32), step > 0);
            multiply(chain, a.after(step * 32), b.after(rest + step * 32), true);
          }
        }
#pragma unroll
        for (int step = 0; step < 4; ++step)
          multiply(chain, a.after(step * 32), b.after(step * 32), Step::kSplit || step > 0);
      }
      commit_warp_group_products();
      wait_for_warp_group_products<0>();
      release(room, turn.stage);
#pragma unroll
      for (int n = 0; n < Step::kTileN / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) of[0][n][e] = of[0][n][e] + chain[n][e];
      }
    }
  }

  // A team's rows of A in a stage, and B.
  KRONOP_INLINE static WarpGroupMatrix left(WarpGroupRoom<Step>& room, int stage) {
    const int team = Step::kAlternate ? 0 : threadIdx.x / kTeam;
    return {room.stages[stage] + team * Step::kParts * kBlock, 1024, kLineBytes};
  }
  KRONOP_INLINE static WarpGroupMatrix right(WarpGroupRoom<Step>& room, int stage) {
    return {room.stages[stage] + Step::kTileM * kLineBytes, 1024, kLineBytes, kBlock};
  }
  template <class Sums, class Place>
  KRONOP_INLINE static void multiply(Sums& sums, const Place& a, const Place& b, bool more) {
    if constexpr (sizeof(Input) == 2) {
      warp_group_product<Input, Step::kTurnedA, Step::kTurnedB>(sums, a, b, more);
    } else {
      product_of(sums, a, b, more, Input{});
    }
  }
  // Each warp releases the stage to all blocks of the cluster, which multicast to it.
  KRONOP_INLINE static void release(WarpGroupRoom<Step>& room, int stage) {
    const int lane = threadIdx.x % 32;
    if constexpr (Step::kCluster > 1) {
      if (lane < Step::kCluster) arrive_at(room.free[stage], lane);
    } else {
      if (lane == 0) room.free[stage].arrive();
    }
  }
  KRONOP_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < Step::kParts * Step::kTileN / 2; ++i)
      (&of[0][0][0])[i] = typename Step::Accumulator{};
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void use_slabs(const Parameters& parameters, WarpGroupRoom<Step>& room) {
  const int team = threadIdx.x / kTeam;
  typename WarpGroupEnd<Step, typename Parameters::Member>::Type results(parameters.member(0),
                                                                         room);
  Turn<Step::kStages> turn;
  unsigned parity = team == 0;  // Nobody is before the first tile.
#pragma unroll 1
  for (WarpGroupWalk<Step, Parameters> walk(parameters); walk.more(); walk.advance()) {
    const int slabs = walk.slabs();
    if (Step::kAlternate && walk.turn % Step::kTeams != team) {
      turn.skip(slabs);
      continue;
    }
    const int row = walk.row * Step::kTileM + (Step::kAlternate ? 0 : team * Step::kParts * 64),
              column = walk.column * Step::kTileN;
    results.prefetch(walk.member(), row, column, walk.problem);
    WarpGroupSums<Step> sums;
    // NOTE: a barrier only tells whether its last opening was odd or even. So a team waits for its
    // slabs only after the other one has waited for those before them.
    if constexpr (Step::kAlternate) room.order[team].wait(parity);
    sums.add_up(slabs, room, turn);
    if constexpr (Step::kAlternate) {
      if (threadIdx.x % 32 == 0) room.order[1 - team].arrive();
      parity ^= 1;
    }
    results.write(walk.member(), sums.of, row, column, walk.problem);
  }
  results.wait_for_reads();
}

// The kernel, with the feed of its operands.
template <class Step, template <class, class> class Feed, class Parameters>
KRONOP_INLINE void multiply_by_warp_groups(const Parameters& parameters) {
  if constexpr (kReduces<typename Step::Epilogue>) {
    const auto& p = parameters.member(0);
    using Visits = WarpGroupVisits<Step, typename Parameters::Member>;
    if (p.joins) return Visits::join(p, blockIdx.x);
  }
  auto& room = *reinterpret_cast<WarpGroupRoom<Step>*>(shared_memory());
  static_assert(sizeof(room) <= Step::kSharedBytes);
  if (threadIdx.x == 0) {
    room.begin();
    publish_barriers();
  }
  if constexpr (Step::kCluster > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  constexpr int copying = Step::kThreads - kTeam;
  if (threadIdx.x >= copying) {
    give_registers_back<Step::kCopyRegisters>();
    if (threadIdx.x == copying) bring_slabs<Step, Feed>(parameters, room);
  } else if (threadIdx.x >= Step::kTeams * kTeam) {
    if constexpr (Step::kConverts) {
      give_registers_back<Step::kConvertRegisters>();
      convert_slabs<Step>(parameters, room);
    }
  } else {
    take_registers<Step::kProductRegisters>();
    use_slabs<Step>(parameters, room);
  }
  // Other blocks still write to this one's stages, and arrive at its barriers.
  if constexpr (Step::kCluster > 1) leave_cluster();
}

}  // namespace gemm

template <class Decided, class Parameters>
KRONOP_INLINE void gemm_warp_group(const Parameters& parameters) {
  gemm::multiply_by_warp_groups<gemm::WarpGroupStep<Decided>, gemm::BoxFeed>(parameters);
}

}  // namespace kronop
