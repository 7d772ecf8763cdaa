"""Reductions of kernel matrices over their columns, without the matrix: nearest neighbours."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError
from kronop.families.distance.api import batch_dims, matrix_of
from kronop.families.distance.kernels import Kernel, PowerNorm, check_kernel
from kronop.families.distance.selection_operation import Selection, joined
from kronop.families.distance.shape_arguments import check_points, matrix_shape
from kronop.families.distance.value_arguments import alike
from kronop.families.distance.values import short

_REDUCTIONS = ("logsumexp", "max", "min", "argmax", "argmin", "topk")
# Bytes of the matrix that are computed and reduced at once. They stay in the second-level cache of
# a GPU (50 MB on an H200) and in a CPU's third-level cache, so that the reduction does not read
# them from memory.
_TILE_BYTES = {True: 1 << 23, False: 1 << 24}


def kernel_reduce(
    x1: Any, x2: Any, kernel: Kernel, reduction: str, k: int | None = None, largest: bool = False
) -> Any:
    """A reduction over n of kernel(x1[m], x2[n]), for each m, without the matrix in memory.

    `kernel_reduce(x, y, kronop.kernels.PowerNorm(2), "topk", k=5)` gives the five nearest points of
    y for each point of x. Some rows and columns of the matrix at a time, at most 16 MB, are
    computed and reduced.

    Args:
        x1: (..., M, K), as for `kernel_matrix`.
        x2: (..., N, K), with N at least 1.
        kernel: one of `kronop.kernels`, or a composite.
        reduction: "logsumexp", "max", "min", "argmax", "argmin" or "topk".
        k: how many "topk" takes, at most N; None for 1.
        largest: whether "topk" takes the largest values, instead of the smallest.

    Of equal values "topk" takes, for k up to 64 on a CPU, those of the lowest indices; else which,
    and their order, is up to the tensors' framework. Distances are compared by their squares, of
    which different ones may have equal roots. Where values are NaN, so are all of these but
    indices: "argmax" and "argmin" find one of them, and "topk" takes them first, of the smallest
    values too.

    Returns:
        (..., M), values of x1's type; indices into x2 (int64) for "argmax" and "argmin". For "topk"
        (values, indices), both (..., M, k), the smallest (or largest) first.

    Raises:
        ArgumentError: shapes, values or a reduction that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError, CompileError, DeviceError, OutOfMemoryError: as of `kernel_matrix`.

    Example:
        >>> x = np.array([[0.0, 0.0], [3.0, 1.0]])
        >>> y = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
        >>> distances, near = kronop.kernel_reduce(x, y, kronop.kernels.PowerNorm(2), "topk", k=1)
        >>> distances.tolist(), near.tolist()
        ([[1.0], [1.0]], [[1], [0]])
    """
    check_kernel(kernel)
    first, second = alike({"x1": x1, "x2": x2})
    check_points(first.shape, second.shape)
    count = second.shape[-2]
    _check(reduction, k, largest, count)
    k = 1 if k is None else operator.index(k)
    summed = _squares(kernel, reduction, first.element.bytes)
    bound = (summed or kernel).bound(batch_dims(first, second))
    *lead, _, _ = matrix_shape(first.shape, second.shape, bound)
    cells = _TILE_BYTES[first.device.is_host] // (max(1, math.prod(lead)) * first.element.bytes)
    is_sum, columns = reduction == "logsumexp", max(1, min(count, cells))
    step, parts = max(1, cells // columns), []
    tile: Any = None
    for row in range(0, max(1, first.shape[-2]), step):
        reduced = _LogSumExp() if is_sum else Selection(k, largest or "max" in reduction)
        rows = x1[..., row : row + step, :]
        for column in range(0, count, columns):
            points = x2[..., column : column + columns, :]
            shape = (*lead, rows.shape[-2], points.shape[-2])
            # Parts of one size are computed in the same memory.
            tile = tile if getattr(tile, "shape", None) == shape else None
            tile = matrix_of(rows, points, bound, out=tile)
            reduced.add(tile, column)
        parts.append(reduced.found())
    values, *indices = [joined(each, -1 if is_sum else -2) for each in zip(*parts, strict=True)]
    if summed is not None and "arg" not in reduction:
        values = values**0.5
    if reduction == "topk":
        return values, *indices
    return values if is_sum else (indices[0] if "arg" in reduction else values)[..., 0]


def _squares(kernel: Kernel, reduction: str, element_bytes: int) -> Kernel | None:
    """The kernel without its square root, which has the same order, if it has one.

    NOTE: the roots of all pairs took a quarter of the time of three features in float64, and a
    twelfth of that of 64. Squares of 16 bits would overflow.
    """
    if not isinstance(kernel, PowerNorm) or not kernel.root or type(kernel.p) not in (int, float):
        return None
    if kernel.p != 2 or reduction == "logsumexp" or element_bytes < 4:
        return None
    return PowerNorm(2, root=False)


def _check(reduction: str, k: object, largest: object, count: int) -> None:
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ArgumentError(
            "reduction",
            expected=f"one of {', '.join(_REDUCTIONS)}",
            got=repr(reduction),
            hint="topk takes k and largest",
        )
    if count < 1:
        raise ArgumentError(
            "x2", expected="at least one point", got="none", hint="nothing to reduce over"
        )
    check_flag("largest", largest)
    if reduction != "topk" and (k is not None or largest):
        raise ArgumentError(
            f"reduction with {'largest' if k is None else 'k'}",
            expected="topk",
            got=reduction,
            hint="leave it out, or take topk",
        )
    if k is not None and not _is_count(k, count):
        raise ArgumentError(
            "k",
            expected=f"an integer from 1 to {count}, the points of x2",
            got=short(k),
            hint="k=1 takes one point",
        )


def _is_count(k: Any, count: int) -> bool:
    try:
        return not isinstance(k, bool) and 1 <= operator.index(k) <= count
    except TypeError:
        return False


class _LogSumExp:
    """The logarithm of the sum of exponentials, in float32 for 16 bits, where it would overflow."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._kind: Any = None

    def add(self, matrix: Any, before: int) -> None:
        self._kind = matrix.dtype
        if matrix.dtype.itemsize < 4:
            matrix = _cast(matrix, "float32")
        # In the matrix's memory. NumPy's functions of CuPy's arrays are CuPy's.
        if hasattr(matrix, "logaddexp"):  # Only torch's tensors have it as a method.
            top = matrix.amax(-1, keepdim=True)
            top = top.where(top.isfinite(), 0.0)
            own = matrix.sub_(top).exp_().sum(-1).log_() + top[..., 0]
            self._sum = own if self._sum is None else own.logaddexp(self._sum)
            return
        top = matrix.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, np.zeros_like(top))
        matrix -= top
        own = np.log(np.exp(matrix, out=matrix).sum(-1)) + top[..., 0]
        self._sum = own if self._sum is None else np.logaddexp(own, self._sum)

    def found(self) -> tuple[Any, ...]:
        """The sum alone, as `Selection.found` gives values and indices."""
        return (_cast(self._sum, self._kind),)


def _cast(array: Any, kind: Any) -> Any:
    if hasattr(array, "astype"):
        return array.astype(kind, copy=False)
    return array.float() if kind == "float32" else array.to(kind)
