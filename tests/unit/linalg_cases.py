"""Systems for the tests of kronop.linalg, and the bounds that solutions have to keep."""

from __future__ import annotations

from typing import Any

import numpy as np

import kronop

# Shapes of a and b: vectors, batches, broadcasts in both directions, and nothing to solve.
SHAPES = [
    ((5, 5), (5,)),
    ((1, 1), (1, 3)),
    ((6, 6), (6, 2)),
    ((3, 5, 5), (3, 5, 2)),
    ((2, 1, 4, 4), (3, 4, 2)),
    ((5, 5), (2, 3, 5, 2)),
    ((4, 5, 5), (5, 1)),
    ((0, 0), (0, 2)),
    ((2, 4, 4), (2, 4, 0)),
    ((0, 4, 4), (4, 3)),
]
# How a matrix may lie in memory; each function gives equal values in another layout.
LAYOUTS = {
    "rows": lambda x: x.copy(),
    "columns": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "gaps": lambda x: np.repeat(np.repeat(x, 2, -1), 3, -2)[..., ::3, ::2],
    "padded": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3)])[..., : x.shape[-1]],
    "apart": lambda x: np.repeat(x, 2, 0)[::2],
}


def lies_in_place(layout: str, shape: tuple[int, ...]) -> bool:
    """Whether a library can work on matrices of this layout where they lie."""
    return shape == (1, 1) or not (layout == "gaps" or (layout == "apart" and len(shape) > 3))


def matrices(shape: tuple[int, ...], dtype: str, *, definite: bool) -> Any:
    """Random matrices, symmetric positive definite or general."""
    g = np.random.default_rng(sum(shape) + definite).standard_normal(shape)
    return (g @ g.swapaxes(-1, -2) + np.eye(shape[-1]) if definite else g).astype(dtype)


def columns(shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check_solution(a: Any, b: Any, x: Any, info: Any, *, definite: bool) -> None:
    """Checks shapes, and a x = b in float64 within the bound of a backward stable solution.

    Higham, Accuracy and Stability of Numerical Algorithms: the computed x solves a system in which
    a differs by at most (3 N + 1) u |L||U|, and |L||U| is at most N times a's norm for Cholesky.
    For LU the growth of the elements of U comes on top, which for random matrices is below N.
    """
    assert x.dtype == a.dtype
    assert info.dtype == np.int32
    order, unit = a.shape[-1], np.finfo(a.dtype).eps
    if b.ndim == 1:
        assert x.shape == b.shape
        b, x = b[:, None], x[:, None]
    a, b, x = (item.astype(np.float64) for item in (a, b, x))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    assert x.shape == (*batch, order, b.shape[-1])
    assert info.shape == batch
    assert not info.any()
    residual = np.linalg.norm(a @ x - b, axis=(-2, -1))
    size = np.linalg.norm(a, axis=(-2, -1)) * np.linalg.norm(x, axis=(-2, -1))
    growth = 1 if definite else max(order, 1)
    assert (residual <= (3 * order + 1) * order * growth * unit * size).all()


def check_eigenvectors(a: Any, w: Any, v: Any, info: Any) -> None:
    """Checks a v = v w and orthonormal columns, within a small multiple of N u |a|."""
    order, unit = a.shape[-1], np.finfo(a.dtype).eps
    assert w.dtype == v.dtype == a.dtype
    assert info.dtype == np.int32
    assert (w.shape, v.shape, info.shape) == (a.shape[:-1], a.shape, a.shape[:-2])
    assert not info.any()
    a, w, v = (item.astype(np.float64) for item in (a, w, v))
    assert (np.diff(w) >= 0).all()
    bound = 10 * order * unit
    residual = np.linalg.norm(a @ v - v * w[..., None, :], axis=(-2, -1))
    assert (residual <= bound * np.linalg.norm(a, axis=(-2, -1))).all()
    assert (abs(v.swapaxes(-1, -2) @ v - np.eye(order)) <= bound).all()


def one_triangle(a: Any, lower: bool) -> Any:
    """The matrices with NaN in the triangle that must not be read."""
    kept = np.tril(np.ones(a.shape[-2:], bool))
    return np.where(kept if lower else kept.T, a, np.nan).astype(a.dtype)


def failing(dtype: str) -> tuple[Any, Any, Any]:
    """(indefinite matrices, singular ones, right-hand sides): number 1 of 3 fails at order 3."""
    definite = matrices((3, 4, 4), dtype, definite=True)
    definite[1] = np.diag([1, 2, -1, 3])
    singular = np.array([np.eye(4), np.diag([1, 2, 0, 3]), 2 * np.eye(4)], dtype)
    return definite, singular, columns((3, 4, 2), dtype)


def check_only_second_failed(x: Any, info: Any, order: int) -> None:
    assert info.tolist() == [0, order, 0]
    assert np.isnan(x[1]).all()
    assert np.isfinite(x[[0, 2]]).all()


SOLVERS = {True: kronop.linalg.solve_cholesky, False: kronop.linalg.solve_lu}
