// The gradient of weights for many rows on sm_90a, in 16 bits: Y[p, q] = sum over rows of G[row, p]
// X[row, q], for many products. Blocks share the rows of a product.
//
// Blocks are persistent: each processes items (tile of p and q, product, share of the rows). Its
// last warps are producers, which copy the next stages into a ring. The others, in consumer warp
// groups (teams), multiply the stages and write their sums to the workspace, where add_shares.cuh
// adds up the shares. Both operands are multiplied from shared memory in their memory order,
// whether that is contiguous along their own index or along the rows, in lines of 128 bytes
// (warp_group_products.cuh): nothing is transposed.
// NOTE: the tensor cores truncate when they accumulate. Over the at most 2048 MMAs of a share that
// costs about 5e-5 of a sum, which is below the rounding of a 16-bit result.
#pragma once

#include "kronop/warp_group_tiles.cuh"

namespace kronop {

struct GradientWarpGroupParameters {
  void* x;
  void* g;
  void* partial;  // [share][product][p][q]
  long long rows, shares;
  long long x_own, g_own, x_row, g_row;
  long long matrix[3], x_matrix[3], g_matrix[3];  // independent products of the same sizes
};

namespace gradient {

// An operand in a stage: kTile indices of its own and kTileK rows, in lines. Lines are padded to
// whole rounds of the copying threads, so that a thread's lines have a constant stride.
template <class Step, int kTile>
struct Lines {
  using Element = typename Step::Factor;
  static constexpr bool kTurned =
      !Step::kAlongSums;  // a line is a part of one row, else rows of one index
  static constexpr int kLine = 64, kPiece = 8, kPieces = kLine / kPiece,
                       kAtOnce = Step::kCopyThreads / kPieces;
  static constexpr int kWhole = kTurned ? kLine : kAtOnce,
                       kPadded = (kTile + kWhole - 1) / kWhole * kWhole;
  using Places =
      contract::Swizzled<kTurned ? kAlongRows : kAlongOwn, 1, Step::kTileK, kPadded, Element>;
  static constexpr int kEach = Places::kSize / kLine / kAtOnce;  // lines of a thread
  static_assert(sizeof(Element) == 2 && Places::kRow == kLine && Places::kRows % kAtOnce == 0);

  // The matrix for the MMAs, from own index `own` of the operand at `tile` on.
  static KRONOP_INLINE WarpGroupMatrix matrix(const Element* tile, int own) {
    return WarpGroupMatrix(tile + Places::start(0, 0, own), 8 * Places::kRowBytes,
                           Places::kRowBytes, Places::kPart * int(sizeof(Element)));
  }
};

// The copies of an operand by the producer threads. `count` is how many own indices exist. Others
// are not copied: stale data only affects results that nobody reads.
template <class Step, int kTile>
struct LineCopies {
  using Of = Lines<Step, kTile>;
  using Element = typename Of::Element;
  const Element* from;
  long long line, next;  // strides to the next line of a part, and to the next stage
  int piece, first, count;

  KRONOP_INLINE LineCopies(const Element* base, long long own, long long row, int own_count,
                           long long step)
      : line(Of::kTurned ? row : own), next(step * (Of::kTurned ? row : 1)), count(own_count) {
    const int thread = threadIdx.x % Step::kCopyThreads;
    piece = thread % Of::kPieces, first = thread / Of::kPieces;
    from = base + (first * line + piece * Of::kPiece);
  }
  // Copies the next stage, of which `rows` rows exist; zeros for the others.
  KRONOP_INLINE void fill(Element* tile, int rows) {
    constexpr int element = int(sizeof(Element)), bytes = Of::kPiece * element;
    Element* to = tile + first * Of::kLine + (piece ^ first % Of::kPieces) * Of::kPiece;
#pragma unroll
    for (int i = 0; i < Of::kEach; ++i) {
      const int at = i * Of::kAtOnce % Of::Places::kRows,
                part = i * Of::kAtOnce / Of::Places::kRows * Of::kLine;
      int there = bytes;
      if constexpr (Of::kTurned) {
        if (part + piece * Of::kPiece >= count) break;
        if (at + first >= rows) there = 0;
      } else {
        if (at + first >= count) continue;
        const int left = (rows - part - piece * Of::kPiece) * element;
        if (left < bytes) there = left > 0 ? left : 0;
      }
      copy_or_clear<bytes>(to + i * Of::kAtOnce * Of::kLine, from + (at * line + part), there);
    }
    from += next;
  }
};

// The barriers of a block, and the size of its stages.
template <class Step>
struct Stages {
  using Element = typename Step::Factor;
  using P = Lines<Step, Step::kTileP>;
  using Q = Lines<Step, Step::kTileQ>;
  static constexpr int kStage = P::Places::kSize + Q::Places::kSize;
  Barrier filled[Step::kStages], free[Step::kStages];

