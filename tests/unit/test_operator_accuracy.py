"""Residuals of solutions where factors, terms, or right-hand sides make them hard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError
from tests.unit.operator_cases import definite


def _residual(operator: Any, x: Any, b: Any) -> float:
    """|K x - b| / (|K| |x| + |b|), in float64: a few roundings for a stable solution."""
    dense = np.asarray(operator.to_dense(), np.float64)
    wide = np.asarray(x, np.float64)
    size = np.linalg.norm(dense, 2) * np.linalg.norm(wide) + np.linalg.norm(b)
    return float(np.linalg.norm(dense @ wide - b) / size)


def _definite() -> Any:
    return kronop.KroneckerOperator(definite([(5, 5), (4, 4)], "float32"))


def test_solutions_with_ill_conditioned_factors_are_backward_stable() -> None:
    n = np.arange(1.0, 13)
    hilbert = 1 / (n[:, None] + n - 1)
    random = np.random.default_rng(0)
    for factors in ([hilbert, np.eye(2)], [np.eye(3), hilbert], [hilbert[:6, :6], hilbert[:5, :5]]):
        operator = kronop.KroneckerOperator(factors)
        b = random.standard_normal((operator.shape[0], 2))
        # Elimination of each factor has an error of some roundings of its order.
        assert _residual(operator, operator.solve(b), b) < 30 * 2.0**-53 * operator.shape[0]


def test_batched_factors_and_vectors_are_divided_too() -> None:
    random = np.random.default_rng(1)
    first, second = random.standard_normal((3, 4, 4)), random.standard_normal((2, 2))
    operator, b = kronop.KroneckerOperator([first, second]), random.standard_normal(8)
    for found, matrix in zip(operator.solve(b[:, None])[..., 0], first, strict=True):
        np.testing.assert_allclose(np.kron(matrix, second) @ found, b, rtol=1e-9, atol=1e-9)
    found = kronop.KroneckerOperator([second, first[0]]).solve(b)
    np.testing.assert_allclose(np.kron(second, first[0]) @ found, b, rtol=1e-9, atol=1e-9)


def test_the_better_conditioned_term_is_divided_by() -> None:
    first = _definite()
    scales = np.array([1, 1e-6, 1, 1, 1], np.float32)
    second = kronop.KroneckerOperator([np.diag(scales), np.eye(4, dtype=np.float32)])
    b = np.random.default_rng(3).standard_normal(20).astype(np.float32)
    for total in (first + second, second + first):
        assert _residual(total, total.solve(b), b) < 200 * 2.0**-24


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_conjugate_gradients_of_any_scale(scale: float) -> None:
    operator = _definite()
    b = np.random.default_rng(3).standard_normal((20, 2)).astype(np.float32)
    found, info = kronop.cg(operator, b * np.float32(scale), sigma2=0.1)
    plain, _ = kronop.cg(operator, b, sigma2=0.1)
    assert info.converged.all()
    np.testing.assert_allclose(found / np.float32(scale), plain, rtol=1e-3, atol=1e-5)
    # A bound on residuals that is given is one of the right-hand side as it is.
    _, info = kronop.cg(operator, b * np.float32(scale), rtol=0, atol=scale)
    assert (info.residual_norms <= scale).all()


def test_what_is_symmetric_is_asked_of_each_matrix() -> None:
    crooked = np.stack([1e17 * np.eye(3), np.triu(np.ones((3, 3)))])
    with pytest.raises(ArgumentError, match="a symmetric matrix"):
        kronop.KroneckerOperator([crooked, np.eye(2)]).eigh()


def test_negative_eigenvalues_have_no_root() -> None:
    large = np.diag([1.0] + [-1.0] * 203).astype(np.float32)
    eye = np.eye(204, dtype=np.float32)
    with pytest.raises(ArgumentError, match="negative"):
        kronop.KroneckerOperator([large, eye, eye]).eigh().sqrt()
    batch = np.stack([1e17 * np.eye(3), -np.eye(3)])
    with pytest.raises(ArgumentError, match="negative"):
        kronop.KroneckerOperator([batch, np.eye(2)]).eigh().sqrt()


@pytest.mark.parametrize("function", [lambda v: v.sum(), lambda v: v[:1], lambda v: 2.0])
def test_functions_give_a_value_for_each_eigenvalue(function: Any) -> None:
    spectrum = kronop.KroneckerOperator([np.eye(3), np.eye(2)]).eigh()
    with pytest.raises(ArgumentError, match="a value of float64 for each eigenvalue"):
        spectrum.apply(function)


def test_whole_powers_of_any_integer_type() -> None:
    random = np.random.default_rng(4)
    operator = kronop.KroneckerOperator([random.standard_normal((3, 3)) for _ in range(2)])
    expected = np.linalg.matrix_power(operator.to_dense(), 2)
    np.testing.assert_allclose((operator ** np.int64(2)).to_dense(), expected, rtol=1e-12)


def test_factors_without_elements_are_refused() -> None:
    with pytest.raises(ArgumentError, match="a matrix with elements"):
        kronop.KroneckerOperator([np.empty((0, 0)), np.eye(2)])
