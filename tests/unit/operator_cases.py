"""Operators for the tests, their dense matrices in float64, and the bounds that results keep."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

RECTANGULAR = [(3, 2), (4, 5), (2, 3)]
SQUARE = [(3, 3), (4, 4), (2, 2)]


def matrices(shapes: Any, dtype: str, batch: tuple[int, ...] = ()) -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal((*batch, *shape)).astype(dtype) for shape in shapes]


def definite(shapes: Any, dtype: str, batch: tuple[int, ...] = ()) -> list[Any]:
    """Symmetric matrices with eigenvalues from 1 on, none of them much larger."""
    made = matrices(shapes, "float64", batch)
    return [(g @ g.swapaxes(-1, -2) / 4 + np.eye(g.shape[-1])).astype(dtype) for g in made]


def kron(factors: Any) -> Any:
    """The Kronecker product in float64, for each matrix of a batch, by NumPy's own function."""
    wide = [np.asarray(factor, np.float64) for factor in factors]
    lead = np.broadcast_shapes(*(factor.shape[:-2] for factor in wide))
    wide = [np.broadcast_to(factor, (*lead, *factor.shape[-2:])) for factor in wide]
    dense = [functools.reduce(np.kron, [factor[at] for factor in wide]) for at in np.ndindex(*lead)]
    return np.reshape(dense, (*lead, *dense[0].shape))


def kronecker_sum(factors: Any) -> Any:
    orders = [np.eye(factor.shape[-1]) for factor in factors]
    return sum(kron([*orders[:at], factor, *orders[at + 1 :]]) for at, factor in enumerate(factors))


def check(found: Any, wanted: Any, size: Any, dtype: str, terms: int) -> None:
    """Compares in float64: each element is a sum of so many rounded products, and `size` is that
    sum of absolute values (Higham, Accuracy and Stability of Numerical Algorithms, 3.1)."""
    found = np.asarray(found)
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    assert (np.abs(found - wanted) <= 2 * terms * np.finfo(dtype).eps * size).all()


def check_solution(found: Any, matrix: Any, b: Any, dtype: str) -> None:
    """Compares with the solution in float64. A backward stable one differs by at most the condition
    number times N u, relatively (Higham, 7.1); decompositions of factors add a few such terms."""
    wide = np.asarray(b, np.float64)
    vector = wide.ndim == 1
    wanted = np.linalg.solve(matrix, wide[..., None] if vector else wide)
    wanted = wanted[..., 0] if vector else wanted
    found = np.asarray(found)
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    bound = 8 * matrix.shape[-1] * np.finfo(dtype).eps * np.linalg.cond(matrix).max()
    assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()
