// Packs points into the images that distance_warp_group.cuh multiplies, with their scales and
// norms.
//
// A block packs kRows points at a time, with kTeams threads each. If kSplit, an element becomes the
// sum of two float16 numbers, with an error of 2^-24 of the point's largest element: the elements
// of a point are scaled by a power of two, so that the largest is between 2^13 and 2^14. They are
// also scaled if kLengths; a squared length that exceeds the range of float32 is then stored for
// the scaled elements, with a minus sign as a mark.
//
// If kCentred, only differences of points matter, and the same centre is subtracted from all of
// them: errors are relative to norms, which are large if points are far from zero, however near
// each other. The centre is the mean of some points of x2.
#pragma once

#include "distance_warp_group_tiles.cuh"
#include "distance_lengths.cuh"

namespace kronop {
namespace distance {

inline constexpr int kRows = 32, kTeams = 8, kPiece = 8, kSamples = 8, kCentreFeatures = 1024;

// An operand of one problem.
template <class Input>
struct Points {
  const Input* from;
  long long count, row, column;  // points, and strides
  unsigned char* images;
  Facts* facts;
};

template <class Step, class Parameters>
class Pack {
  using Input = typename Step::Input;
  using Element = typename Step::Factor;
  using Piece = Vector<Element, kPiece>;
  static constexpr bool kScales = Step::kSplit || Step::kLengths;
  static constexpr int kPieces = kRowBytes / 16;  // of a row of an image
  static constexpr int kOfSlab = kSlab<Step> / kPiece;
  const Parameters& parameters_;
  const Input* centre_from_;  // x2 of the problem
  float *const centre_, *const partial_;

 public:
  KRONOP_INLINE explicit Pack(const Parameters& parameters)
      : parameters_(parameters), centre_(reinterpret_cast<float*>(shared_memory())),
        partial_(centre_ + kCentreFeatures) {}

  // Packs kRows points from `first` on; points out of bounds are zeros.
  KRONOP_INLINE void pack(const Points<Input>& points, long long first, const Input* x2) {
    centre_from_ = x2;
    // Neighbouring threads read neighbouring elements.
    const bool across = points.row == 1 && points.column != 1;
    const int row = across ? threadIdx.x % kRows : threadIdx.x / kTeams,
              mine = across ? threadIdx.x / kRows : threadIdx.x % kTeams;
    const long long point = first + row;
    const bool there = point < points.count;
    const Input* const from = points.from + (there ? point * points.row : 0);
    const bool vectors = points.column == 1 && points.row % (16 / int(sizeof(Input))) == 0 &&
                         (unsigned long long)points.from % 16 == 0;
    float most = 0, norm = 0;
    for_each_piece<false>(mine, [&](long long feature, const float* centre) {
      float values[kPiece];
      read(values, from, points.column, feature, there, vectors, centre);
      float sum = 0;  // Long sums have larger rounding errors than sums of short ones.
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        const float size = ::fabsf(values[i]);
        most = size > most ? size : most;
        sum = multiply_add(values[i], values[i], sum);
      }
      norm += sum;
    });
    if constexpr (kScales) most = of_team<true>(most, row, mine);
    norm = of_team<false>(norm, row, mine);
    // The exponent of a number below 2^-113 is clamped to -113: both powers of two are normal.
    const int bits = int(__builtin_bit_cast(unsigned, most) >> 23) - 127,
              exponent = bits < -113 ? -113 : bits;
    const float scale = kScales ? detail::bits_to_float(unsigned(127 + 13 - exponent) << 23) : 1.0f;
    const float back = kScales ? detail::bits_to_float(unsigned(127 - 13 + exponent) << 23) : 1.0f;
    if (!Step::kLengths && mine == 0) points.facts[point] = Facts{back, norm};
    norm = 0;
    const long long slabs = ceil_div(parameters_.k, kSlab<Step>);
    unsigned char* const line =
        points.images + (point / kGranule * slabs * kGranule + point % kGranule) * kRowBytes;
    const int turned = int(point % 8);
    for_each_piece<true>(mine, [&](long long feature, const float* centre) {
      float values[kPiece];
      read(values, from, points.column, feature, there, vectors, centre);
      const int piece = int(feature / kPiece % kOfSlab);
      unsigned char* const to = line + feature / kSlab<Step> * kImage;
      Piece high, low;
      float square = 0;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        const float value = kScales ? values[i] * scale : values[i];
        if constexpr (Step::kLengths) square = multiply_add(value, value, square);
        high.data[i] = convert<Element>(value);
        low.data[i] = convert<Element>(value - convert<float>(high.data[i]));
      }
      norm += square;
      store_whole<Element, kPiece>(reinterpret_cast<Element*>(to + (piece ^ turned) * 16), high);
      if constexpr (Step::kSplit)
        store_whole<Element, kPiece>(
            reinterpret_cast<Element*>(to + ((piece + kPieces / 2) ^ turned) * 16), low);
    });
    if constexpr (Step::kLengths) {
      norm = of_team<false>(norm, row, mine);
      const float square = norm * back * back;
      if (mine == 0)
        points.facts[point] = Facts{back, norm > 0 && is_unusual(square) ? -norm : square};
    }
  }

