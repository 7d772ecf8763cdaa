"""Interleaved tensors: how they are made, what they have to be, and where kernels find them."""

from __future__ import annotations

from typing import Any

from kronop.args.placing import Placed
from kronop.args.staging import Form
from kronop.args.tensor import empty, view
from kronop.args.view import Device, TensorView, contiguous_strides
from kronop.descriptions.datatype import (
    INTERLEAVE,
    INTERLEAVED_TYPES,
    ColumnMajorInterleaved32,
    InterleavedLayout,
)
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ElementTypeError
from kronop.families.gemm.panels import DIMENSIONS, Ints
from kronop.families.gemm.shape_arguments import check_whole, shape_error

_FRAMEWORKS = ("numpy", "torch", "cupy")


def interleave(matrix: Any, layout: InterleavedLayout) -> Any:
    """An interleaved matrix: its panels of 32 rows or columns, in a new tensor without gaps.

    Args:
        matrix: (..., rows, columns) of int8 or int32, of NumPy, torch or CuPy.
        layout: `kronop.ColumnMajorInterleaved32`, for A, C and D: (..., columns/32, rows, 32); or
            `kronop.RowMajorInterleaved32`, for B: (..., rows/32, columns, 32).

    Returns:
        The panels, of the shape that the layout says, and of the matrix's kind and element type.

    Raises:
        ArgumentError: it is no matrix, or the extent that panels cut is no multiple of 32.
        ElementTypeError: it is no such tensor, or the layout is none of the two.

    Example:
        >>> matrix = np.arange(256, dtype=np.int32).reshape(4, 64)
        >>> panels = kronop.gemm.interleave(matrix, kronop.ColumnMajorInterleaved32)
        >>> panels.shape
        (2, 4, 32)
        >>> bool((panels[1, 0] == matrix[0, 32:]).all())
        True
    """
    by_columns, seen = _read(matrix, layout, 2)
    *lead, rows, columns = seen.shape
    cut, other = (columns, rows) if by_columns else (rows, columns)
    check_whole("columns" if by_columns else "rows", cut)
    panels = cut // INTERLEAVE
    if by_columns:
        found = matrix.reshape(*lead, rows, panels, INTERLEAVE).swapaxes(-3, -2)
    else:
        found = matrix.reshape(*lead, panels, INTERLEAVE, columns).swapaxes(-2, -1)
    return _filled(seen, (*lead, panels, other, INTERLEAVE), found)


def deinterleave(panels: Any, layout: InterleavedLayout) -> Any:
    """The matrix that panels hold, row-major, in a new tensor: the inverse of `interleave`.

    Args:
        panels: (..., columns/32, rows, 32), or (..., rows/32, columns, 32) for
            `kronop.RowMajorInterleaved32`.
        layout: that of the panels, one of the two that `interleave` takes.

    Returns:
        (..., rows, columns), of the panels' kind and element type.

    Raises:
        ArgumentError: the last dimension is not 32, or there are fewer than three.
        ElementTypeError: as of `interleave`.

    Example:
        >>> matrix = np.arange(256, dtype=np.int32).reshape(4, 64)
        >>> panels = kronop.gemm.interleave(matrix, kronop.ColumnMajorInterleaved32)
        >>> again = kronop.gemm.deinterleave(panels, kronop.ColumnMajorInterleaved32)
        >>> bool((again == matrix).all())
        True
    """
    by_columns, seen = _read(panels, layout, DIMENSIONS)
    *lead, count, other, width = seen.shape
    if width != INTERLEAVE:
        raise shape_error("panels", "(..., panels, rows or columns, 32)", seen.shape)
    cut = count * INTERLEAVE
    if by_columns:
        shape, found = (*lead, other, cut), panels.swapaxes(-3, -2)
    else:
        shape, found = (*lead, cut, other), panels.swapaxes(-2, -1)
    return _filled(seen, shape, found.reshape(shape))


def placed(item: TensorView, described: TensorDescription, device: Device) -> Placed:
    """An interleaved operand: in its panels on a GPU; on a CPU, whose kernels know two strides, in
    a copy whose lines, of 32 elements of each panel, are contiguous."""
    if not device.is_host:
        return Placed.of(item, described, device, DIMENSIONS)
    lines = item.reshaped(_turned(item.shape), _turned(item.strides))
    joined = lines.shape[-2] <= 1 or not lines.size
    form = None if joined else Form(lines.shape, contiguous_strides(lines.shape))
    plain = TensorDescription(described.element)
    return Placed(view=lines, described=plain, inner=DIMENSIONS, form=form)


def strides(item: Placed, described: TensorDescription, device: Device) -> tuple[int, int]:
    """What kernels know of an operand: on a GPU the strides within panels and between them, else of
    rows and columns."""
    along, within, _ = item.own
    if not device.is_host:
        return within, along
    return (along, 1) if described.layout is ColumnMajorInterleaved32 else (1, along)


def _turned(values: Ints) -> Ints:
    """Extents or strides of panels (..., P, R, 32) in the order (..., R, P, 32): R lines of P
    pieces each."""
    *lead, panels, rows, width = values
    return (*lead, rows, panels, width)


def _read(tensor: Any, layout: InterleavedLayout, dimensions: int) -> tuple[bool, TensorView]:
    """(whether panels cut columns, the tensor's view)."""
    if not isinstance(layout, InterleavedLayout):
        raise ElementTypeError(
            "layout",
            expected=" or ".join(map(repr, InterleavedLayout)),
            got=repr(layout),
            hint="A, C and D are the former, B is the latter",
        )
    seen = view(tensor, "the tensor")
    if seen.element not in INTERLEAVED_TYPES or seen.framework not in _FRAMEWORKS:
        raise ElementTypeError(
            "an interleaved tensor",
            expected="int8 or int32 of NumPy, torch or CuPy",
            got=f"{seen.element.name} of {type(tensor).__name__}",
            hint="convert it",
        )
    if len(seen.shape) < dimensions:
        raise shape_error("the tensor", f"at least {dimensions} dimensions", seen.shape)
    return layout is ColumnMajorInterleaved32, seen


def _filled(like: TensorView, shape: Ints, values: Any) -> Any:
    found = empty(like, shape, like.element)
    found[...] = values
    return found
