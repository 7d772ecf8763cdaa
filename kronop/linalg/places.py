"""Where libraries work: in the caller's memory if that is allowed and fits, else in copies.

Copies of square matrices are row-major, so the libraries see them transposed. Copies of right-hand
sides are column-major, with the columns of all systems one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronop.frozen import dataclass
from kronop.linalg.arrays import Arrays
from kronop.linalg.matrices import Matrices, matrices
from kronop.linalg.systems import SquareProblem, System
from kronop.tensors import Tensor

_MOST_LEADING = (1 << 31) - 1  # The batched routines take the leading dimension as an int.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Square:
    """Square matrices as the libraries see them.

    Attributes:
        matrices: them, or their transposes.
        transposed: whether it is their transposes.
        in_place: whether they lie in the caller's memory.
    """

    matrices: Matrices
    transposed: bool
    in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unknowns:
    """Right-hand sides, and later the solutions.

    Attributes:
        rows: of shape (count, C, N): the columns of each system, as rows.
        matrices: the same memory as N x C matrices, or as one N x (count * C) matrix if one square
            matrix is shared.
        in_place: whether they lie in the caller's memory.
    """

    rows: Tensor
    matrices: Matrices
    in_place: bool


def place_square(arrays: Arrays, problem: SquareProblem, batch: tuple[int, ...]) -> Square:
    """The matrices of a problem over the leading dimensions `batch`, to which they broadcast."""
    item, order = problem.a, problem.order
    *_, row, column = item.strides
    by_columns = _fits(order, order, row, column)
    usable = item.in_place and _common_stride(problem.batch, item.strides[:-2]) is not None
    if (
        problem.overwrite
        and usable
        and batch == problem.batch
        and (by_columns or _fits(order, order, column, row))
    ):
        tensor = problem.tensor.reshape((problem.count, order, order))
        seen = tensor if by_columns else tensor.swapaxes(-1, -2)
        return Square(matrices=matrices(seen), transposed=not by_columns, in_place=True)
    copy = arrays.empty((*batch, order, order), item.element)
    copy[...] = problem.tensor
    seen = copy.reshape((math.prod(batch), order, order)).swapaxes(-1, -2)
    return Square(matrices=matrices(seen), transposed=True, in_place=False)


def place_columns(arrays: Arrays, system: System) -> Unknowns:
    """The right-hand sides of a system, which the library replaces by the solution."""
    rows, in_place = _rows(arrays, system)
    count, columns, order = rows.shape
    seen = rows.reshape((1, count * columns, order)) if system.shared else rows
    return Unknowns(rows=rows, matrices=matrices(seen.swapaxes(-1, -2)), in_place=in_place)


def _rows(arrays: Arrays, system: System) -> tuple[Tensor, bool]:
    given = system.tensor[..., None] if system.vector else system.tensor
    given = given.swapaxes(-1, -2)
    shape = (system.count, system.columns, system.square.order)
    if system.overwrite and _is_usable(system):
        return given.reshape(shape), True
    copy = arrays.empty((*system.batch, *shape[1:]), system.b.element)
    copy[...] = given
    return copy.reshape(shape), False


def _is_usable(system: System) -> bool:
    """Whether the library can solve in the memory of b."""
    item, order = system.b, system.square.order
    if not item.in_place:
        return False
    if system.vector:
        return _fits(order, 1, item.strides[0], 0)
    *leading, row, column = item.strides
    if not system.shared:
        separate = _common_stride(system.batch, leading) is not None
        return separate and _fits(order, system.columns, row, column)
    # The columns of all systems have to follow each other at the same distance.
    stride = _common_stride((*system.batch, system.columns), (*leading, column))
    return stride is not None and _fits(order, system.count * system.columns, row, stride)


def _fits(rows: int, columns: int, row: int, column: int) -> bool:
    """Whether strides are those of column-major matrices, as libraries take them."""
    return (row == 1 or rows <= 1) and (columns <= 1 or max(rows, 1) <= column <= _MOST_LEADING)


def _common_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride with which the dimensions are walked as if they were one; None if there is none.

    Where there is only one element, it is 0.
    """
    common, following = 0, None
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 1:
            continue
        if following is None:
            common = stride
        elif stride != following:
            return None
        following = stride * extent
    return common
