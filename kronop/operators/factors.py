"""Checks of the factors that operators are made of."""

from __future__ import annotations

from collections.abc import Iterable

from kronop.descriptions.datatype import RESULT_TYPES
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.operators.frameworks import (
    batch_of,
    check_alike,
    check_decomposable,
    framework_of,
    turned,
    without_gradient,
)
from kronop.tensors import Tensor


def read_factors(factors: object, *, square: bool) -> tuple[Tensor, ...]:
    """The factors as a tuple, if they are matrices (..., P, Q) that go together.

    Raises:
        ArgumentError: there is none, one is no matrix or (where `square`) not square, leading
            dimensions do not broadcast, or frameworks are mixed.
        ElementTypeError: they are no list of tensors, of more than one element type, or of one that
            kronop has not.
    """
    if not isinstance(factors, Iterable) or hasattr(factors, "shape"):
        raise ElementTypeError(
            "factors",
            expected="a list or tuple of matrices",
            got=type(factors).__name__,
            hint="wrap a single factor in a list",
        )
    found = tuple(factors)
    if not found:
        raise ArgumentError("factors", expected="at least one", got="none", hint="give a matrix")
    names = [f"factors[{index}]" for index in range(len(found))]
    framework_of(found[0], names[0])
    _check_known(found[0].dtype)
    for name, item in zip(names, found, strict=True):
        check_alike(item, name, found[0], names[0])
        if len(item.shape) < 2 or (square and item.shape[-1] != item.shape[-2]):
            wanted = "(..., N, N)" if square else "(..., P, Q)"
            shape = tuple(item.shape)
            hint = "give a square matrix" if square else "give a matrix"
            raise ArgumentError(name, expected=wanted, got=shape, hint=hint)
        if 0 in item.shape[-2:]:
            shape = tuple(item.shape)
            raise ArgumentError(
                name, expected="a matrix with elements", got=shape, hint="leave it out"
            )
    batch_of(*(item.shape[:-2] for item in found))
    return found


def _check_known(dtype: object) -> None:
    """Refuses an element type of which there are no products."""
    name = getattr(dtype, "name", str(dtype).removeprefix("torch."))
    if name not in RESULT_TYPES:
        raise ElementTypeError(
            "element type of factors[0]",
            expected=f"one of {', '.join(RESULT_TYPES)}",
            got=name,
            hint=converting(name, "convert the factors"),
        )


def check_symmetric(matrix: Tensor, name: str) -> None:
    """Refuses a matrix that is not square, differs from its transpose by more than rounding, or is
    not finite."""
    check_decomposable(matrix)
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ArgumentError(
            name,
            expected="a symmetric matrix",
            got=f"one of shape {tuple(matrix.shape)}",
            hint="eigendecompositions are of operators whose every factor is symmetric",
        )
    difference = asymmetry(matrix, name)
    if difference:
        raise ArgumentError(
            name,
            expected="a symmetric matrix",
            got=f"one that differs from its transpose by {difference:.2g}",
            hint="eigendecompositions are of symmetric factors; (F + F.T) / 2 is symmetric, and"
            " scipy.sparse.linalg.gmres with kronop.scipy.LinearOperator takes any",
        )


def asymmetry(matrix: Tensor, name: str) -> float:
    """By how much square matrices differ from their transposes; 0 where that is rounding.

    Raises:
        ArgumentError: one is not finite.
    """
    if 0 in matrix.shape:
        return 0.0
    framework = framework_of(matrix, name)
    # N products and sums that were rounded in another order differ by this much.
    bound = 4 * matrix.shape[-1] * framework.finfo(matrix.dtype).eps
    values = without_gradient(matrix)
    largest, difference = (
        framework.amax(abs(item), (-2, -1)) for item in (values, values - turned(values))
    )
    finite = framework.isfinite(largest)
    if bool((finite & (difference <= bound * largest)).all()):
        return 0.0
    if not bool(finite.all()):
        raise ArgumentError(
            name,
            expected="a matrix of finite numbers",
            got="one with NaN or infinity",
            hint="look for where it was computed",
        )
    return float(difference.max())