 private:
  // Calls visit(feature, centre) for this thread's pieces of all slabs, twice if kAgain.
  template <bool kAgain, class Visit>
  KRONOP_INLINE void for_each_piece(int mine, const Visit& visit) const {
    const long long padded = ceil_div(parameters_.k, kSlab<Step>) * kSlab<Step>;
#pragma unroll 1
    for (long long first = 0; first < padded; first += kCentreFeatures) {
      if (Step::kCentred && !(kAgain && padded <= kCentreFeatures)) find_centre(first);
      const long long left = padded - first, end = left < kCentreFeatures ? left : kCentreFeatures;
#pragma unroll 2
      for (int at = mine * kPiece; at < end; at += kTeams * kPiece) visit(first + at, centre_ + at);
    }
  }
  // Computes the centre's features from `first` on; values that are not finite are ignored.
  KRONOP_INLINE void find_centre(long long first) const {
    const Parameters& p = parameters_;
    __syncthreads();
#pragma unroll 1
    for (int at = threadIdx.x; at < kCentreFeatures && first + at < p.k; at += Step::kThreads) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kSamples; ++i) {
        const float value =
            convert<float>(
                centre_from_[p.n * i / kSamples * p.x2_row + (first + at) * p.x2_column]) /
            kSamples;
        sum += value - value == 0 ? value : 0.0f;
      }
      centre_[at] = sum;
    }
    __syncthreads();
  }
  KRONOP_INLINE void read(float (&values)[kPiece], const Input* from, long long column,
                          long long feature, bool there, bool vectors, const float* centre) const {
    const long long left = there ? parameters_.k - feature : 0;
    if (vectors && left >= kPiece) {
      constexpr int each = 16 / int(sizeof(Input));
#pragma unroll
      for (int i = 0; i < kPiece; i += each) {
        const auto run = load<Input, each>(from + feature + i);
#pragma unroll
        for (int v = 0; v < each; ++v) values[i + v] = convert<float>(run.data[v]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        values[i] = i < left ? convert<float>(from[(feature + i) * column]) : 0.0f;
    }
    if constexpr (Step::kCentred) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[i] = i < left ? values[i] - centre[i] : 0.0f;
    }
  }
  // Reduces the values of a point's threads: their maximum, or their sum.
  template <bool kLargest>
  KRONOP_INLINE float of_team(float value, int row, int mine) const {
    __syncthreads();
    partial_[mine * kRows + row] = value;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int i = 0; i < kTeams; ++i) {
      const float other = partial_[i * kRows + row];
      all = kLargest ? (other > all ? other : all) : all + other;
    }
    return all;
  }
};

}  // namespace distance

template <class Step, class Parameters>
KRONOP_INLINE void distance_pack(const Parameters& parameters) {
  using namespace distance;
  using Input = typename Step::Input;
  let_next_launch_begin();
  const Parameters& p = parameters;
  long long problems1 = 1, problems2 = 1;
#pragma unroll
  for (int d = 0; d < kBatchDims; ++d) {
    problems1 *= p.packed1[d];
    problems2 *= p.packed2[d];
  }
  // A symmetric kernel multiplies x1 with itself.
  const long long of1 = granules_of(p.m) * kGranule, of2 = granules_of(p.n) * kGranule;
  const long long items1 = problems1 * (of1 / kRows),
                  items2 = Step::kSymmetric ? 0 : problems2 * (of2 / kRows);
  Pack<Step, Parameters> pack(p);
#pragma unroll 1
  for (long long item = blockIdx.x; item < items1 + items2; item += gridDim.x) {
    const bool is_first = item < items1;
    const long long count = is_first ? of1 : of2, within = is_first ? item : item - items1,
                    problem = within / (count / kRows);
    long long at1 = 0, at2 = 0;
    for_each_digit<kBatchDims>(problem, is_first ? p.packed1 : p.packed2,
                               [&](int d, long long digit) {
                                 at1 += digit * p.x1_batch[d];
                                 at2 += digit * p.x2_batch[d];
                               });
    const auto* x1 = static_cast<const Input*>(p.x1) + at1;
    const auto* x2 = static_cast<const Input*>(p.x2) + at2;
    unsigned char* images = static_cast<unsigned char*>(is_first ? p.images1 : p.images2) +
                            problem * count * ceil_div(p.k, kSlab<Step>) * kRowBytes;
    Facts* facts = static_cast<Facts*>(is_first ? p.facts1 : p.facts2) + problem * count;
    const Points<Input> points = is_first
                                     ? Points<Input>{x1, p.m, p.x1_row, p.x1_column, images, facts}
                                     : Points<Input>{x2, p.n, p.x2_row, p.x2_column, images, facts};
    pack.pack(points, within % (count / kRows) * kRows, x2);
  }
}

}  // namespace kronop
