"""kronop.cg: many right-hand sides, and how the end is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from tests.unit.operator_cases import SQUARE, definite, kron, matrices


def _columns(*shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_every_right_hand_side_converges(dtype: str, batch: Any) -> None:
    operator = kronop.KroneckerOperator(definite(SQUARE, dtype, batch))
    dense = kron(operator.factors) + 0.5 * np.eye(24)
    for b in (_columns(24, dtype=dtype), _columns(24, 3, dtype=dtype)):
        b[..., 0] *= 1e4  # Each right-hand side has a scale of its own.
        x, info = kronop.cg(operator, b, sigma2=0.5)
        assert x.dtype == dtype
        assert x.shape == (*batch, *b.shape)
        assert info.converged.all()
        assert info.converged.shape == info.residual_norms.shape == (*batch, *b.shape[1:])
        wide = x[..., None] if b.ndim == 1 else x
        columns = b.astype("float64").reshape(24, -1)
        residual = np.linalg.norm(columns - dense @ wide.astype("float64"), axis=-2)
        # What the product itself rounds comes on top of the tolerance.
        size = np.linalg.norm(dense, 2, axis=(-2, -1)).max() * np.abs(x).max()
        rounding = 24 * 24 * np.finfo(dtype).eps * size
        assert (residual <= 1e-5 * np.linalg.norm(columns, axis=0) + rounding).all()


def test_zeros_and_exact_solutions_converge_at_once() -> None:
    operator = kronop.KroneckerOperator([np.eye(3), np.eye(4), np.eye(2)])
    b = _columns(24, 3)
    b[:, 1] = 0
    x, info = operator.cg(b)
    assert info.converged.all()
    assert info.iterations == 1
    assert np.allclose(x, b)


def test_a_preconditioner_saves_iterations() -> None:
    """A grid with missing points: the whole grid's inverse is a good preconditioner."""
    # Eigenvalues from 1e-3 to 1e3, so that plain iterations need many steps.
    factors = [np.diag(np.logspace(-1, 1, n)) for n in (3, 4, 2)]
    operator = kronop.KroneckerOperator(factors)
    seen = np.ones((24, 1))
    seen[::7] = 0

    def observed(x: Any) -> Any:
        return seen * (operator @ (seen * x)) + (1 - seen) * x

    b = seen * _columns(24, 2)
    x, plain = kronop.cg(observed, b, rtol=1e-10)
    for preconditioner in (operator.inverse(), lambda r: operator.solve(r)):
        y, helped = kronop.cg(observed, b, preconditioner=preconditioner, rtol=1e-10)
        assert helped.iterations <= plain.iterations / 2
        assert np.allclose(x, y)
        assert np.allclose(observed(y), b)


def test_what_does_not_converge_is_told() -> None:
    operator = kronop.KroneckerOperator([np.diag(np.logspace(-4, 4, n)) for n in (3, 4, 2)])
    b = _columns(24, 3)
    b[:, 2] = 0
    told = "got 2 of 3 .* after 2 of at most 2 iterations; allow more iterations"
    with pytest.warns(RuntimeWarning, match=told):
        x, info = kronop.cg(operator, b, max_iterations=2)
    assert info.converged.tolist() == [False, False, True]
    assert np.allclose(info.residual_norms, np.linalg.norm(b - operator @ x, axis=0))


@pytest.mark.parametrize("bad", ["indefinite", "not finite"])
def test_what_is_not_definite_ends_and_is_told(bad: str) -> None:
    operator = kronop.KroneckerOperator([np.diag([1.0, -1.0]), np.eye(2)])
    b = np.asarray([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    if bad == "not finite":
        operator, b[0, 1] = kronop.KroneckerOperator([np.eye(2)] * 2), np.nan
    told = "is not finite" if bad == "not finite" else "no positive curvature"
    with pytest.warns(RuntimeWarning, match=rf"kronop.cg.*1 of 2.*{told}") as caught:
        _, info = kronop.cg(operator, b)
    assert "more iterations" not in str(caught[0].message)
    assert info.converged.tolist() == [True, False]
    assert info.iterations < 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tolerance_that_rounding_does_not_allow_ends_and_is_told(dtype: str) -> None:
    operator = kronop.KroneckerOperator([np.diag(np.logspace(-1, 1, n)) for n in (3, 4, 2)])
    operator = operator.like([factor.astype(dtype) for factor in operator.factors])
    b, rtol = _columns(24, 2, dtype=dtype), float(np.finfo(dtype).eps) * 1e-5
    with pytest.warns(RuntimeWarning, match="kronop.cg.*residual no longer falls") as caught:
        _, info = kronop.cg(operator, b, rtol=rtol)
    told = str(caught[0].message)
    assert "more iterations" not in told
    assert ("use float64" in told) == (dtype == "float32")
    assert info.iterations < 1000


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_warning_points_at_the_line_of_the_call(library: str) -> None:
    factor = np.diag([1.0, 2.0, 3.0])
    b = np.ones(3)
    if library == "torch":
        torch = pytest.importorskip("torch")
        factor, b = torch.from_numpy(factor), torch.from_numpy(b)
    operator = kronop.KroneckerOperator([factor])
    for call in (kronop.cg, lambda item, b, **rest: item.cg(b, **rest)):
        with pytest.warns(RuntimeWarning, match="kronop.cg") as caught:
            call(operator, b, max_iterations=1)
        assert caught[0].filename == __file__


def test_matrices_and_torch() -> None:
    torch = pytest.importorskip("torch")
    dense, b = kron(definite(SQUARE, "float64")), _columns(24, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, _ = kronop.cg(dense, b, rtol=1e-12)
        y, info = kronop.cg(torch.from_numpy(dense), torch.from_numpy(b), rtol=1e-12)
    assert np.allclose(dense @ x, b)
    assert torch.allclose(y, torch.from_numpy(x))
    assert bool(info.converged.all())


_WIDE = kronop.KroneckerOperator(matrices([(2, 3)], "float64"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"operator": _WIDE}, ArgumentError, "cg: expected a square operator"),
        ({"operator": 3.0}, ElementTypeError, "the operator: expected an operator with @"),
        ({"operator": None}, ElementTypeError, "the operator"),
        ({"b": np.ones(2, "int64"), "operator": np.eye(2)}, ElementTypeError, "element type of b"),
        ({"preconditioner": 3.0}, ElementTypeError, "the preconditioner"),
        ({"b": [1.0, 2.0]}, ElementTypeError, "b: expected a tensor"),
        ({"b": np.ones(3)}, ArgumentError, r"shape of the operator: expected \(..., 3, 3\)"),
        (
            {"preconditioner": np.eye(3)},
            ArgumentError,
            r"shape of the preconditioner: expected \(..., 2, 2\) .*got \(3, 3\)",
        ),
        ({"rtol": -1.0}, ArgumentError, "rtol"),
        ({"atol": float("nan")}, ArgumentError, "atol"),
        ({"max_iterations": 0}, ArgumentError, "max_iterations"),
        ({"sigma2": "1"}, ElementTypeError, "sigma2"),
    ],
)
def test_errors(options: dict[str, Any], error: type, message: str) -> None:
    given = {"operator": kronop.KroneckerOperator([np.eye(2)]), "b": np.ones(2)} | options
    with pytest.raises(error, match=message):
        kronop.cg(given.pop("operator"), given.pop("b"), **given)
