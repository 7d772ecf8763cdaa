"""Whether tensors share memory: bounds are compared first; if they overlap, NumPy's exact solver
decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronop.args.strides import Ints, reach
from kronop.args.view import CPU, TensorView

_RAW_TYPES = {1: "|i1", 2: "<i2", 4: "<i4", 8: "<i8"}


class RawMemory:
    """A tensor's memory as integers of the element's width, for NumPy, CuPy and torch to read.

    It keeps the owner alive.
    """

    def __init__(self, item: TensorView) -> None:
        size = item.element.bytes
        interface = {
            "data": (item.pointer, False),
            "shape": item.shape,
            "typestr": _RAW_TYPES[size],
            "version": 3,
            "strides": tuple(stride * size for stride in item.strides),
        }
        kind = "array" if item.device.is_host else "cuda_array"
        setattr(self, f"__{kind}_interface__", interface)
        self.owner = item.owner


def raw_array(item: TensorView) -> Any:
    """A NumPy array over host memory, of integers as wide as the element."""
    return np.asarray(RawMemory(item))


def _addresses(item: TensorView, start: int, shape: Ints, strides: Ints) -> Any:
    """An array with these addresses for NumPy's overlap solver; its memory is never accessed."""
    fake = replace(item, pointer=start, shape=shape, strides=strides, device=CPU, owner=None)
    return raw_array(fake)


def span(item: TensorView) -> tuple[int, int]:
    """The address of the lowest element's first byte, and the address after the highest element."""
    low, high = reach(item.shape, item.strides)
    size = item.element.bytes
    return item.pointer + low * size, item.pointer + (high + 1) * size


def ends(item: TensorView) -> tuple[int, int]:
    """The same in bytes from the tensor's address."""
    low, high = span(item)
    return low - item.pointer, high - item.pointer


def is_crossed(
    read: Sequence[tuple[int, int, int]],
    written: Sequence[tuple[int, int, int]],
    addresses: Sequence[int],
) -> bool:
    """Whether memory that is written overlaps other memory, by the bounds of both.

    Args:
        read, written: an index of `addresses`, and bounds as of `ends`, of each tensor.
    """
    every = [
        (addresses[slot] + below, addresses[slot] + above, is_written)
        for spans, is_written in ((read, False), (written, True))
        for slot, below, above in spans
    ]
    end = end_of_written = 0
    for low, high, is_written in sorted(every):
        if low < (end if is_written else end_of_written):
            return True
        end = max(end, high)
        if is_written:
            end_of_written = high
    return False


def overlaps(first: TensorView, second: TensorView) -> bool:
    """Whether an element of one shares a byte with an element of the other. Exact."""
    if 0 in first.shape or 0 in second.shape or not (first.in_place and second.in_place):
        return False
    first_low, first_high = span(first)
    second_low, second_high = span(second)
    if first_high <= second_low or second_high <= first_low:
        return False
    if _are_blocks_of_columns(first, second) or _are_blocks_of_columns(second, first):
        return False
    arrays = (_addresses(item, item.pointer, item.shape, item.strides) for item in (first, second))
    return bool(np.shares_memory(*arrays))


def _are_blocks_of_columns(left: TensorView, right: TensorView) -> bool:
    """Whether both are columns of one row-major matrix, those of `right` after those of `left`.

    NOTE: the solver takes 20 us, and groups of products compare many such results.
    """
    if len(left.shape) != 2 or left.strides != right.strides or left.element != right.element:
        return False
    pitch, unit = left.strides
    apart, within = divmod(right.pointer - left.pointer, left.element.bytes)
    if unit != 1 or pitch <= 0 or within:
        return False
    at = apart % pitch
    return left.shape[1] <= at and at + right.shape[1] <= pitch


def overlaps_itself(item: TensorView) -> bool:
    """Whether two different indices reach the same element. Exact."""
    if 0 in item.shape:
        return False
    axes = sorted(
        (abs(stride), extent)
        for extent, stride in zip(item.shape, item.strides, strict=True)
        if extent > 1
    )
    inner = 0
    for stride, extent in axes:
        if stride <= inner:
            break
        inner += (extent - 1) * stride
    else:
        return False
    return _overlaps_itself_exactly(axes, item)


def _overlaps_itself_exactly(axes: list[tuple[int, int]], item: TensorView) -> bool:
    # Take two different indices that reach one element, and the first axis in which they differ.
    # Shifted so that one of them is 0 there, one lies in `here` (index 0 in that axis) and the
    # other in `there` (an index from 1 on). So elements repeat if these share memory for some axis.
    base = 1 << 40
    strides = tuple(stride for stride, _ in axes)
    extents = tuple(extent for _, extent in axes)
    for axis, (stride, extent) in enumerate(axes):
        here = _addresses(item, base, extents[axis + 1 :], strides[axis + 1 :])
        start, others = base + stride * item.element.bytes, (extent - 1, *extents[axis + 1 :])
        there = _addresses(item, start, others, strides[axis:])
        if np.shares_memory(here, there):
            return True
    return False


def same_elements(first: TensorView, second: TensorView) -> bool:
    """Whether both views have the same elements at the same indices."""
    if (
        first.pointer != second.pointer
        or first.shape != second.shape
        or first.element != second.element
    ):
        return False
    triples = zip(first.shape, first.strides, second.strides, strict=True)
    return all(one == other for extent, one, other in triples if extent > 1)
