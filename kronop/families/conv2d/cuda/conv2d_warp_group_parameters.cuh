// The parameters of convolutions by warp groups.
#pragma once

#include "gemm_warp_group_parameters.cuh"

namespace kronop {

// How pixels, and the taps of a filter, lie in a tensor that TMA gathers from: along H and W. Those
// of a filter are at filter_h + i filter_step_h, those of the tensor i apart_h further on.
struct Conv2dPatches {
  long long pixels_h, pixels_w;  // The images' digits follow: images, H, W.
  long long first_h, first_w;    // Where the first tap of the first pixel is,
  long long stride_h, stride_w;  // and the distance of pixels.
  long long taps_h, taps_w, apart_h, apart_w;
  long long filter_h, filter_w, filter_step_h, filter_step_w;
  long long channels, blocks;            // What is gathered of a group, and blocks of lines.
  long long group, groups;               // The first group, and how many there are.
  long long group_deep, group_lines;     // What a further group adds to places in filters.
  long long images;                      // Of a plane, where values are split.
  long long next_h, next_w, next_image;  // The digits of a slab's pixels.
  // Of a strided dgrad: the extents of an image, and the pixels of it that have these taps.
  long long height, width, remainder_h, remainder_w, every_h, every_w;
};

// The digits of a pixel's number.
struct Conv2dPixel {
  int w, h, image;
  KRONOP_INLINE Conv2dPixel(const Conv2dPatches& p, long long number) {
    const int width = int(p.pixels_w), height = int(p.pixels_h), line = int(number) / width;
    w = int(number) % width;
    h = line % height;
    image = line / height;
  }
};

// A convolution as a product, or several: one for each group, or for slices of its sum.
template <class Product>
struct Conv2dPart : Conv2dPatches, Product {};

// Some of the pixels of a strided dgrad.
template <class Product>
struct Conv2dStrided : Conv2dPart<Product> {
  KRONOP_INLINE long long row_in_memory(long long m) const {
    const Conv2dPixel at(*this, m);
    return (at.image * this->height + this->remainder_h + at.h * this->every_h) * this->width +
           this->remainder_w + at.w * this->every_w;
  }
  // Starts a copy of results from shared memory, of the pixels from m on. Groups are neighbours,
  // each of whole lines.
  KRONOP_INLINE void store_rows(const void* from, int column, long long m, int group) const {
    if (column >= this->n) return;
    const Conv2dPixel at(*this, m);
    store_pixels(from, this->y_map, BoxPlace{int(this->n) * group + column, at.w, at.h, at.image});
  }
};

template <class Part, int kMembers>
struct Conv2dWarpGroupParameters {
  using Member = Part;
  Part members[kMembers];
  long long used;

  KRONOP_INLINE int count() const { return kMembers == 1 ? 1 : int(used); }
  KRONOP_INLINE const Part& member(int index) const { return members[kMembers == 1 ? 0 : index]; }
};

}  // namespace kronop
