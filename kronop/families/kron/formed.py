"""The Kronecker product as a matrix, for frameworks whose arrays index and reshape as NumPy's."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


def kronecker_product(matrices: Iterable[Any]) -> Any:
    """The Kronecker product (..., product of rows, product of columns) of matrices (..., rows,
    columns), whose leading dimensions broadcast."""
    found = tuple(matrices)
    return narrowed(functools.reduce(_of_two, map(widened, found)), found[0])


def widened(x: Any) -> Any:
    """Values of 16 bits in float32, in which products of factors stay in range; others as they
    are."""
    if not _is_narrow(x):
        return x
    return x.float() if hasattr(x, "float") else x.astype("float32")


def narrowed(x: Any, beside: Any) -> Any:
    """What was computed of widened values, in their type."""
    if not _is_narrow(beside):
        return x
    return x.to(beside.dtype) if hasattr(x, "to") else x.astype(beside.dtype)


def _is_narrow(x: Any) -> bool:
    return str(x.dtype).endswith("float16")  # bfloat16 as well, and under torch's names.


def _of_two(left: Any, right: Any) -> Any:
    made = left[..., :, None, :, None] * right[..., None, :, None, :]
    *batch, p1, p2, q1, q2 = made.shape
    return made.reshape(*batch, p1 * p2, q1 * q2)
