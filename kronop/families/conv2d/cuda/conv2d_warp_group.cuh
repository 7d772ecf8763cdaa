// Convolutions by the warp groups of gemm_warp_group.cuh, whose operands TMA gathers: copies of
// pixels (im2col) move what the pixels of a tile, or of a slab, have at one place of their patches.
//
// A row of the product fprop is a pixel of the results, one of dgrad a pixel of the images. A slab
// is a place in the filters (a tap) and a block of the contracted channels; those beyond the last
// one are read as 0. A strided dgrad has members: each is the pixels of an image that meet the same
// taps, which are as far from each other as the strides.
//
// The product wgrad has filters as rows, and as columns the channels of each tap, filled up to
// blocks of 64. It sums over pixels of the results, of which a slab has 64, or 32 of float32. A
// batch of products is slices of these sums.
#pragma once

#include "conv2d_warp_group_parameters.cuh"
#include "gemm_warp_group.cuh"

namespace kronop {
namespace gemm {

// Brings the slabs of fprop and dgrad. Of split values, the images of the second plane follow those
// of the first one, and filters have an axis of planes.
template <class Step, class Walk>
class PatchFeed {
 public:
  KRONOP_INLINE PatchFeed(const Walk& walk, int rank)
      : p_(walk.member()), group_(int(p_.group) + walk.problem),
        column_(walk.column * Step::kTileN + rank * Step::kShare), rank_(rank) {
    const Conv2dPixel first(p_, (long long)walk.row * Step::kTileM);
    w_ = int(p_.first_w + first.w * p_.stride_w);
    h_ = int(p_.first_h + first.h * p_.stride_h);
    image_ = first.image;
  }

  KRONOP_INLINE void bring(int, unsigned char* stage, Barrier& filled) {
    const int channel = block_ * Step::kSlab;
    const BoxPlace offset{tap_w_ * int(p_.apart_w), tap_h_ * int(p_.apart_h)};
    const int s = int(p_.filter_w) + tap_w_ * int(p_.filter_step_w),
              r = int(p_.filter_h) + tap_h_ * int(p_.filter_step_h);
    const int deep = int(p_.group_deep) * group_ + channel,
              line = int(p_.group_lines) * group_ + column_;
#pragma unroll
    for (int plane = 0; plane < Step::kPlanes; ++plane) {
      unsigned char* const a = stage + plane * Step::kPlaneBytes;
      const int image = image_ + plane * int(p_.images);
      load_pixels(a, p_.a_map, filled, BoxPlace{int(p_.channels) * group_ + channel, w_, h_, image},
                  offset);
      unsigned char* const b = a + (Step::kTileM + rank_ * Step::kShare) * kLineBytes;
      if constexpr (Step::kSplit) {
        load_share<Step>(b, p_.b_map, filled, BoxPlace{deep, s, r, line, plane});
      } else {
        load_slab<Step::kShare, Step::kTurnedB>(b, deep, line, [&](void* to, int at, int across) {
          load_share<Step>(to, p_.b_map, filled, BoxPlace{at, s, r, across});
        });
      }
    }
    advance();
  }

 private:
  KRONOP_INLINE void advance() {
    if (++block_ < p_.blocks) return;
    block_ = 0;
    if (++tap_w_ < p_.taps_w) return;
    tap_w_ = 0;
    ++tap_h_;
  }

  const typename Walk::Member& p_;
  int group_, column_, rank_, w_, h_, image_, block_ = 0, tap_w_ = 0, tap_h_ = 0;
};

// Brings the slabs of wgrad: pixels of the gradient's filters, and of the images.
template <class Step, class Walk>
class PixelFeed {
 public:
  KRONOP_INLINE PixelFeed(const Walk& walk, int)
      : p_(walk.member()), at_(p_, first_of(walk)), group_(group_of(walk)),
        row_(walk.row * Step::kTileM) {
#pragma unroll
    for (int part = 0; part < kAcross; ++part) {
      const int block = walk.column * kAcross + part, tap = block / int(p_.blocks),
                s = tap % int(p_.taps_w), r = tap / int(p_.taps_w);
      // Beyond the last tap: any one, of channels that do not exist or are not stored.
      const bool exists = r < p_.taps_h;
      channel_[part] =
          int(p_.channels) * group_ + (exists ? block % int(p_.blocks) : int(p_.blocks)) * kLine;
      offset_w_[part] = exists ? int(p_.apart_w * (p_.filter_w + s * p_.filter_step_w)) : 0;
      offset_h_[part] = exists ? int(p_.apart_h * (p_.filter_h + r * p_.filter_step_h)) : 0;
    }
  }

  KRONOP_INLINE void bring(int, unsigned char* stage, Barrier& filled) {
    const BoxPlace none{0, 0};
#pragma unroll
    for (int part = 0; part < Step::kTileM / kWide; ++part) {
      const int filter = int(p_.m) * group_ + row_ + part * kWide;
      load_pixels(stage + part * kBytes, p_.a_map, filled,
                  BoxPlace{filter, at_.w, at_.h, at_.image}, none);
    }
    const int w = int(p_.first_w + at_.w * p_.stride_w), h = int(p_.first_h + at_.h * p_.stride_h);
#pragma unroll
    for (int part = 0; part < Step::kTileN / kWide; ++part) {
      const int block = part * kWide / kLine, further = part * kWide % kLine;
      load_pixels(stage + (Step::kTileM / kWide + part) * kBytes, p_.b_map, filled,
                  BoxPlace{channel_[block] + further, w, h, at_.image},
                  BoxPlace{offset_w_[block], offset_h_[block]});
    }
    advance();
  }

 private:
  static constexpr int kAcross = Step::kTileN / kLine;
  // Channels of a copy, and its bytes: as many as pixels.
  static constexpr int kWide = Step::kSlab, kBytes = Step::kSlab * kLineBytes;

  // Problems are groups, of each slice in turn.
  KRONOP_INLINE static int group_of(const Walk& walk) {
    const auto& p = walk.member();
    return int(p.group) + walk.problem % int(p.groups);
  }
  KRONOP_INLINE static long long first_of(const Walk& walk) {
    return walk.problem / int(walk.member().groups) * walk.member().k;
  }
  // Goes on by a slab's pixels, whose digits are `next_w`, `next_h` and `next_image`.
  KRONOP_INLINE void advance() {
    at_.w += int(p_.next_w);
    at_.h += int(p_.next_h);
    at_.image += int(p_.next_image);
    if (at_.w >= p_.pixels_w) {
      at_.w -= int(p_.pixels_w);
      ++at_.h;
    }
    if (at_.h >= p_.pixels_h) {
      at_.h -= int(p_.pixels_h);
      ++at_.image;
    }
  }

  const typename Walk::Member& p_;
  Conv2dPixel at_;
  int group_, row_, channel_[kAcross], offset_w_[kAcross], offset_h_[kAcross];
};

}  // namespace gemm

template <class Decided, class Parameters>
KRONOP_INLINE void conv2d_warp_group(const Parameters& parameters) {
  using Step = gemm::WarpGroupStep<Decided>;
  if constexpr (Step::kTurnedA) {
    gemm::multiply_by_warp_groups<Step, gemm::PixelFeed>(parameters);
  } else {
    gemm::multiply_by_warp_groups<Step, gemm::PatchFeed>(parameters);
  }
}

}  // namespace kronop
