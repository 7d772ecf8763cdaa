"""Tensor maps of images, filters and results, channels last."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.families.conv2d.cuda.patches import Taps
from kronop.families.gemm.cuda.warp_group_problem import GRANULE
from kronop.tensor_map import Im2col, TensorMap


def map_of_pixels(
    item: Strided,
    ends: tuple[int, int],
    pair: tuple[Taps, Taps],
    box: tuple[int, int],
    element: DataType,
    rounds: bool,
) -> TensorMap:
    """A map whose copies are channels and pixels, as many as `box` says, of a tensor of which
    `ends` are the channels and the images."""
    (h, w), (channels, pixels) = pair, box
    corners = Im2col(
        lower_corner=(w.first, h.first),
        upper_corner=(w.upper, h.upper),
        channels_per_pixel=channels,
        pixels_per_column=pixels,
    )
    extents = (ends[0], w.extent, h.extent, ends[1])
    return map_of(item, extents, corners, element, rounds, (1, w.stride, h.stride, 1))


def map_of(
    item: Strided,
    extents: tuple[int, ...],
    box: tuple[int, ...] | Im2col,
    element: DataType,
    rounds: bool,
    steps: tuple[int, ...] = (),
) -> TensorMap:
    """A map of a tensor, the last axis of `item` first."""
    usual = operands.round_up(extents[0] * element.bytes, GRANULE)
    return TensorMap(
        address=item.pointer,
        element=element.name,
        element_bytes=element.bytes,
        extents=extents,
        # No copy needs the stride of an axis with one place, which may be any number.
        strides=tuple(
            step * element.bytes if extent > 1 else usual
            for step, extent in zip(item.strides[-2::-1], extents[1:], strict=True)
        ),
        box=box,
        element_strides=steps,
        rounds=rounds,
    )
