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

// A thread takes 16 bytes along the contracted index of kLanes lanes.
template <class Step, class Parameters>
KRONOP_INLINE void pack_weights(const Parameters& parameters) {
  using Element = typename Step::Factor;
  constexpr int piece = 16 / sizeof(Element), pieces = Step::kPitch / piece, lanes = Step::kLanes;
  constexpr long long plane = (long long)Step::kProduced * Step::kPitch, lane_size = Step::kPlanes * plane;
  long long index = (long long)blockIdx.x * Step::kThreads + threadIdx.x;
  const int k = int(split(index, pieces)) * piece, produced = int(split(index, Step::kProduced));
  const long long lane = split(index, ceil_div(parameters.lanes, lanes)) * lanes;
  if (index >= parameters.groups) return;
  const Element* from = static_cast<const Element*>(parameters.w) + index * parameters.group_w + lane * parameters.lane_w +
                        produced * parameters.produced_w + k * parameters.contracted_w;
  Element values[lanes][piece];
#pragma unroll
  for (int i = 0; i < piece; ++i, from += parameters.contracted_w) {
    Vector<Element, lanes> part{};
    if (k + i < Step::kContracted) {
      if (lanes > 1 && parameters.w_vector) {
        part = load<Element, lanes>(from);
      } else {
#pragma unroll
        for (int l = 0; l < lanes; ++l) {
          if (lane + l < parameters.lanes) part.data[l] = from[l * parameters.lane_w];
        }
      }
    }
#pragma unroll
    for (int l = 0; l < lanes; ++l) values[l][i] = part.data[l];
  }
  Element* to = static_cast<Element*>(parameters.packed) + (index * parameters.lanes + lane) * lane_size + (long long)produced * Step::kPitch + k;
#pragma unroll
  for (int l = 0; l < lanes; ++l, to += lane_size) {
    if (lane + l >= parameters.lanes) break;
    Vector<Element, piece> first, rest;
#pragma unroll
    for (int i = 0; i < piece; ++i) {
      first.data[i] = values[l][i];
      if constexpr (sizeof(Element) == 4) {
        first.data[i] = round_to_tf32(values[l][i]);
        rest.data[i] = values[l][i] - first.data[i];
      }
    }
    store_whole<Element, piece>(to, first);
    if constexpr (Step::kPlanes > 1) store_whole<Element, piece>(to + plane, rest);
  }
}

}  // namespace kronop