  KRONOP_INLINE void begin() {
    for (int stage = 0; stage < Step::kStages; ++stage) {
      filled[stage].begin(Step::kCopyThreads);
      free[stage].begin(Step::kTeams * 4);
    }
  }
};

// The items of a persistent block. The tiles of a product are fastest, since they share rows, then
// products, then shares. A share has every shares-th stage of rows, so that blocks that run at the
// same time read neighbouring memory.
template <class Step>
struct Items {
  using Element = typename Step::Factor;
  static constexpr int kTilesP = (Step::kP + Step::kTileP - 1) / Step::kTileP,
                       kTilesQ = (Step::kQ + Step::kTileQ - 1) / Step::kTileQ;
  // NOTE: there are fewer than 2^31 items: the sums of so many would be some terabytes.
  const GradientWarpGroupParameters& parameters;
  unsigned item, end, products;
  int p, q, stages;  // first indices of the tile; stages of the share
  long long rows;    // from its first one on
  const Element *g, *x;
  float* to;

  KRONOP_INLINE explicit Items(const GradientWarpGroupParameters& with)
      : parameters(with), item(blockIdx.x) {
    products = unsigned(with.matrix[0] * with.matrix[1] * with.matrix[2]);
    end = products * unsigned(with.shares) * (kTilesP * kTilesQ);
    if (more()) locate();
  }
  KRONOP_INLINE bool more() const { return item < end; }
  KRONOP_INLINE void advance() {
    item += gridDim.x;
    if (more()) locate();
  }
  // Rows from one stage of a share to the next.
  KRONOP_INLINE long long step() const { return parameters.shares * Step::kTileK; }

 private:
  KRONOP_INLINE void locate() {
    const unsigned tile = item % (kTilesP * kTilesQ), further = item / (kTilesP * kTilesQ);
    const unsigned product = further % products, share = further / products;
    p = tile % kTilesP * Step::kTileP, q = tile / kTilesP * Step::kTileQ;
    const long long first = (long long)share * Step::kTileK;
    rows = parameters.rows - first;
    stages = int(ceil_div(rows, step()));
    g = static_cast<const Element*>(parameters.g) +
        (p * parameters.g_own + first * parameters.g_row);
    x = static_cast<const Element*>(parameters.x) +
        (q * parameters.x_own + first * parameters.x_row);
    for_each_digit<3>(product, parameters.matrix, [&](int axis, long long digit) {
      g += digit * parameters.g_matrix[axis];
      x += digit * parameters.x_matrix[axis];
    });
    to = static_cast<float*>(parameters.partial) + (long long)further * (Step::kP * Step::kQ);
  }
};

// The accumulators of a team: kTeamP x 64 indices p, and all q of the tile.
template <class Step>
struct TeamSums {
  using Element = typename Step::Factor;
  using Of = Stages<Step>;
  static constexpr int kN = Step::kTileQ / 8, kStep = 16;
  float of[Step::kTeamP][kN][4] = {};

  static KRONOP_INLINE int first() {
    return int(threadIdx.x) / contract::kTeam * (Step::kTeamP * contract::kTeamRows);
  }

