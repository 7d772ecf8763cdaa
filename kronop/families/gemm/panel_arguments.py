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
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.gemm.panels import DIMENSIONS, Ints

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
        raise _shape_error("panels", "(..., panels, rows or columns, 32)", seen.shape)
    cut = count * INTERLEAVE
    if by_columns:
        shape, found = (*lead, other, cut), panels.swapaxes(-3, -2)
    else:
        shape, found = (*lead, cut, other), panels.swapaxes(-2, -1)
    return _filled(seen, shape, found.reshape(shape))


def check_panels(item: TensorView, name: str) -> None:
    """Raises ArgumentError unless a tensor holds panels, each of them without gaps."""
    width = item.shape[-1] if item.shape else None
    if len(item.shape) < DIMENSIONS or width != INTERLEAVE:
        expected = {
            "A": "(..., K/32, M, 32)",
            "B": "(..., K/32, N, 32)",
        }.get(name, "(..., N/32, M, 32)")
        hint = "flat tensors need a problem_size; kronop.gemm.interleave makes panels of a matrix"
        raise _shape_error(name, f"{expected}, interleaved", item.shape, hint)
    # Of extents above 1, strides tell where elements are.
    follows = item.shape[-2] <= 1 or item.strides[-2] == INTERLEAVE
    if item.size and not (follows and item.strides[-1] == 1 and item.in_place):
        raise ArgumentError(
            mismatch(
                f"memory of {name}",
                expected=f"panels without gaps: strides (any, {INTERLEAVE}, 1), in native byte"
                " order",
                got=f"strides {item.strides[-DIMENSIONS:]}",
                hint=f"copy {name}, or make it with kronop.gemm.interleave",
            )
        )


def check_whole(name: str, extent: int) -> None:
    """Raises ArgumentError if an extent that panels cut is no multiple of theirs."""
    if extent % INTERLEAVE:
        raise ArgumentError(
            mismatch(
                name,
                expected=f"a multiple of {INTERLEAVE}, which a panel has",
                got=extent,
                hint="pad the tensors with zeros",
            )
        )


def placed(item: TensorView, described: TensorDescription, device: Device) -> Placed:
    """An interleaved operand: in its panels on a GPU; on a CPU, whose kernels know two strides, in
    a copy whose lines, of 32 elements of each panel, are contiguous."""
    if not device.is_host:
        return Placed.of(item, described, device, DIMENSIONS)
    lines, plain = _as_lines(item), TensorDescription(described.element)
    joined = lines.shape[-2] <= 1 or not lines.size
    form = None if joined else Form(lines.shape, contiguous_strides(lines.shape))
    return Placed(view=lines, described=plain, inner=DIMENSIONS, form=form)


def strides(item: Placed, described: TensorDescription, device: Device) -> tuple[int, int]:
    """What kernels know of an operand: on a GPU the strides within panels and between them, else of
    rows and columns."""
    along, within, _ = item.own
    if not device.is_host:
        return within, along
    return (along, 1) if described.layout is ColumnMajorInterleaved32 else (1, along)


def _as_lines(item: TensorView) -> TensorView:
    """Panels (..., P, R, 32) as R lines of P pieces each: (..., R, P, 32)."""
    order = [*range(len(item.shape))]
    order[-3], order[-2] = order[-2], order[-3]
    shape, strides = (tuple(old[at] for at in order) for old in (item.shape, item.strides))
    return item.reshaped(shape, strides)


def _read(tensor: Any, layout: InterleavedLayout, dimensions: int) -> tuple[bool, TensorView]:
    """(whether panels cut columns, the tensor's view)."""
    if not isinstance(layout, InterleavedLayout):
        raise ElementTypeError(
            mismatch(
                "layout",
                expected=" or ".join(map(repr, InterleavedLayout)),
                got=repr(layout),
                hint="A, C and D are the former, B is the latter",
            )
        )
    seen = view(tensor, "the tensor")
    if seen.element not in INTERLEAVED_TYPES or seen.framework not in _FRAMEWORKS:
        raise ElementTypeError(
            mismatch(
                "an interleaved tensor",
                expected="int8 or int32 of NumPy, torch or CuPy",
                got=f"{seen.element.name} of {type(tensor).__name__}",
                hint="convert it",
            )
        )
    if len(seen.shape) < dimensions:
        raise _shape_error("the tensor", f"at least {dimensions} dimensions", seen.shape)
    return layout is ColumnMajorInterleaved32, seen


def _filled(like: TensorView, shape: Ints, values: Any) -> Any:
    found = empty(like, shape, like.element)
    found[...] = values
    return found


def _shape_error(
    name: str, expected: str, got: Ints, hint: str = "see kronop.InterleavedLayout"
) -> ArgumentError:
    return ArgumentError(mismatch(f"shape of {name}", expected=expected, got=got, hint=hint))
