// Two fused Kronecker-sparse products in one launch: the intermediate stays in shared memory.
//
// A block has kTileM rows of one of the pair's independent parts. The first product iterates over
// its units (section, lanes, outputs) and stores its sums, rounded to the tensors' type, in the
// middle: a matrix [row][contracted] for each section and lane of the second product, in the order
// of MMA fragments. The second product reads it from there, and stores its results as in
// contract_mma.cuh. Tiles of X and of both factors are copied through one ring of kStages stages,
// across units, products and rows. If kResident, a block keeps all tiles of the factors in shared
// memory, and only X is copied through the ring.
#pragma once

#include "chain_ring.cuh"

namespace kronop {

// Names are those of ContractParameters; x belongs to the first product, y, z and bias belong to
// the second.
template <class Scalar>
struct ChainParameters {
  void* x;
  void* first;
  void* second;
  void* y;
  void* z;
  void* bias;
  long long x_vector, first_vector, second_vector,
      y_vector;  // whether pointers and strides allow vectorised accesses
  long long row_extent[3], row_x[3], row_y[3], row_z[3];
  long long contracted_x, contracted_first, contracted_second;
  long long produced_first, produced_second, produced_y, produced_z, produced_bias;
  long long lane_x, lane_first, lane_second, lane_y, lane_z, lane_bias;
  long long section_x, section_first, section_second, section_y, section_z, section_bias;
  Scalar scalars[4];
};

namespace chain {

// The position of a contracted index of the second product in a row of the middle. The two indices
// of one register of a thread (see step_of) are neighbours there.
template <bool kSpread>
KRONOP_INLINE constexpr int arranged(int index) {
  return kSpread ? (index & ~7) | (index & 3) << 1 | (index >> 2 & 1) : index;
}

// The intermediate of the two products, in shared memory.
template <class Step>
struct Middle {
  using Element = typename Step::Factor;
  using Of = Second<Step>;
  static constexpr bool kSpread = Of::kWOrder == kAlongLanes;
  static constexpr int kMatrix = Step::kTileM * Step::kMiddlePitch,
                       kSize = Of::kSections * Of::kAllLanes * kMatrix;
  // Whether two neighbouring outputs of the first product are neighbours in the middle as well.
  static constexpr bool kPairs = First<Step>::kAllLanes == 1 && Of::kAllLanes == 1 &&
                                 First<Step>::kProduced % 2 == 0 && Of::kContracted % 2 == 0;
  Element* memory;

  // Zeroes the middle, because the last tile along the contracted index reads beyond its end.
  KRONOP_INLINE void clear() const {
    if constexpr (Of::kSteps * Of::kTileK != Of::kContracted) {
      constexpr int vector = 16 / sizeof(Element);
      for (int at = threadIdx.x * vector; at < kSize; at += Step::kThreads * vector)
        store<Element, vector>(memory + at, {});
    }
  }
  // The offset of a feature of the part in row 0 of the middle.
  static KRONOP_INLINE int at(int feature) {
    const int lane = feature % Of::kAllLanes, rest = feature / Of::kAllLanes;
    return (rest / Of::kContracted * Of::kAllLanes + lane) * kMatrix +
           arranged<kSpread>(rest % Of::kContracted);
  }
  KRONOP_INLINE const Element* of(const Unit<Of>& unit) const {
    return memory + (unit.section * Of::kAllLanes + unit.lane) * kMatrix;
  }

