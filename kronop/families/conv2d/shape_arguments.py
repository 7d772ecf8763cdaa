"""Shapes, strides and sizes of convolutions as callers give them."""

from __future__ import annotations

import dataclasses
import math

from kronop.args import visited
from kronop.args.strides import broadcasts, flat_stride
from kronop.args.view import TensorView, contiguous_strides
from kronop.descriptions.strided import Strided
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.conv2d.description import PANEL
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Conv2dProblemSize, SplitKMode

Ints = tuple[int, ...]
AXES = "abcd"
# The axes of interleaved images and results, and of filters, in the order of channels last.
ORDERS = ((0, 2, 3, 1, 4), (3, 1, 2, 0, 4))
# Axes of images and results that are the rows of a matrix.
ROWS = 3
_HINT = (
    "shapes are (N, H, W, C), (K, R, S, C / groups) and (N, P, Q, K), channels last: those of"
    " torch's (N, C, H, W) are .permute(0, 2, 3, 1)"
)


def shaped(name: str, item: TensorView, shape: Ints, *, flat: bool) -> TensorView:
    """A tensor of this shape; one of one axis that holds its elements gets it, if it may be flat.

    Raises:
        ArgumentError: it has another shape.
    """
    if item.shape == shape:
        return item
    is_flat = flat and len(item.shape) == 1 and item.in_place
    if not is_flat or item.size != math.prod(shape):
        more = "" if flat else "; strides, padding, dilation and groups need a problem_size"
        raise misfit(name, shape, item.shape, more)
    steps = contiguous_strides(shape)
    return item.reshaped(shape, tuple(item.strides[0] * step for step in steps))


def spread_source(
    item: TensorView, shape: Ints, last: int, *, interleaved: bool, flat: bool
) -> TensorView:
    """C, whose shape repeats over that of D in memory.

    Args:
        last: the channels of D.
        flat: as of `shaped`.

    Raises:
        ArgumentError: its shape does not repeat so.
    """
    if len(item.shape) == 1 and item.size not in (1, last) and flat:
        item = shaped("C", item, shape, flat=flat)
    elif interleaved and item.shape == (last,):
        step = item.strides[0]
        item = item.reshaped((last // PANEL, 1, 1, PANEL), (PANEL * step, 0, 0, step))
    if not broadcasts(item.shape, shape):
        raise misfit("C", shape, item.shape)
    return item


def with_axes(item: visited.Visited, shape: Ints) -> visited.Visited:
    """What a visitor tree reads or writes with the axes of D, if it is given as of a matrix."""
    *lead, last = shape
    rows, view = math.prod(lead), item.view
    own = {"tensor": (rows, last), "column": (rows,)}.get(item.kind)
    if view.shape == (rows, 1) and item.kind == "column":
        view = view.reshaped((rows,), view.strides[:1])
    if view.shape != own:
        return item
    step, *within = view.strides
    steps = (step * of for of in contiguous_strides(tuple(lead)))
    found = view.reshaped((*lead, *view.shape[1:]), (*steps, *within))
    return dataclasses.replace(item, view=found)


def as_rows(item: TensorView) -> TensorView:
    """A tensor like filters as a matrix with a row for each; as it is if it is none."""
    if len(item.shape) != len(AXES):
        return item
    column = flat_stride(item.shape[1:], item.strides[1:])
    if column is None:
        return item
    shape = (item.shape[0], math.prod(item.shape[1:]))
    return item.reshaped(shape, (item.strides[0], column))


def along(shape: Ints, strides: Ints) -> Ints:
    """The strides of four axes, of extents of 1 those of a tensor without gaps; of panels, whose
    channels are in order, as of a tensor with the channels last."""
    if len(shape) > len(AXES):
        return (*strides[:ROWS], 1)
    found: list[int] = []
    unit = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        found.append(unit if extent == 1 else stride)
        unit = found[-1] * extent
    return tuple(reversed(found))


def four_axes(matrix: Strided, shape: Ints, rows: int) -> Strided:
    """A matrix as a tensor of this shape, whose first `rows` axes are its rows; one with more axes
    as it is."""
    if len(matrix.strides) > 2:
        return matrix
    row, column = matrix.strides
    steps = (*contiguous_strides(shape[:rows]), *contiguous_strides(shape[rows:]))
    each = (row if axis < rows else column for axis in range(len(shape)))
    strides = tuple(step * of for step, of in zip(steps, each, strict=True))
    return dataclasses.replace(matrix, strides=strides)


def plain_shape(shape: Ints, order: Ints) -> Ints:
    """The shape with the channels last of a tensor of panels; as it is if it is none."""
    if len(shape) != len(order):
        return shape
    *lead, panels, width = (shape[axis] for axis in order)
    return (*lead, panels * width)


def size_of(given: object, mode: object, slices: object) -> Conv2dSize | None:
    """The size that a user gave, with its slices; None if there is none.

    Raises:
        ElementTypeError: an argument has the wrong class, or there are no slices.
    """
    if not isinstance(mode, SplitKMode) or type(slices) is not int or slices < 1:
        raise ElementTypeError(
            "split_k_mode and split_k_slices",
            expected="one of kronop.conv.SplitKMode, and a positive integer",
            got=f"{mode!r} and {slices!r}",
            hint="for example kronop.conv.SplitKMode.Serial and 1",
        )
    if given is None:
        return None
    size = given.size if isinstance(given, Conv2dProblemSize) else given
    if not isinstance(size, Conv2dSize):
        raise ElementTypeError(
            "problem_size",
            expected="a kronop.conv.Conv2dProblemSize",
            got=repr(given),
            hint="or None, for strides of 1, without padding",
        )
    return dataclasses.replace(size, slices=max(slices, size.slices))


def check_panels(size: Conv2dSize) -> None:
    """Raises ArgumentError unless channels and filters fill panels, in one group."""
    if size.c % PANEL or size.k % PANEL or size.groups != 1:
        raise ArgumentError(
            "interleaved tensors",
            expected=f"C and K multiples of {PANEL}, in one group",
            got=f"C {size.c}, K {size.k}, {size.groups} groups",
            hint="take kronop.TensorNHWC",
        )


def misfit(name: str, expected: object, got: object, more: str = "") -> ArgumentError:
    """What refuses a tensor of another shape than is expected."""
    return ArgumentError(f"shape of {name}", expected=expected, got=got, hint=f"{_HINT}{more}")
