"""Interleaved matrices: arrays of panels of 32 rows or columns.

The shape of one is that of its memory, in three dimensions: (K/32, M, 32) of A, (K/32, N, 32) of B,
(N/32, M, 32) of C and D. See `kronop.descriptions.datatype.InterleavedLayout`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kronop.descriptions.datatype import (
    INTERLEAVE,
    AnyLayout,
    ColumnMajorInterleaved32,
    InterleavedLayout,
    RowMajorInterleaved32,
)
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError

Ints = tuple[int, ...]

# The layouts that operands of an interleaved product have, and its result: those of CUTLASS's.
LAYOUTS: Mapping[str, InterleavedLayout] = {
    "A": ColumnMajorInterleaved32,
    "B": RowMajorInterleaved32,
    "C": ColumnMajorInterleaved32,
}
DIMENSIONS = 3


def shape_in_memory(extents: tuple[int, int], layout: AnyLayout) -> Ints:
    """The shape of a matrix of these extents: another one if it is interleaved."""
    rows, columns = extents
    if layout is ColumnMajorInterleaved32:
        return -(-columns // INTERLEAVE), rows, INTERLEAVE
    if layout is RowMajorInterleaved32:
        return -(-rows // INTERLEAVE), columns, INTERLEAVE
    return extents


def extents_of(shape: Ints, layout: AnyLayout) -> tuple[int, int]:
    """Rows and columns of a matrix of that shape."""
    if not isinstance(layout, InterleavedLayout):
        rows, columns = shape[-2:]
        return rows, columns
    count, other, _ = shape[-DIMENSIONS:]
    cut = count * INTERLEAVE
    return (other, cut) if layout is ColumnMajorInterleaved32 else (cut, other)


def check_layouts(described: Mapping[str, TensorDescription], *, visitor: bool) -> None:
    """Raises DescriptionError if some of A, B and C are interleaved, and the others are not as they
    should be then; or if the epilogue is a tree."""
    if not any(item.interleaved for item in described.values()):
        return
    for name, item in described.items():
        if item.layout is not LAYOUTS[name]:
            names = ", ".join(map(repr, LAYOUTS.values()))
            raise DescriptionError(
                f"layout of {name} of an interleaved product",
                expected=repr(LAYOUTS[name]),
                got=repr(item.layout),
                hint=f"A, B and C of one are {names}",
            )
    if visitor:
        raise DescriptionError(
            "epilogue_functor of an interleaved product",
            expected="one of the four functors",
            got="a visitor tree",
            hint="describe row-major and column-major tensors",
        )
