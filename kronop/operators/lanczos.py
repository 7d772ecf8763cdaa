"""Stochastic Lanczos quadrature: the logarithm of a determinant, by products with some vectors.

log det M = tr log M is the mean of z^T (log M) z over vectors z of signs. Each is nearly that of
the small tridiagonal matrix that Lanczos' iterations from z make of M (Ubaru, Chen and Saad, Fast
estimation of tr(f(A)) via stochastic Lanczos quadrature, SIMAX 2017).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from kronop.errors import ArgumentError, mismatch
from kronop.operators.conjugate_gradients import levels_to_caller
from kronop.operators.frameworks import as_tensor, framework_of
from kronop.tensors import Tensor

# The quadrature is looked at each time that so many iterations were added, and ends where they
# changed the mean by so little of its standard error.
_EVERY, _MOST, _NEGLIGIBLE = 10, 500, 0.01
_UNSETTLED = mismatch(
    "logdet",
    expected=f"an estimate that no longer changes after {_MOST} of Lanczos' iterations",
    got="one that does, by more than its standard error tells",
    hint='a larger sigma2 has it settle sooner, and method="dense" is exact',
)


def signs(order: int, count: int, seed: int, beside: Tensor) -> Tensor:
    """Columns (order, count) of random signs, the same for every framework, over the root of their
    count: the mean of their outer products' sum is the identity."""
    drawn = np.random.default_rng(seed).integers(0, 2, (order, count)) * 2.0 - 1
    xp = framework_of(beside, "the operator")
    return as_tensor(xp.asarray(drawn / count**0.5), beside, "the probes")


def log_forms(multiply: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """z^T (log M) z (..., C) of columns z (..., N, C) and a positive definite M.

    Raises:
        ArgumentError: M is not positive definite.
    """
    xp = framework_of(z, "probes")
    squares = (z * z).sum(-2)
    q, before, beta, found = z / squares[..., None, :] ** 0.5, 0 * z, 0 * squares, None
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    while True:
        w = multiply(q) - beta[..., None, :] * before
        diagonal.append((w * q).sum(-2))
        w = w - diagonal[-1][..., None, :] * q
        beta = (w * w).sum(-2) ** 0.5
        # Iterations of which nothing but rounding is left have no weight.
        beta = xp.where(beta > 10 * xp.finfo(z.dtype).eps * abs(diagonal[0]), beta, 0)
        beside.append(beta)
        before, q = q, w / xp.where(beta > 0, beta, xp.inf)[..., None, :]
        exhausted = len(diagonal) >= z.shape[-2]
        if len(diagonal) % _EVERY == 0 or exhausted:
            last, found = found, squares * _quadrature(diagonal, beside[:-1])
            if exhausted or _has_ended(last, found):
                return found
            if len(diagonal) >= _MOST:
                warnings.warn(_UNSETTLED, RuntimeWarning, stacklevel=levels_to_caller())
                return found


def standard_error(values: Tensor) -> Tensor:
    """That of the mean of values (..., C)."""
    count = values.shape[-1]
    away = values - values.mean(-1)[..., None]
    return ((away * away).sum(-1) / (count * (count - 1))) ** 0.5


def _has_ended(last: Tensor | None, found: Tensor) -> bool:
    if last is None:
        return False
    change = abs((found - last).mean(-1))
    return bool((change <= _NEGLIGIBLE * standard_error(found)).all())


def _quadrature(diagonal: list[Tensor], beside: list[Tensor]) -> Tensor:
    """The element (0, 0) of log T for tridiagonal matrices T."""
    xp = framework_of(diagonal[0], "probes")
    middle = xp.stack(diagonal, -1)
    matrix = 0 * middle[..., None] * middle[..., None, :]
    at = list(range(len(diagonal)))
    matrix[..., at, at] = middle
    if beside:
        matrix[..., at[1:], at[:-1]] = matrix[..., at[:-1], at[1:]] = xp.stack(beside, -1)
    values, vectors = xp.linalg.eigh(matrix)
    weights, eps = vectors[..., 0, :] ** 2, xp.finfo(matrix.dtype).eps
    rounding = 10 * eps * xp.amax(values, -1)[..., None]
    if bool(((values < -rounding) & (weights > eps)).any()):
        raise not_definite()
    return (weights * xp.log(xp.maximum(values, rounding))).sum(-1)


def not_definite() -> ArgumentError:
    return ArgumentError(
        "the operator at the points of the mask",
        expected="a positive definite matrix",
        got="one that is not, by more than rounding",
        hint="sigma2 adds to its eigenvalues",
    )
