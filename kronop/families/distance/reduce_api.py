"""Reductions of kernel matrices over their columns, without the matrix: nearest neighbours."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from kronop.args.strides import broadcast_shapes
from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.api import matrix_of
from kronop.families.distance.arguments import check_points
from kronop.families.distance.kernels import Kernel, check_kernel
from kronop.families.distance.point_arguments import alike
from kronop.families.distance.value_arguments import lead_with_values
from kronop.families.distance.values import short

_REDUCTIONS = ("logsumexp", "max", "min", "argmax", "argmin", "topk")
# Bytes of rows that are computed and reduced at once. They stay in the second-level cache of a GPU
# (50 MB on an H200), so that the reduction does not read them from memory.
_MOST_BYTES = 1 << 24


def kernel_reduce(
    x1: Any,
    x2: Any,
    kernel: Kernel,
    reduction: str,
    k: int | None = None,
    largest: bool = False,
) -> Any:
    """A reduction over n of kernel(x1[m], x2[n]), for each m, without the matrix in memory.

    `kernel_reduce(x, y, kronop.kernels.PowerNorm(2), "topk", k=5)` gives the five nearest points of
    y for each point of x. Some rows of the matrix at a time, at most 16 MB (or one row), are
    computed, and reduced by the tensors' own framework.

    Args:
        x1: (..., M, K), as for `kernel_matrix`.
        x2: (..., N, K), with N at least 1.
        kernel: one of `kronop.kernels`, or a composite.
        reduction: "logsumexp", "max", "min", "argmax", "argmin" or "topk".
        k: how many "topk" takes, at most N; None for 1.
        largest: whether "topk" takes the largest values, instead of the smallest.

    Where values are NaN, so are all of these but indices: "argmax" and "argmin" find one of them,
    and "topk" takes them first, of the smallest values too.

    Which of equal values "topk" takes, and their order, is up to the tensors' framework.

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
    check_points(first, second)
    count = second.shape[-2]
    _check(reduction, k, largest, count)
    k = 1 if k is None else operator.index(k)
    dims = max(len(first.shape), len(second.shape)) - 2
    bound = kernel.bound(dims)
    rows, features = first.shape[-2:]
    lead = broadcast_shapes([("x1", first.shape[:-2]), ("x2", second.shape[:-2])])
    problems = math.prod(lead_with_values(lead, bound, features, (rows, count)))
    step = max(1, _MOST_BYTES // max(1, problems * count * first.element.bytes))
    parts = [
        _reduced(matrix_of(x1[..., at : at + step, :], x2, bound), reduction, k, largest)
        for at in range(0, rows, step)
    ] or [_reduced(matrix_of(x1, x2, bound), reduction, k, largest)]
    axis = -2 if reduction == "topk" else -1
    joined = [_joined(list(each), axis) for each in zip(*parts, strict=True)]
    return joined[0] if len(joined) == 1 else tuple(joined)


def _check(reduction: str, k: object, largest: object, count: int) -> None:
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ArgumentError(
            mismatch(
                "reduction",
                expected=f"one of {', '.join(_REDUCTIONS)}",
                got=repr(reduction),
                hint="topk takes k and largest",
            )
        )
    if count < 1:
        raise ArgumentError(
            mismatch("x2", expected="at least one point", got="none", hint="nothing to reduce over")
        )
    check_flag("largest", largest)
    if reduction != "topk" and (k is not None or largest):
        raise ArgumentError(
            mismatch(
                f"reduction with {'largest' if k is None else 'k'}",
                expected="topk",
                got=reduction,
                hint="leave it out, or take topk",
            )
        )
    if k is not None and not _is_count(k, count):
        raise ArgumentError(
            mismatch(
                "k",
                expected=f"an integer from 1 to {count}, the points of x2",
                got=short(k),
                hint="k=1 takes one point",
            )
        )


def _is_count(k: Any, count: int) -> bool:
    try:
        return not isinstance(k, bool) and 1 <= operator.index(k) <= count
    except TypeError:
        return False


def _reduced(matrix: Any, reduction: str, k: int, largest: bool) -> tuple[Any, ...]:
    """The reduction over the last dimension, in the matrix's framework."""
    if reduction == "logsumexp" and matrix.dtype.itemsize < 4:
        # The sum of many exponentials overflows 16 bits.
        (wide,) = _reduced(_cast(matrix, "float32"), reduction, k, largest)
        return (_cast(wide, matrix.dtype),)
    if reduction == "topk":
        return _topk(matrix, k, largest)
    if hasattr(matrix, "amax"):  # Only torch's tensors have these as methods.
        name = f"a{reduction}" if reduction in ("max", "min") else reduction
        return (getattr(matrix, name)(-1),)
    if reduction == "logsumexp":
        top = matrix.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, np.zeros_like(top))
        # NumPy's functions of CuPy's arrays are CuPy's.
        return (np.log(np.exp(matrix - top).sum(-1)) + top[..., 0],)
    return (getattr(matrix, reduction)(-1),)


def _topk(matrix: Any, k: int, largest: bool) -> tuple[Any, Any]:
    """(values, indices). All frameworks take NaN for the largest value, so that the smallest ones
    with NaN are minus the largest of minus the matrix, which is changed in place."""
    keys = matrix if largest else _negative(matrix)
    if hasattr(keys, "topk"):
        values, chosen = keys.topk(k, -1)
    else:
        last = np.argpartition(keys, keys.shape[-1] - k, -1)[..., -k:]
        order = np.argsort(np.take_along_axis(keys, last, -1), -1)[..., ::-1]
        chosen = np.take_along_axis(last, order, -1)
        values = np.take_along_axis(keys, chosen, -1)
    return values if largest else _negative(values), chosen


def _negative(own: Any) -> Any:
    """Minus the elements, in their own memory."""
    return own.neg_() if hasattr(own, "neg_") else np.negative(own, out=own)


def _cast(array: Any, kind: Any) -> Any:
    if hasattr(array, "astype"):
        return array.astype(kind)
    return array.float() if kind == "float32" else array.to(kind)


def _joined(parts: list[Any], axis: int) -> Any:
    """Results of all rows in one tensor."""
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "new_empty"):  # torch
        whole = parts[0].new_empty(_whole(parts, axis))
    else:
        whole = np.empty_like(parts[0], shape=_whole(parts, axis))
    at = 0
    for part in parts:
        extent = part.shape[axis]
        place = slice(at, at + extent)
        whole[(..., place) if axis == -1 else (..., place, slice(None))] = part
        at += extent
    return whole


def _whole(parts: list[Any], axis: int) -> tuple[int, ...]:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return tuple(shape)