  // Starts the MMAs of a stage. They read it for as long as they are in flight.
  KRONOP_INLINE void add(const Element* stage) {
    constexpr bool turned = Of::P::kTurned;
    using P = typename Of::P::Places;
    using Q = typename Of::Q::Places;
    const WarpGroupMatrix left = Of::P::matrix(stage, first()),
                          right = Of::Q::matrix(stage + P::kSize, 0);
    begin_warp_group_products();
#pragma unroll
    for (int k = 0; k < Step::kTileK; k += kStep) {
#pragma unroll
      for (int m = 0; m < Step::kTeamP; ++m) {
        warp_group_product<Element, turned, turned>(
            of[m], left.after(P::bytes(0, k, m * contract::kTeamRows)),
            right.after(Q::bytes(0, k, 0)), true);
      }
    }
    commit_warp_group_products();
  }
  // Stores the sums to the matrix [p][q], from index (p0, q0) on.
  KRONOP_INLINE void store(float* to, int p0, int q0) const {
    const int quad = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int row = p0 + first() + threadIdx.x / 32 % 4 * 16 + quad, column = q0 + 2 * t;
    float* start = to + (row * Step::kQ + column);
#pragma unroll
    for (int m = 0; m < Step::kTeamP; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int further = m * contract::kTeamRows + 8 * h;
        if (row + further >= Step::kP) continue;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const unsigned words[2] = {__builtin_bit_cast(unsigned, of[m][n][2 * h]),
                                     __builtin_bit_cast(unsigned, of[m][n][2 * h + 1])};
          if (column + 8 * n < Step::kQ) store_words(start + (further * Step::kQ + 8 * n), words);
        }
      }
    }
  }
};

template <class Step>
KRONOP_INLINE void fill_stages(const GradientWarpGroupParameters& parameters,
                               Stages<Step>& barriers, typename Step::Factor* stages) {
  Turn<Step::kStages> turn;
#pragma unroll 1
  for (Items<Step> items(parameters); items.more(); items.advance()) {
    LineCopies<Step, Step::kTileP> g(items.g, parameters.g_own, parameters.g_row,
                                     Step::kP - items.p, items.step());
    LineCopies<Step, Step::kTileQ> x(items.x, parameters.x_own, parameters.x_row,
                                     Step::kQ - items.q, items.step());
#pragma unroll 1
    for (long long left = items.rows; left > 0; left -= items.step()) {
      const int rows = left < Step::kTileK ? int(left) : Step::kTileK;
      // In the first round all stages are free.
      barriers.free[turn.stage].wait(turn.parity ^ 1);
      auto* to = stages + turn.stage * Stages<Step>::kStage;
      g.fill(to, rows);
      x.fill(to + Stages<Step>::P::Places::kSize, rows);
      barriers.filled[turn.stage].arrive_after_copies();
      turn.advance();
    }
  }
}

template <class Step>
KRONOP_INLINE void use_stages(const GradientWarpGroupParameters& parameters, Stages<Step>& barriers,
                              const typename Step::Factor* stages) {
  const bool speaks = threadIdx.x % 32 == 0;
  Turn<Step::kStages> turn;
#pragma unroll 1
  for (Items<Step> items(parameters); items.more(); items.advance()) {
    TeamSums<Step> sums;
    int before = -1, left = items.stages;
    // A share has at least one stage. If the loop could be empty, the compiler would wait for every
    // MMA before it starts the next one.
#pragma unroll 1
    do {
      barriers.filled[turn.stage].wait(turn.parity);
      publish_to_warp_group_products();
      sums.add(stages + turn.stage * Stages<Step>::kStage);
      // When only the MMAs of this stage are in flight, those of the previous stage have ended.
      wait_for_warp_group_products<1>();
      if (before >= 0 && speaks) barriers.free[before].arrive();
      before = turn.stage;
      turn.advance();
    } while (--left > 0);
    wait_for_warp_group_products<0>();
    if (speaks) barriers.free[before].arrive();
    sums.store(items.to, items.p, items.q);
  }
}

}  // namespace gradient

template <class Step, class Parameters>
KRONOP_INLINE void gradient_warp_group(const Parameters& parameters) {
  let_next_launch_begin();
  unsigned char* shared = shared_memory();
  auto& barriers = *reinterpret_cast<gradient::Stages<Step>*>(shared + Step::kBarriersAt);
  auto* stages = reinterpret_cast<typename Step::Factor*>(shared);
  static_assert(gradient::Stages<Step>::kStage * Step::kStages * sizeof(*stages) ==
                Step::kBarriersAt);
  if (threadIdx.x == 0) {
    barriers.begin();
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Step::kTeams * contract::kTeam) {
    // A single team has enough registers from the start.
    if constexpr (Step::kTeams > 1) give_registers_back<Step::kCopyRegisters>();
    gradient::fill_stages<Step>(parameters, barriers, stages);
  } else {
    if constexpr (Step::kTeams > 1) take_registers<Step::kProductRegisters>();
    gradient::use_stages<Step>(parameters, barriers, stages);
  }
}

}  // namespace kronop
