// Weights in the order in which the tensor cores take them: [group][lane][plane][produced][contracted].
//
// The contracted index is contiguous and padded with zeros to kPitch. Of float32, plane 0 is what the tensor cores
// take and plane 1, where there is one, what rounding left.
#pragma once

#include "mma.cuh"

namespace kronop {

struct PackParameters {
  void* w;
  void* packed;
  long long lanes, groups, w_vector;
  long long contracted_w, produced_w, lane_w, group_w;
};

// 16 bytes along the contracted index, of kLanes neighbouring lanes.
template <class Element, int kLanes>
struct WeightPieces {
  static constexpr int kPiece = 16 / sizeof(Element);
  Element values[kLanes][kPiece];

  // `steps` and `lanes` are how many of them exist; `vectors` whether all lanes of a step, or all steps of a lone lane, may be
  // read at once.
  KRONOP_INLINE WeightPieces(const Element* from, long long contracted, long long lane, int steps, int lanes, bool vectors) {
    if (kLanes == 1 && vectors && steps >= kPiece) {
      const auto part = load<Element, kPiece>(from);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[0][i] = part.data[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i, from += contracted) {
      Vector<Element, kLanes> part{};
      if (i < steps) {
        if (kLanes > 1 && vectors) {
          part = load<Element, kLanes>(from);
        } else {
#pragma unroll
          for (int l = 0; l < kLanes; ++l) {
            if (l < lanes) part.data[l] = from[l * lane];
          }
        }
      }
#pragma unroll
      for (int l = 0; l < kLanes; ++l) values[l][i] = part.data[l];
    }
  }
  // Plane 0 of lane l, or plane 1.
  template <bool kRest>
  KRONOP_INLINE Vector<Element, kPiece> plane(int l) const {
    Vector<Element, kPiece> result;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if constexpr (sizeof(Element) == 4) {
        const Element value = round_to_tf32(values[l][i]);
        result.data[i] = kRest ? values[l][i] - value : value;
      } else {
        result.data[i] = values[l][i];
      }
    }
    return result;
  }
};

template <class Step, class Parameters>
KRONOP_INLINE void pack_weights(const Parameters& parameters) {
  using Element = typename Step::Factor;
  using Pieces = WeightPieces<Element, Step::kLanes>;
  constexpr int piece = Pieces::kPiece, pieces = Step::kPitch / piece;
  constexpr long long plane = (long long)Step::kProduced * Step::kPitch, lane_size = Step::kPlanes * plane;
  long long index = (long long)blockIdx.x * Step::kThreads + threadIdx.x;
  const int k = int(split(index, pieces)) * piece, produced = int(split(index, Step::kProduced));
  const long long lane = split(index, ceil_div(parameters.lanes, Step::kLanes)) * Step::kLanes;
  if (index >= parameters.groups) return;
  const Element* from = static_cast<const Element*>(parameters.w) + index * parameters.group_w + lane * parameters.lane_w +
                        produced * parameters.produced_w + k * parameters.contracted_w;
  const int lanes = parameters.lanes - lane < Step::kLanes ? int(parameters.lanes - lane) : Step::kLanes;
  const Pieces weights(from, parameters.contracted_w, parameters.lane_w, Step::kContracted - k, lanes, parameters.w_vector);
  Element* to = static_cast<Element*>(parameters.packed) + (index * parameters.lanes + lane) * lane_size + (long long)produced * Step::kPitch + k;
#pragma unroll
  for (int l = 0; l < Step::kLanes; ++l, to += lane_size) {
    if (l >= lanes) break;
    store_whole<Element, piece>(to, weights.template plane<false>(l));
    if constexpr (Step::kPlanes > 1) store_whole<Element, piece>(to + plane, weights.template plane<true>(l));
  }
}

}  // namespace kronop
