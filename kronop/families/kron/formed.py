"""The Kronecker product as a matrix, for frameworks whose arrays index and reshape as NumPy's."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


def kronecker_product(matrices: Iterable[Any]) -> Any:
    """The Kronecker product (..., product of rows, product of columns) of matrices (..., rows,
    columns), whose leading dimensions broadcast."""
    return functools.reduce(_of_two, matrices)


def _of_two(left: Any, right: Any) -> Any:
    made = left[..., :, None, :, None] * right[..., None, :, None, :]
    *batch, p1, p2, q1, q2 = made.shape
    return made.reshape(*batch, p1 * p2, q1 * q2)
