"""Convolutions as the gathering copies of a GPU (im2col) see them: along each axis, where pixels
and the taps of a filter lie."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_problem import MOST
from kronop.frozen import dataclass

# What copies of pixels reach along two axes: corners of boxes, offsets of taps, strides.
_LEAST_CORNER, _MOST_CORNER, _MOST_OFFSET, _MOST_STRIDE = -128, 127, 255, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Pixels along an axis, and what each of them meets of a filter.

    Tap i of pixel j is at first + j stride + i apart of the tensor that is gathered, and at
    filter + i step of the filter.

    Attributes:
        extent: of the tensor that is gathered.
        pixels, stride: how many there are, and their distance.
        first: where tap 0 of pixel 0 is; negative in the padding.
        count, apart: of taps.
        filter, step: where they are in the filter.
        remainder, every: pixel j of a strided dgrad is the image's pixel remainder + j every.
    """

    extent: int
    pixels: int
    stride: int
    first: int
    count: int
    apart: int
    filter: int
    step: int
    remainder: int = 0
    every: int = 1

    @property
    def upper(self) -> int:
        """The last pixel's tap 0, counted from the tensor's last element."""
        return self.first + (self.pixels - 1) * self.stride - (self.extent - 1)

    def reasons(self, axis: str) -> Iterator[str]:
        """Why no copies of pixels gather them, if there are reasons."""
        if self.stride > _MOST_STRIDE:
            yield f"a stride of {self.stride} along {axis}; copies of pixels have at most 8"
        if not self.count:
            return
        if not self.extent:
            yield f"nothing along {axis}; tensor maps have at least one pixel"
        if not all(_LEAST_CORNER <= at <= _MOST_CORNER for at in (self.first, self.upper)):
            yield (
                f"pixels from {self.first} to {self.upper} beyond the end along {axis}; copies of"
                f" pixels reach from {_LEAST_CORNER} to {_MOST_CORNER}"
            )
        if (last := (self.count - 1) * self.apart) > _MOST_OFFSET:
            yield (
                f"a filter's pixel {last} behind its first one along {axis}; copies of pixels reach"
                f" {_MOST_OFFSET}"
            )


@functools.lru_cache(maxsize=1024)
def patches(kind: Operator, size: Conv2dSize) -> tuple[tuple[Taps, Taps], ...]:
    """The products of a convolution, as taps along H and W: a strided dgrad has one for each
    remainder of the strides, whose pixels meet the same taps; all others have one. Those with the
    most taps come first."""
    s = size
    if kind is Operator.dgrad:
        axes = [
            _gradients(s.h, s.p, s.r, s.stride_h, s.dilation_h, s.pad_h),
            _gradients(s.w, s.q, s.s, s.stride_w, s.dilation_w, s.pad_w),
        ]
    else:
        axes = [
            [_results(s.h, s.p, s.r, s.stride_h, s.dilation_h, s.pad_h)],
            [_results(s.w, s.q, s.s, s.stride_w, s.dilation_w, s.pad_w)],
        ]
    if s.flipped:
        extents = (s.r, s.s)
        axes = [
            [_flipped(item, extent) for item in axis]
            for axis, extent in zip(axes, extents, strict=True)
        ]
    pairs = [(h, w) for h, w in itertools.product(*axes) if h.pixels and w.pixels]
    return tuple(sorted(pairs, key=lambda pair: -pair[0].count * pair[1].count))


def _results(extent: int, pixels: int, taps: int, stride: int, dilation: int, pad: int) -> Taps:
    """The pixels of results."""
    return Taps(
        extent=extent,
        pixels=pixels,
        stride=stride,
        first=-pad,
        count=taps,
        apart=dilation,
        filter=0,
        step=1,
    )


def _gradients(
    extent: int, results: int, taps: int, stride: int, dilation: int, pad: int
) -> list[Taps]:
    """The pixels of an image, by their remainder of the stride: results i stride - pad + r dilation
    is one of them for some of the taps r, the last of which meets the first result."""
    found = []
    for remainder in range(stride):
        met = [r for r in range(taps) if (remainder + pad - r * dilation) % stride == 0]
        every = stride // math.gcd(stride, dilation)
        empty = Taps(
            extent=results,
            pixels=-(-(extent - remainder) // stride),
            stride=1,
            first=0,
            count=0,
            apart=0,
            filter=0,
            step=0,
            remainder=remainder,
            every=stride,
        )
        if met:
            empty = replace(
                empty,
                first=(remainder + pad - met[-1] * dilation) // stride,
                count=len(met),
                apart=every * dilation // stride,
                filter=met[-1],
                step=-every,
            )
        found.append(empty)
    return found


def _flipped(taps: Taps, extent: int) -> Taps:
    """The same of a filter whose taps are in the opposite order."""
    return replace(taps, filter=extent - 1 - taps.filter, step=-taps.step)


def beyond_counts(kind: Operator, size: Conv2dSize) -> Iterator[str]:
    """Why kernels don't count so many: in 32 bits, twice as many as a plan is made for."""
    m, n, k = kind.extents(size)
    most = max(m, n, k, size.n * size.h * size.w, size.n * size.p * size.q)
    if 2 * most > MOST:
        yield f"{most} pixels, or sums or columns of its matrix product; {MOST // 2} are counted"
