"""Arithmetic on shapes and strides: broadcasting, collapsing batch dimensions, dense copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kronop.descriptions.datatype import AnyLayout, Layout
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.size import round_up

Ints = tuple[int, ...]
Shape = tuple[Any, ...]
"""Extents: integers, or symbols of torch's that stand for some."""
Broadcast = Callable[[Sequence[tuple[str, Shape]]], Shape]
"""The common shape of named leading dimensions."""


def broadcasts(shape: Sequence[int], goal: Sequence[int]) -> bool:
    """Whether `shape` repeats to `goal` by NumPy's rule, with no more dimensions than it."""
    return len(shape) <= len(goal) and all(
        own in (1, whole) for own, whole in zip(shape[::-1], goal[::-1], strict=False)
    )


def broadcast_shapes(named: Sequence[tuple[str, Ints]]) -> Ints:
    """The common shape of leading dimensions, by the rule of torch.matmul and NumPy.

    Raises:
        ArgumentError: two extents differ and neither is 1; the message names both tensors.
    """
    result: list[int] = []
    blame: list[str] = []
    for name, shape in named:
        missing = len(shape) - len(result)
        if missing > 0:
            result[:0] = [1] * missing
            blame[:0] = [name] * missing
        for axis in range(1, len(shape) + 1):
            extent = shape[-axis]
            if extent == result[-axis] or extent == 1:
                continue
            if result[-axis] != 1:
                raise ArgumentError(
                    f"leading dimensions of {name}",
                    got=f"{shape}",
                    expected=f"{result[-axis]} or 1 in dimension -{axis} of them"
                    f" (from {blame[-axis]})",
                    hint="they broadcast as in torch.matmul",
                )
            result[-axis], blame[-axis] = extent, name
    return tuple(result)


def broadcast_strides(shape: Ints, strides: Ints, target: Ints) -> Ints:
    """Strides over the shape `target`, to which `shape` broadcasts: 0 for repeated extents."""
    missing = len(target) - len(shape)
    own = (
        stride if extent == goal else 0
        for extent, stride, goal in zip(shape, strides, target[missing:], strict=True)
    )
    return (0,) * missing + tuple(own)


@dataclass(frozen=True, slots=True)
class Loops:
    """Nested loops over `rows` and batch `extents` that several operands walk together.

    Attributes:
        rows: extent of the row dimension.
        extents: extents of the batch dimensions.
        row_strides: one row stride for each operand with rows: an input, the result, then others.
        batch_strides: for each operand (those with rows first), one stride per batch dimension.
    """

    rows: int
    extents: Ints
    row_strides: Ints
    batch_strides: tuple[Ints, ...]


def collapse(loops: Loops, unit_rows: tuple[bool, ...]) -> Loops:
    """The same addresses with as few batch dimensions as possible.

    Dimensions of extent 1 are dropped. Two dimensions become one if, in every operand, the outer
    stride is the inner stride times the inner extent. A dimension in which all operands without
    rows have stride 0 becomes part of the rows, if the strides of the others allow it.

    Args:
        loops: no extent may be 0.
        unit_rows: for each operand with rows, whether its row stride must be 1.
    """
    if not loops.extents:
        return loops
    by_axis = zip(loops.extents, zip(*loops.batch_strides, strict=True), strict=True)
    axes = [(extent, strides) for extent, strides in by_axis if extent != 1]
    # Sorted by the result's strides, the widest first: the result never repeats an address, so its
    # strides are never 0.
    axes.sort(key=lambda axis: -abs(axis[1][1]))
    axes = merged(axes)
    rows, row_strides, moving = loops.rows, loops.row_strides, len(loops.row_strides)
    position = len(axes) - 1
    while position >= 0:
        extent, strides = axes[position]
        folded = None
        if not any(strides[moving:]):
            folded = _folded(rows, row_strides, extent, strides[:moving], unit_rows)
        if folded is None:
            position -= 1
            continue
        rows, row_strides = folded
        del axes[position]
        position = len(axes) - 1
    axes = merged(axes)
    batch_strides = tuple(
        tuple(strides[operand] for _, strides in axes)
        for operand in range(len(loops.batch_strides))
    )
    return Loops(rows, tuple(extent for extent, _ in axes), row_strides, batch_strides)


def merged(axes: list[tuple[int, Ints]]) -> list[tuple[int, Ints]]:
    """The same loops, with two as one where in every operand the outer stride is the inner stride
    times the inner extent."""
    found: list[tuple[int, Ints]] = []
    for extent, strides in axes:
        if found:
            outer, outer_strides = found[-1]
            if all(
                wide == narrow * extent for wide, narrow in zip(outer_strides, strides, strict=True)
            ):
                found[-1] = (outer * extent, strides)
                continue
        found.append((extent, strides))
    return found


def _folded(
    rows: int, row_strides: Ints, extent: int, strides: Ints, unit_rows: tuple[bool, ...]
) -> tuple[int, Ints] | None:
    if rows == 1:
        candidate = strides
    elif all(wide == row * rows for wide, row in zip(strides, row_strides, strict=True)):
        candidate = row_strides
    elif all(row == narrow * extent for narrow, row in zip(strides, row_strides, strict=True)):
        candidate = strides
    else:
        return None
    if any(unit and stride != 1 for unit, stride in zip(unit_rows, candidate, strict=True)):
        return None
    return rows * extent, candidate


def flat_stride(shape: Ints, strides: Ints) -> int | None:
    """The stride of these dimensions as a single one, the last varying fastest; None if no single
    stride reaches all elements."""
    if 0 in shape:
        return strides[-1]
    axes: list[tuple[int, Ints]] = [
        (extent, (stride,)) for extent, stride in zip(shape, strides, strict=True) if extent != 1
    ]
    axes = merged(axes)
    if not axes:
        return 0
    return axes[0][1][0] if len(axes) == 1 else None


def matrix_strides(shape: Ints, layout: AnyLayout, alignment: int) -> Ints:
    """Strides of a dense copy: matrices in this layout, aligned, one after another in memory.

    The shape of interleaved ones is that of their panels.
    """
    if len(shape) < 2:
        return (1,) * len(shape)
    rows, columns = shape[-2:]
    if layout is not Layout.ColumnMajor:
        row, column = round_up(columns, alignment), 1
        inner = rows * row
    else:
        row, column = 1, round_up(rows, alignment)
        inner = columns * column
    outer, unit = [], max(inner, 1)
    for extent in reversed(shape[:-2]):
        outer.append(unit)
        unit *= max(extent, 1)
    return (*reversed(outer), row, column)


def reach(shape: Ints, strides: Ints) -> tuple[int, int]:
    """The lowest and highest offset in elements, both inclusive; no extent may be 0."""
    ends = [(stride, (extent - 1) * stride) for extent, stride in zip(shape, strides, strict=True)]
    return sum(end for step, end in ends if step < 0), sum(end for step, end in ends if step > 0)


def is_gapless(shape: Ints, strides: Ints) -> bool:
    """Whether the elements fill the memory from the lowest to the highest of them."""
    low, high = reach(shape, strides)
    pairs = zip(shape, strides, strict=True)
    return high - low + 1 == math.prod(extent for extent, stride in pairs if stride)
