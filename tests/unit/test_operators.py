"""Operators of Kronecker products and sums beside their dense matrices, of NumPy and torch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from tests.unit.operator_cases import (
    RECTANGULAR,
    SQUARE,
    check,
    check_solution,
    definite,
    kron,
    kronecker_sum,
    matrices,
)

Convert = Callable[[Any], Any]
TYPES = ("float32", "float64")


@pytest.fixture(params=["numpy", "torch"])
def convert(request: pytest.FixtureRequest) -> Convert:
    """Makes tensors of a framework of arrays, or of lists of arrays."""
    if request.param == "numpy":
        return lambda value: value
    torch = pytest.importorskip("torch")

    def made(value: Any) -> Any:
        return list(map(made, value)) if isinstance(value, list) else torch.from_numpy(value)

    return made


def _columns(shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_of_rectangular_factors(convert: Convert, dtype: str, batch: Any) -> None:
    factors = matrices(RECTANGULAR, dtype, batch)
    operator, dense = kronop.KroneckerOperator(convert(factors)), kron(factors)
    assert operator.shape == dense.shape == (*batch, 24, 30)
    assert operator.T.shape == operator.mH.shape == (*batch, 30, 24)
    sizes = kron([np.abs(factor) for factor in factors])
    check(operator.to_dense(), dense, sizes, dtype, len(factors))
    for x in (_columns((30,), dtype), _columns((30, 3), dtype), _columns((3, 1, 30, 4), dtype)):
        check(operator @ convert(x), dense @ x, sizes @ np.abs(x), dtype, 16)
        turned = x.T if x.ndim < 3 else x.swapaxes(-1, -2)
        turned = np.ascontiguousarray(turned)
        left = convert(turned) @ operator.T
        check(
            left,
            turned @ dense.swapaxes(-1, -2),
            np.abs(turned) @ sizes.swapaxes(-1, -2),
            dtype,
            16,
        )


def test_arrays_leave_products_to_the_operator(convert: Convert) -> None:
    factors = matrices(SQUARE, "float64")
    operator, dense = kronop.KroneckerOperator(convert(factors)), kron(factors)
    scaled = 2.0 * operator * np.float64(0.5) * convert(np.asarray([3.0]))[0]
    assert np.allclose(scaled.to_dense(), 3 * dense)
    power = operator @ operator
    assert isinstance(power, kronop.KroneckerOperator)
    assert np.allclose(power.to_dense(), dense @ dense)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_square_products(convert: Convert, dtype: str, batch: Any) -> None:
    factors = definite(SQUARE, dtype, batch)
    operator, dense = kronop.KroneckerOperator(convert(factors)), kron(factors)
    diagonal = np.diagonal(dense, axis1=-2, axis2=-1)
    check(operator.diagonal(), diagonal, diagonal, dtype, 3)
    check(operator.trace(), diagonal.sum(-1), diagonal.sum(-1), dtype, 9)
    check_solution(operator.inverse().to_dense(), dense, np.eye(24) + 0 * dense, dtype)
    for b in (_columns((24,), dtype), _columns((24, 3), dtype)):
        check_solution(operator.solve(convert(b)), dense, b, dtype)
        check_solution(operator.solve(convert(b), 0.5), dense + 0.5 * np.eye(24), b, dtype)
    b = _columns((3, 1, 24, 3), dtype)
    check_solution(operator.solve(convert(b), 0.5), dense + 0.5 * np.eye(24), b, dtype)
    for sigma2 in (0.0, 0.5):
        sign, wanted = np.linalg.slogdet(dense + sigma2 * np.eye(24))
        bound = 24 * 24 * np.finfo(dtype).eps  # Each of 24 eigenvalues is exact to 24 u.
        assert np.allclose(operator.logdet(sigma2), wanted, rtol=0, atol=bound)
        assert np.array_equal(operator.slogdet(sigma2)[0], sign)


def test_a_sigma2_for_each_matrix_of_a_batch(convert: Convert) -> None:
    factors, b = definite(SQUARE, "float64", (2,)), _columns((24, 3), "float64")
    sigma2 = np.asarray([0.5, 2.0])
    operator = kronop.KroneckerOperator(convert(factors))
    dense = kron(factors) + sigma2[:, None, None] * np.eye(24)
    check_solution(operator.solve(convert(b), convert(sigma2)), dense, b, "float64")
    assert np.allclose(operator.logdet(convert(sigma2)), np.linalg.slogdet(dense)[1])


def test_any_square_factors_have_inverses_powers_and_determinants(convert: Convert) -> None:
    factors = matrices(SQUARE, "float64")
    operator, dense, b = kronop.KroneckerOperator(convert(factors)), kron(factors), np.ones(24)
    check_solution(operator.solve(convert(b)), dense, b, "float64")
    for power in (-2, 0, 3):
        wanted = np.linalg.matrix_power(dense, power)
        assert np.allclose((operator**power).to_dense(), wanted, atol=1e-9 * np.abs(wanted).max())
    sign, logarithm = operator.slogdet()
    assert np.allclose([float(sign), float(logarithm)], np.linalg.slogdet(dense))
    one = kronop.KroneckerOperator(convert([np.diag([1.0, -1.0, 1.0])]))
    assert np.isnan(float(one.logdet()))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_decompositions(convert: Convert, dtype: str, batch: Any) -> None:
    factors = definite(SQUARE, dtype, batch)
    operator, dense = kronop.KroneckerOperator(convert(factors)), kron(factors)
    bound = 24 * np.finfo(dtype).eps * np.abs(dense).max() * 4

    lower = operator.cholesky().to_dense()
    assert np.allclose(lower @ lower.swapaxes(-1, -2), dense, rtol=0, atol=bound)
    assert np.allclose(np.triu(lower, 1), 0)
    values, vectors = operator.eigh()
    q = np.asarray(vectors.to_dense())
    assert np.allclose(q.swapaxes(-1, -2) @ q, np.eye(24), rtol=0, atol=bound)
    assert np.allclose(dense @ q, q * np.asarray(values)[..., None, :], rtol=0, atol=bound)
    assert np.allclose(operator.eigvalsh(), values, rtol=0, atol=bound)

    wide = kronop.KroneckerOperator(convert(matrices(RECTANGULAR, dtype, batch)))
    u, s, vh = (
        np.asarray(getattr(part, "to_dense", lambda part=part: part)()) for part in wide.svd()
    )
    bound = 30 * np.finfo(dtype).eps * s.max() * 4
    assert np.allclose((u * s[..., None, :]) @ vh, wide.to_dense(), rtol=0, atol=bound)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_functions(convert: Convert, batch: Any) -> None:
    factors = definite(SQUARE, "float64", batch)
    operator, dense = kronop.KroneckerOperator(convert(factors)), kron(factors)
    values, q = np.linalg.eigh(dense)

    def function(f: Any) -> Any:
        return (q * f(values)[..., None, :]) @ q.swapaxes(-1, -2)

    for found, wanted in (
        (operator.sqrt(), function(np.sqrt)),
        (operator**-0.5, function(lambda v: v**-0.5)),
        ((0.1 * operator).exp(), function(lambda v: np.exp(0.1 * v))),
        (operator.apply(lambda v: 1 / (1 + v)), function(lambda v: 1 / (1 + v))),
        (operator.eigh().inverse().T, function(lambda v: 1 / v)),
    ):
        assert isinstance(found, kronop.SpectralOperator)
        assert found.shape == dense.shape
        size = np.abs(wanted).max()
        assert np.allclose(found.to_dense(), wanted, rtol=0, atol=1e-12 * size)
        diagonal = np.diagonal(wanted, axis1=-2, axis2=-1)
        assert np.allclose(found.diagonal(), diagonal, rtol=0, atol=1e-12 * size)
        assert np.allclose(found.trace(), diagonal.sum(-1), rtol=1e-12)
        x = _columns((24, 3), "float64")
        assert np.allclose(found @ convert(x), wanted @ x, rtol=0, atol=1e-11 * size)
        assert np.allclose(convert(x.T.copy()) @ found, x.T @ wanted, rtol=0, atol=1e-11 * size)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_kronecker_sums(convert: Convert, dtype: str, batch: Any) -> None:
    general = matrices(SQUARE, dtype, batch)
    operator, dense = kronop.KroneckerSum(convert(general)), kronecker_sum(general)
    sizes = kronecker_sum([np.abs(factor) for factor in general])
    check(operator.to_dense(), dense, sizes, dtype, 3)
    check(operator.T.to_dense(), dense.swapaxes(-1, -2), sizes.swapaxes(-1, -2), dtype, 3)
    check(
        operator.diagonal(), np.diagonal(dense, 0, -2, -1), np.diagonal(sizes, 0, -2, -1), dtype, 3
    )
    for x in (_columns((24,), dtype), _columns((24, 3), dtype), _columns((3, 1, 24, 2), dtype)):
        check(operator @ convert(x), dense @ x, sizes @ np.abs(x), dtype, 12)
    check(convert(x[0, 0].T.copy()) @ operator, x[0, 0].T @ dense, 99, dtype, 12)

    factors = definite(SQUARE, dtype, batch)
    operator, dense = kronop.KroneckerSum(convert(factors)), kronecker_sum(factors)
    b = _columns((24, 3), dtype)
    check_solution(operator.solve(convert(b)), dense, b, dtype)
    check_solution(operator.solve(convert(b), 0.5), dense + 0.5 * np.eye(24), b, dtype)
    bound = 24 * 24 * np.finfo(dtype).eps
    assert np.allclose(operator.logdet(), np.linalg.slogdet(dense)[1], rtol=0, atol=bound)
    values, q = np.linalg.eigh(dense)
    wanted = (q * np.exp(values)[..., None, :]) @ q.swapaxes(-1, -2)
    found = operator.exp()
    assert isinstance(found, kronop.KroneckerOperator)
    # The exponential of an eigenvalue that is exact to N u of the largest one.
    bound = 4 * 24 * np.finfo(dtype).eps * values.max() * np.abs(wanted).max()
    assert np.allclose(found.to_dense(), wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("definite_first", [True, False])
def test_sums_of_two_products(convert: Convert, dtype: str, definite_first: bool) -> None:
    symmetric = [np.asarray(g + g.T, dtype) for g in matrices(SQUARE, dtype)]
    one, other = (
        kronop.KroneckerOperator(convert(definite(SQUARE, dtype))),
        0.05 * kronop.KroneckerOperator(convert(symmetric)),
    )
    operator = one + other if definite_first else other + one
    dense = kron(definite(SQUARE, dtype)) + 0.05 * kron(symmetric)
    assert isinstance(operator, kronop.KroneckerProductSum)
    b = _columns((24, 3), dtype)
    check(operator @ convert(b), dense @ b, np.abs(dense) @ np.abs(b) + 9, dtype, 12)
    check(operator.to_dense(), dense, np.abs(dense) + 9, dtype, 4)
    assert np.allclose(operator.T.diagonal(), np.diagonal(dense), rtol=1e-4)
    assert np.allclose(operator.trace(), np.trace(dense), rtol=1e-4)
    check_solution(operator.solve(convert(b)), dense, b, dtype)
    check_solution(operator.solve(convert(b[:, 0].copy())), dense, b[:, 0], dtype)
    sign, wanted = np.linalg.slogdet(dense)
    bound = 24 * 24 * np.finfo(dtype).eps * np.linalg.cond(dense)
    assert np.allclose(operator.logdet(), wanted, rtol=0, atol=bound)
    assert operator.slogdet()[0] == sign


def test_sums_of_batches(convert: Convert) -> None:
    factors, single = definite(SQUARE, "float64", (2,)), matrices(SQUARE, "float64")
    one = kronop.KroneckerOperator(convert(factors))
    for operator in (
        kronop.KroneckerOperator(convert(single)) + one,
        one + kronop.KroneckerOperator(convert(single)),
    ):
        assert operator.shape == (2, 24, 24)
        b = _columns((24, 3), "float64")
        assert np.allclose(operator @ convert(b), (kron(factors) + kron(single)) @ b)


def test_scales(convert: Convert) -> None:
    factors, scale = definite(SQUARE, "float64"), np.asarray([0.5, -2.0])
    operator = kronop.KroneckerOperator(convert(factors))
    for one in (
        operator,
        kronop.KroneckerSum(operator.factors),
        operator + operator,
        operator.eigh(),
    ):
        dense = np.asarray(one.to_dense())
        assert np.allclose((2 * one * 1.5).to_dense(), 3 * dense)
        scaled = one * convert(scale)
        assert scaled.shape == (2, 24, 24)
        assert np.allclose(scaled.to_dense(), scale[:, None, None] * dense)


def test_operators_are_values() -> None:
    operator = kronop.KroneckerOperator(matrices(SQUARE, "float64"))
    for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert np.array_equal(other.to_dense(), operator.to_dense())
    assert repr(operator) == "KroneckerOperator(3x3, 4x4, 2x2; numpy float64)"
    with pytest.raises(AttributeError):
        operator.factors = ()


def test_decompositions_are_kept_while_factors_stay_as_they_are(
    convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors, b = convert(definite(SQUARE, "float64")), convert(np.ones(24))
    calls: list[Any] = []
    for linalg in {np.linalg, kronop.KroneckerOperator(factors).framework.linalg}:
        for name in ("eigh", "eigvalsh"):
            do = getattr(linalg, name)
            monkeypatch.setattr(linalg, name, lambda a, do=do: calls.append(a) or do(a))
    two = kronop.KroneckerOperator(factors) + kronop.KroneckerOperator(factors)
    for operator in (kronop.KroneckerSum(factors), kronop.KroneckerOperator(factors), two):
        sigma2 = () if operator is two else (0.5,)
        first = operator.solve(b, *sigma2)
        calls.clear()
        for again in (operator, operator, operator):
            assert np.array_equal(again.solve(b, *sigma2), first)
        if operator is not two:
            operator.logdet(0.1), operator.sqrt(), operator.solve(b, 0.2)
            operator.eigh().vectors.factors[0][:] = 0  # Who gets a decomposition may write on it.
            operator.eigh().values[:] = 0
            assert np.array_equal(operator.solve(b, 0.5), first)
        assert not calls
        assert not copy.deepcopy(operator).memory
        factors[1][0, 0] += 1  # In place.
        changed = operator.like([item * 1 for item in operator.tensors])
        assert np.allclose(operator.solve(b, *sigma2), changed.solve(b, *sigma2), rtol=1e-12)
        assert not np.allclose(operator.solve(b, *sigma2), first)
        factors[1][0, 0] = np.nan
        with pytest.raises(ArgumentError, match="finite"):
            operator.solve(b, *sigma2)
        factors[1][0, 0] = 3.0


_F, _G = matrices(SQUARE, "float64"), definite(SQUARE, "float64")
_GENERAL, _DEFINITE = kronop.KroneckerOperator(_F), kronop.KroneckerOperator(_G)
_WIDE = kronop.KroneckerOperator(matrices(RECTANGULAR, "float64"))
_PAIRED = kronop.KroneckerOperator([np.ones((2, 8)), np.ones((8, 2))])  # Square as a whole.


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kronop.KroneckerOperator(_F[0]), ElementTypeError, "list or tuple of matrices"),
        (lambda: kronop.KroneckerOperator([]), ArgumentError, "at least one"),
        (lambda: kronop.KroneckerOperator([[1.0]]), ElementTypeError, r"factors\[0\].*got list"),
        (lambda: kronop.KroneckerOperator([np.ones(3)]), ArgumentError, r"factors\[0\].*P, Q"),
        (
            lambda: kronop.KroneckerOperator([_F[0], _F[1].astype("float32")]),
            ElementTypeError,
            r"factors\[1\].*float64.*float32",
        ),
        (
            lambda: kronop.KroneckerOperator([np.ones((2, 3, 3)), np.ones((3, 3, 3))]),
            ArgumentError,
            "leading dimensions",
        ),
        (
            lambda: kronop.KroneckerSum([_F[0], np.ones((2, 3))]),
            ArgumentError,
            r"factors\[1\].*N, N",
        ),
        (lambda: _GENERAL @ np.ones(23), ArgumentError, r"shape of x: expected \(24,\).*\(23,\)"),
        (lambda: np.ones((3, 23)) @ _GENERAL, ArgumentError, r"shape of x.*\(3, 23\)"),
        (lambda: _GENERAL @ np.ones(24, "float32"), ElementTypeError, "element type of x"),
        (lambda: _GENERAL @ [1.0] * 24, ElementTypeError, "x: expected a tensor"),
        (lambda: _WIDE.solve(np.ones(30)), ArgumentError, "solve: expected a square operator"),
        (lambda: _PAIRED.eigh(), ArgumentError, r"factors\[0\]: .*symmetric.*\(2, 8\)"),
        (lambda: _PAIRED.logdet(0.1), ArgumentError, r"factors\[0\]: .*symmetric.*\(2, 8\)"),
        (lambda: _PAIRED.solve(np.ones(16), 0.1), ArgumentError, r"factors\[0\]: .*\(2, 8\)"),
        (lambda: _PAIRED.inverse(), ArgumentError, r"square factors.*factors\[0\].*\(2, 8\)"),
        (lambda: _PAIRED.diagonal(), ArgumentError, r"diagonal: expected square factors"),
        (lambda: _GENERAL.solve(np.ones(23)), ArgumentError, "shape of b"),
        (lambda: _DEFINITE.eigh().solve([1.0]), ElementTypeError, "b: expected a tensor"),
        (lambda: _DEFINITE.solve(np.ones(23), 1.0), ArgumentError, "shape of b"),
        (lambda: _DEFINITE.solve(np.ones(24), "1"), ElementTypeError, "sigma2"),
        (lambda: _GENERAL.solve(np.ones(24), 1.0), ArgumentError, r"factors\[0\].*symmetric"),
        (lambda: _GENERAL.eigh(), ArgumentError, r"factors\[0\].*symmetric"),
        (lambda: (-1.0 * _DEFINITE).cholesky(), ArgumentError, r"factors\[0\].*definite"),
        (lambda: (-1.0 * _DEFINITE).sqrt(), ArgumentError, "negative eigenvalues"),
        (
            lambda: kronop.KroneckerOperator([np.ones((2, 2))]).solve(np.ones(2)),
            ArgumentError,
            r"factors\[0\].*singular",
        ),
        (
            lambda: kronop.KroneckerSum([np.diag([1.0, 0.0])]).solve(np.ones(2)),
            ArgumentError,
            "eigenvalue of 0",
        ),
        (
            lambda: kronop.KroneckerOperator([np.ones((2, 2), "int64")]).inverse(),
            ElementTypeError,
            "float32, float64",
        ),
        (
            lambda: 0.5 * kronop.KroneckerOperator([np.ones((2, 2), "int64")]),
            ElementTypeError,
            "the scale: expected a whole number",
        ),
        (lambda: _DEFINITE @ _PAIRED, ArgumentError, "one after the other"),
        (lambda: kronop.KroneckerProductSum([_DEFINITE]), ElementTypeError, "two or more"),
        (lambda: _DEFINITE + _WIDE, ArgumentError, r"shape of terms\[1\]"),
        (
            lambda: (_DEFINITE + _GENERAL).solve(np.ones(24)),
            ArgumentError,
            r"terms\[1\].factors\[0\]",
        ),
        (lambda: (_DEFINITE + _DEFINITE).solve(np.ones(24), 1.0), ArgumentError, "sigma2.*cg"),
        (lambda: (_DEFINITE + _DEFINITE).eigh(), ArgumentError, "eigh.*cg"),
        (lambda: (_DEFINITE + _DEFINITE + _DEFINITE).logdet(), ArgumentError, "two terms.*cg"),
        (
            lambda: (-1.0 * _DEFINITE + -1.0 * _DEFINITE).logdet(),
            ArgumentError,
            "positive definite factors.*cg",
        ),
    ],
)
def test_errors(call: Callable[[], Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_frameworks_are_not_mixed() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"factors\[1\].*numpy.*torch"):
        kronop.KroneckerOperator([np.eye(2), torch.eye(2)])
    with pytest.raises(ArgumentError, match=r"x: expected a tensor of numpy.*torch"):
        kronop.KroneckerOperator([np.eye(2)]) @ torch.ones(2)
    with pytest.raises(ArgumentError, match=r"x: expected a tensor of torch.*numpy"):
        np.ones(2) @ kronop.KroneckerOperator([torch.eye(2)])
    with pytest.raises(ElementTypeError, match="sigma2"):
        kronop.KroneckerOperator([np.eye(2)]).solve(np.ones(2), torch.ones(()))