  // Stores the sums of a unit of the first product.
  KRONOP_INLINE void take(const contract::Sums<First<Step>>& sums,
                          const contract::Warp<First<Step>>& warp,
                          const Unit<First<Step>>& unit) const {
    using From = First<Step>;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    Element* rows = memory + (warp.m + g) * Step::kMiddlePitch;
#pragma unroll
    for (int n = 0; n < From::kWarpN; ++n) {
#pragma unroll
      for (int r = 0; r < 2; r += kPairs ? 2 : 1) {
        const int output = unit.output + warp.n + n * 8 * From::kWarpsN + 2 * t + r;
        if (From::kProduced % From::kTileN != 0 && output >= From::kProduced) continue;
#pragma unroll
        for (int l = 0; l < From::kWarpLanes; ++l) {
          const int lane = unit.lane + warp.lane + l;
          if (From::kAllLanes % From::kLanes != 0 && lane >= From::kAllLanes) continue;
          Element* to =
              rows + at((unit.section * From::kProduced + output) * From::kAllLanes + lane);
#pragma unroll
          for (int m = 0; m < From::kWarpM; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              Element* place = to + (m * 16 * From::kWarpsM + 8 * h) * Step::kMiddlePitch;
              const auto& of = sums.of[l][m][n];
              if constexpr (kPairs) {
                store<Element, 2>(place,
                                  {convert<Element>(of[2 * h]), convert<Element>(of[2 * h + 1])});
              } else {
                *place = convert<Element>(of[2 * h + r]);
              }
            }
          }
        }
      }
    }
  }
};

// The first product of a tile of rows.
template <class Step, class Parameters>
KRONOP_INLINE void multiply_first(Ring<Step, Parameters>& ring,
                                  const typename Step::Factor* weights,
                                  const Middle<Step>& middle) {
  using Of = First<Step>;
  using X = typename contract::Sums<Of>::X;
  using W = typename contract::Sums<Of>::W;
  const contract::Warp<Of> warp;
  const int at_x = X::at(warp.lane, 0, warp.m), at_w = W::at(warp.lane, 0, warp.n);
#pragma unroll 1
  for (int index = 0; index < Of::kUnits; ++index) {
    contract::Sums<Of> sums;
#pragma unroll 1
    for (int k = 0; k < Of::kSteps; ++k) {
      const auto* tile = ring.next();
      sums.add(tile + at_x,
               (Step::kResident ? weights + (index * Of::kSteps + k) * W::kSize : tile + X::kSize) +
                   at_w);
    }
    middle.take(sums, warp, Unit<Of>(index));
  }
}

// The second product of a tile of rows, stored to Y.
template <class Step, class Parameters>
KRONOP_INLINE void multiply_second(const Parameters& parameters, const PartOfPair<Step>& part,
                                   Ring<Step, Parameters>& ring,
                                   const typename Step::Factor* weights, const Middle<Step>& middle,
                                   int rows, const RowOffsets& offsets,
                                   typename Step::Accumulator* results) {
  using Of = Second<Step>;
  using Whole = contract::Part<Of>;
  using X = typename contract::Sums<Of>::X;
  using W = typename contract::Sums<Of>::W;
  const contract::Warp<Of> warp;
  const int at_x = X::at(warp.lane, 0, warp.m), at_w = W::at(warp.lane, 0, warp.n);
#pragma unroll 1
  for (int index = 0; index < Of::kUnits; ++index) {
    const Unit<Of> unit(index);
    const auto* x = middle.of(unit) + at_x;
    contract::Sums<Of> sums;
#pragma unroll 1
    for (int k = 0; k < Of::kSteps; ++k) {
      sums.add(
          x + k * Of::kTileK,
          (Step::kResident ? weights + (index * Of::kSteps + k) * W::kSize : ring.next()) + at_w);
    }
    const int section = part.section_of(unit), lane = part.lane_of(unit);
    contract::Place place;
    place.rows = rows, place.outputs = unit.outputs(), place.lanes = unit.lanes();
    place.y = section * parameters.section_y + lane * parameters.lane_y +
              unit.output * parameters.produced_y;
    place.z = section * parameters.section_z + lane * parameters.lane_z +
              unit.output * parameters.produced_z;
    place.bias = section * parameters.section_bias + lane * parameters.lane_bias +
                 unit.output * parameters.produced_bias;
    const contract::Outcome<Of, Parameters> outcome(parameters, place, offsets);
#pragma unroll 1
    for (int index_of_part = 0; index_of_part < Whole::kParts; ++index_of_part) {
      __syncthreads();
      Whole::deposit(results, warp, sums, index_of_part);
      __syncthreads();
      outcome.store_part(results, index_of_part);
    }
  }
}

// Lists the offsets of a tile's rows in Y and Z. Entries beyond the last row repeat it, so that
// they can be read without a bounds check.
template <class Step, class Parameters>
KRONOP_INLINE void list_rows(const Parameters& parameters, const RowOffsets& offsets,
                             long long first, int rows) {
  for (int r = threadIdx.x; r < Step::kTileM; r += Step::kThreads) {
    const long long row = first + (r < rows ? r : rows - 1);
    offsets.y[r] = row * parameters.row_y[0];
    offsets.z[r] = row * parameters.row_z[0];
  }
}

}  // namespace chain

// Blocks iterate over the tiles of rows of their part; neighbouring blocks share rows.
template <class Step, class Parameters>
KRONOP_INLINE void chain_mma(const Parameters& parameters) {
  using Element = typename Step::Factor;
  unsigned char* shared = shared_memory();
  const RowOffsets offsets(shared, Step::kTileM);
  const chain::Middle<Step> middle{reinterpret_cast<Element*>(shared + Step::kMiddleAt)};
  Element* weights = reinterpret_cast<Element*>(shared + Step::kWeightsAt);
  auto* results = reinterpret_cast<typename Step::Accumulator*>(shared + Step::kResultsAt);
  constexpr int first_weights = chain::First<Step>::kUnits * chain::First<Step>::kSteps *
                                contract::Sums<chain::First<Step>>::W::kSize;
  const long long rows = parameters.row_extent[0], tiles = ceil_div(rows, Step::kTileM),
                  apart = gridDim.x / Step::kParts;
  const chain::PartOfPair<Step> part(blockIdx.x % Step::kParts);
  long long tile = blockIdx.x / Step::kParts;
  const chain::Loader<Step, Parameters> loader(parameters, part, tile, tiles, apart);
  if (Step::kResident) loader.fill_weights(weights);
  chain::Ring<Step, Parameters> ring(loader, shared + Step::kRingAt);
  middle.clear();
#pragma unroll 1
  for (; tile < tiles; tile += apart) {
    const long long first = tile * Step::kTileM;
    const int there = int(rows - first < Step::kTileM ? rows - first : Step::kTileM);
    chain::list_rows<Step>(parameters, offsets, first, there);
    chain::multiply_first(ring, weights, middle);
    __syncthreads();
    chain::multiply_second(parameters, part, ring, weights + first_weights, middle, there, offsets,
                           results);
    __syncthreads();
  }
  wait_for_older_copies<0>();
}

}  // namespace kronop
