"""Residuals of solutions where factors, terms, or right-hand sides make them hard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
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


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_factors_that_are_not_finite_are_named(value: float, library: str) -> None:
    factors = [np.stack([np.eye(3)] * 2), np.eye(2)]
    factors[0][1, 0, 2] = value  # Above the diagonal, where a Cholesky factorization looks not.
    if library == "torch":
        factors = [pytest.importorskip("torch").from_numpy(item) for item in factors]
    operator, total = kronop.KroneckerOperator(factors), kronop.KroneckerSum(factors)
    b = factors[0].reshape(-1)[:6]
    for use in (
        operator.cholesky,
        operator.eigh,
        total.eigvalsh,
        lambda: operator.solve(b, 0.1),
        lambda: total.solve(b),
        lambda: operator.logdet(0.1),
        lambda: (operator + operator).solve(b),
    ):
        with pytest.raises(ArgumentError, match=r"factors\[0\]: expected a matrix of finite"):
            use()


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


@pytest.mark.parametrize("make", [kronop.KroneckerOperator, kronop.KroneckerSum])
@pytest.mark.parametrize(
    ("element", "hint"),
    [
        ("complex128", "real and imaginary parts"),
        ("complex64", "real and imaginary parts"),
        ("bool", "convert"),
        ("longdouble", "convert"),
        ("uint8", "convert"),
    ],
)
def test_element_types_without_products_are_refused(make: Any, element: str, hint: str) -> None:
    known = r"factors\[0\]: expected one of float64, float32, .*, int8, got"
    with pytest.raises(ElementTypeError, match=f"{known} .*; .*{hint}"):
        make([np.eye(2, dtype=element)])
    torch = pytest.importorskip("torch")
    if hasattr(torch, element):
        with pytest.raises(ElementTypeError, match=f"{known} {element}; .*{hint}"):
            make([torch.ones(2, 2).to(getattr(torch, element))])


def test_factors_without_elements_are_refused() -> None:
    with pytest.raises(ArgumentError, match="a matrix with elements"):
        kronop.KroneckerOperator([np.empty((0, 0)), np.eye(2)])


def test_torch_solves_as_exactly_and_a_single_factor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    n = np.arange(1.0, 13)
    hilbert, b = 1 / (n[:, None] + n - 1), np.random.default_rng(5).standard_normal((3, 2, 24, 2))
    operator = kronop.KroneckerOperator(
        [torch.from_numpy(hilbert), torch.eye(2, dtype=torch.float64)]
    )
    shapes, solve = [], torch.linalg.solve
    monkeypatch.setattr(
        torch.linalg, "solve", lambda a, b: shapes.append(tuple(b.shape)) or solve(a, b)
    )
    found = operator.solve(torch.from_numpy(b)).numpy()
    assert shapes == [(12, 24), (2, 144)]
    for at in np.ndindex(3, 2):
        for column in range(2):
            x, wanted = found[at][:, column], b[at][:, column]
            assert _residual(operator, x, wanted) < 30 * 2.0**-53 * 24


def test_gradients_of_any_scale() -> None:
    """The gradients of a solution that is linear in b are those of scale 1, times the scale."""
    torch = pytest.importorskip("torch")
    factors = [torch.from_numpy(item) for item in definite([(5, 5), (4, 4)], "float32")]
    b = torch.from_numpy(np.random.default_rng(3).standard_normal((20, 2)).astype(np.float32))
    grads = []
    for scale in (1.0, 1e-25, 1e25):
        given = [item.clone().requires_grad_() for item in (*factors, b * scale)]
        x, info = kronop.cg(kronop.KroneckerOperator(given[:-1]), given[-1], rtol=1e-6)
        assert info.converged.all()
        found = torch.autograd.grad(x.sum(), given)
        grads.append([item / scale for item in found[:-1]] + [found[-1]])
    for found in grads[1:]:
        for item, wanted in zip(found, grads[0], strict=True):
            torch.testing.assert_close(item, wanted, rtol=1e-3, atol=1e-3)


def test_autocast_narrows_no_solution() -> None:
    torch = pytest.importorskip("torch")
    factors = [torch.from_numpy(item).requires_grad_() for item in definite([(5, 5)], "float32")]
    operator, b = kronop.KroneckerOperator(factors), torch.ones(5)
    for solve in (
        operator.solve,
        lambda b: operator.solve(b, 0.1),
        lambda b: operator.eigh().solve(b, 0.1),
        lambda b: kronop.cg(operator, b)[0],
        lambda b: (operator + operator).solve(b),
    ):
        wanted = solve(b)
        (gradient,) = torch.autograd.grad(wanted.sum(), factors)
        with torch.autocast("cpu", torch.bfloat16):
            found = solve(b)
        (of_it,) = torch.autograd.grad(found.sum(), factors)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(of_it, gradient)


@pytest.mark.parametrize("value", [1j, np.array(1j), np.complex64(1)])
def test_imaginary_parts_are_refused(value: Any) -> None:
    operator = _definite()
    for use in (lambda: operator.solve(np.ones(20, "float32"), value), lambda: operator * value):
        with pytest.raises(ElementTypeError, match="real number"):
            use()


def test_whole_numbers_are_known_by_their_type() -> None:
    operator = kronop.KroneckerOperator([np.ones((2, 2), "int64")])
    assert ((operator * np.array(3)).to_dense() == 3).all()
    for value in (0.5, np.array(0.5), np.float64(2)):
        with pytest.raises(ElementTypeError, match="a whole number"):
            operator * value


def test_values_go_with_vectors() -> None:
    vectors = kronop.KroneckerOperator([np.eye(3), np.eye(2)])
    for values in (np.ones(5), np.float64(1)):
        with pytest.raises(ArgumentError, match="shape of values"):
            kronop.SpectralOperator(values, vectors)
    with pytest.raises(ElementTypeError, match="element type of values"):
        kronop.SpectralOperator(np.ones(6, "float32"), vectors)


def test_products_of_conjugate_gradients_are_columns() -> None:
    b = np.ones(3)
    for operator in (np.ones((1, 3)), lambda x: x[:1], lambda x: x[:, 0]):
        with pytest.raises(ArgumentError, match="a product of the operator"):
            kronop.cg(operator, b)
    with pytest.raises(ArgumentError, match="a product of the preconditioner"):
        kronop.cg(np.eye(3), b, preconditioner=lambda x: x.sum(-2, keepdims=True))
    with pytest.raises(ElementTypeError, match="element type of a product"):
        kronop.cg(np.eye(3, dtype="float32"), b.astype("float32"), preconditioner=np.eye(3))
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match="a tensor of numpy"):
        kronop.cg(lambda x: torch.from_numpy(x), b)


def test_products_of_int8_are_int32_and_matrices_are_as_the_factors() -> None:
    operator = kronop.KroneckerOperator([np.full((2, 2), 100, "int8")] * 2)
    found = operator @ np.ones((4, 1), "int8")
    assert found.dtype == np.int32
    assert (found == 40000).all()
    assert operator.to_dense().dtype == operator.diagonal().dtype == np.int8
