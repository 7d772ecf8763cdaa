// Packs weights in the order of the tensor cores' operands:
// [section][lane][plane][produced][contracted].
//
// The contracted index is contiguous and padded with zeros to kPitch. For float32, plane 0 has the
// values rounded to TF32, and plane 1, where there is one, the remainders.
#pragma once

#include "mma.cuh"

namespace kronop {

// How weights may be loaded:
//   kSingly   one by one
//   kVectors  neighbouring lanes at once or, with one lane, contracted steps at once
//   kTurned   neighbouring outputs at once, of one lane: the weights of a transposed product
//   kJoined   several contiguous steps with all lanes
enum Reading : long long { kSingly, kVectors, kTurned, kJoined };

struct PackParameters {
  void* w;
  void* packed;
  long long lanes, sections, reading;
  long long contracted_w, produced_w, lane_w, section_w;
};

// Pieces of 16 bytes along the contracted index, one for each of kAcross neighbouring lanes or
// outputs.
template <class Element, int kAcross>
struct WeightPieces {
  static constexpr int kPiece = 16 / sizeof(Element);
  static constexpr int kVector = kAcross % 8 == 0 && kPiece % 8 == 0 ? 8
                                 : kAcross % 4 == 0                  ? 4
                                 : kAcross % 2 == 0                  ? 2
                                                                     : 1;
  Element values[kAcross][kPiece];

  // `steps` and `there` are how many steps and neighbours exist.
  KRONOP_INLINE WeightPieces(const Element* from, long long contracted, long long across, int steps,
                             int there, long long reading) {
    if (kAcross == 1 ? reading == kVectors : reading == kJoined) {
      if (steps >= kPiece) {
        load_run(from);
        return;
      }
    }
    const bool vectors =
        kAcross > 1 && (reading == kVectors || reading == kTurned) && there >= kAcross;
#pragma unroll
    for (int i = 0; i < kPiece; ++i, from += contracted) {
      const bool exists = i < steps;
#pragma unroll
      for (int l = 0; l < kAcross; l += kVector) {
        Vector<Element, kVector> part{};
        if (exists && vectors) {
          part = load<Element, kVector>(from + l);
        } else {
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            if (exists && l + v < there) part.data[v] = from[(l + v) * across];
          }
        }
#pragma unroll
        for (int v = 0; v < kVector; ++v) values[l + v][i] = part.data[v];
      }
    }
  }
  // Plane 0 (or, where kRest, plane 1) of neighbour l.
  template <bool kRest>
  KRONOP_INLINE Vector<Element, kPiece> plane(int l) const {
    Vector<Element, kPiece> result;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if constexpr (sizeof(Element) == 4) {
        const Element value = rounded_alone(values[l][i]);
        result.data[i] = kRest ? values[l][i] - value : value;
      } else {
        result.data[i] = values[l][i];
      }
    }
    return result;
  }

 private:
  // Loads the pieces of all neighbours from contiguous memory: [step][neighbour].
  KRONOP_INLINE void load_run(const Element* from) {
#pragma unroll
    for (int at = 0; at < kAcross; ++at) {
      const auto part = load<Element, kPiece>(from + at * kPiece);
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        values[(at * kPiece + i) % kAcross][(at * kPiece + i) / kAcross] = part.data[i];
    }
  }
};

// Packs a thread's weights: a piece for each of some neighbouring lanes, or outputs where
// kOfTurned. Packed weights are `width` lanes of `outputs` x `depth`, padded with zeros.
// place_of(section, lane, output, step) is the destination of a piece; the next plane is kPlaneSize
// elements further.
template <bool kOfTurned, long long kPlaneSize, class Step, class Parameters, class PlaceOf>
KRONOP_INLINE void pack_pieces(const Parameters& parameters, int depth, int outputs,
                               long long width, const PlaceOf& place_of) {
  using Element = typename Step::Factor;
  constexpr int piece = 16 / sizeof(Element), across = kOfTurned ? piece : Step::kLanes,
                at_once = kOfTurned ? piece : 1;
  long long section = (long long)blockIdx.x * Step::kThreads + threadIdx.x;
  // Neighbouring threads have neighbouring lanes, then neighbouring steps: whole sectors are read,
  // and written as far as lanes allow it.
  const long long lane = split(section, ceil_div(width, Step::kLanes)) * Step::kLanes;
  const int k = int(split(section, depth / piece)) * piece,
            n = int(split(section, ceil_div(outputs, at_once))) * at_once;
  if (section >= parameters.sections) return;
  const Element* from = static_cast<const Element*>(parameters.w) +
                        (section * parameters.section_w + lane * parameters.lane_w +
                         n * parameters.produced_w + k * parameters.contracted_w);
  const long long lanes = parameters.lanes - lane, outputs_left = Step::kProduced - n;
  const long long left = lanes <= 0 || outputs_left <= 0 ? 0 : kOfTurned ? outputs_left : lanes;
  const int there = left < across ? int(left) : across;
  const long long apart = kOfTurned ? parameters.produced_w : parameters.lane_w;
  const WeightPieces<Element, across> weights(from, parameters.contracted_w, apart,
                                              there ? Step::kContracted - k : 0, there,
                                              parameters.reading);
#pragma unroll
  for (int l = 0; l < across; ++l) {
    if (kOfTurned ? n + l >= outputs : lane + l >= width) break;
    Element* to = kOfTurned ? place_of(section, lane, n + l, k) : place_of(section, lane + l, n, k);
    store_whole<Element, piece>(to, weights.template plane<false>(l));
    if constexpr (Step::kPlanes > 1)
      store_whole<Element, piece>(to + kPlaneSize, weights.template plane<true>(l));
  }
}
template <long long kPlaneSize, class Step, class Parameters, class PlaceOf>
KRONOP_INLINE void pack(const Parameters& parameters, int depth, int outputs, long long width,
                        const PlaceOf& place_of) {
  let_next_launch_begin();
  if constexpr (Step::kLanes == 1) {
    if (parameters.reading == kTurned) {
      pack_pieces<true, kPlaneSize, Step>(parameters, depth, outputs, width, place_of);
      return;
    }
  }
  pack_pieces<false, kPlaneSize, Step>(parameters, depth, outputs, width, place_of);
}

template <class Step, class Parameters>
KRONOP_INLINE void pack_weights(const Parameters& parameters) {
  using Element = typename Step::Factor;
  constexpr long long plane = (long long)Step::kProduced * Step::kPitch;
  pack<plane, Step>(parameters, Step::kPitch, Step::kProduced, parameters.lanes,
                    [&](long long section, long long lane, int n, int k) {
                      return static_cast<Element*>(parameters.packed) +
                             ((section * parameters.lanes + lane) * (Step::kPlanes * plane) +
                              (long long)n * Step::kPitch + k);
                    });
}

}  // namespace kronop
