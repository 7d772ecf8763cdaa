"""Powers, sums, differences and multiples of operators, and what has none."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from tests.unit.operator_cases import SQUARE, definite, kron, kronecker_sum, matrices


def _smooth(order: int) -> Any:
    """A covariance of close points: positive definite, but for eigenvalues of rounding's size."""
    points = np.linspace(0, 1, order)
    return np.exp(-((points[:, None] - points) ** 2) / 0.08)


_SMOOTH = kronop.KroneckerOperator([_smooth(30), _smooth(20)])
_GENERAL = kronop.KroneckerOperator(matrices([(3, 3), (2, 2)], "float64"))
_SINGULAR = kronop.KroneckerOperator([np.diag([1.0, 0.0]), np.eye(2)])
_INDEFINITE = kronop.KroneckerOperator([np.diag([1.0, -0.5]), np.eye(2)])


@pytest.mark.parametrize("base", [_SMOOTH, _SMOOTH.eigh()], ids=["product", "spectrum"])
def test_fractional_powers_count_what_is_negative_by_rounding_as_0(base: Any) -> None:
    assert (base.eigh().values < 0).any()
    np.testing.assert_array_equal((base**0.5).values, base.sqrt().values)
    cube = (base ** np.float32(1.5)).values
    np.testing.assert_array_equal(cube, base.eigh().values.clip(0) ** 1.5)


@pytest.mark.parametrize("of", [lambda k: k, lambda k: k.eigh()], ids=["product", "spectrum"])
@pytest.mark.parametrize(
    ("operator", "exponent", "message"),
    [
        (_INDEFINITE, 0.5, "without negative eigenvalues, got one of -0.5"),
        (_INDEFINITE, -0.5, "without negative eigenvalues, got one of -0.5"),
        (_SINGULAR, -0.5, "an eigenvalue of 0"),
        (_SMOOTH, -0.5, "an eigenvalue of 0"),
        (_SINGULAR, -1, r"(factors\[0\]: expected an invertible|an eigenvalue of 0)"),
        (_SINGULAR, -2.0, r"(factors\[0\]: expected an invertible|an eigenvalue of 0)"),
    ],
)
def test_powers_that_do_not_exist_are_refused(
    of: Any, operator: Any, exponent: float, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        of(operator) ** exponent


def test_sums_and_torch_have_powers_alike() -> None:
    total = kronop.KroneckerSum([_SINGULAR.factors[0]] * 2)
    with pytest.raises(ArgumentError, match="an eigenvalue of 0"):
        total**-1
    torch = pytest.importorskip("torch")
    operator = kronop.KroneckerOperator([torch.from_numpy(item) for item in _SMOOTH.factors])
    assert torch.equal((operator**0.5).values, operator.sqrt().values)
    exponent = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    diagonal = kronop.KroneckerOperator([torch.diag(torch.tensor([1.0, 4.0]).double())])
    (gradient,) = torch.autograd.grad((diagonal**exponent).trace(), exponent)
    np.testing.assert_allclose(gradient, 2 * np.log(4))


@pytest.mark.parametrize(
    "exponent", [2.0, -1.0, np.float64(2), np.float32(-2), np.asarray(3.0), 0.0], ids=repr
)
def test_whole_floats_are_whole_numbers(exponent: Any) -> None:
    found = _GENERAL**exponent
    assert isinstance(found, kronop.KroneckerOperator)
    wanted = np.linalg.matrix_power(_GENERAL.to_dense(), int(exponent))
    np.testing.assert_allclose(found.to_dense(), wanted, atol=1e-9 * np.abs(wanted).max())
    signed = _INDEFINITE.eigh() ** exponent
    wanted = np.linalg.matrix_power(_INDEFINITE.to_dense(), int(exponent))
    np.testing.assert_allclose(signed.to_dense(), wanted, atol=1e-12)


@pytest.mark.parametrize("exponent", ["2", 1j, np.asarray([2.0]), None])
def test_exponents_are_real_numbers(exponent: Any) -> None:
    for operator in (_SMOOTH, _SMOOTH.eigh()):
        with pytest.raises(ElementTypeError, match="the exponent: expected a real number"):
            operator**exponent


_OTHER = kronop.KroneckerOperator(matrices([(3, 3), (2, 2)], "float64")[::-1])
_SUM = kronop.KroneckerSum(_GENERAL.factors)
_SPECTRUM = _INDEFINITE.eigh()


def test_differences_quotients_and_sums_of_many() -> None:
    one, other = _GENERAL.to_dense(), _OTHER.to_dense()
    total = _GENERAL + _OTHER
    for found, wanted in (
        (-_GENERAL, -one),
        (_GENERAL - _OTHER, one - other),
        (_GENERAL / 2, one / 2),
        (_GENERAL / np.asarray([2.0, 4.0]), np.stack([one / 2, one / 4])),
        (sum([_GENERAL, _OTHER, _GENERAL]), 2 * one + other),
        (total - _OTHER, one),
        (_GENERAL - total, -other),
        (total + total, 2 * (one + other)),
        (-_SUM / 4, -_SUM.to_dense() / 4),
        (sum([_SUM]), _SUM.to_dense()),
        (0 - _SPECTRUM, -_INDEFINITE.to_dense()),
        (_SPECTRUM / 2, _INDEFINITE.to_dense() / 2),
    ):
        np.testing.assert_allclose(found.to_dense(), wanted, atol=1e-14 * np.abs(wanted).max())
    whole = kronop.KroneckerOperator([np.ones((2, 2), "int64")])
    assert ((-whole).to_dense() == -1).all()
    with pytest.raises(ElementTypeError, match="a whole number"):
        whole / 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _SUM @ _SUM, r"got KroneckerSum @ KroneckerSum; .*left @ \(right @ x\)"),
        (lambda: _SPECTRUM @ _SPECTRUM, r"left @ \(right @ x\)"),
        (lambda: _SPECTRUM @ _INDEFINITE, r"left @ \(right @ x\)"),
        (lambda: _INDEFINITE @ _SPECTRUM, r"left @ \(right @ x\)"),
        (lambda: _SUM + _SUM, "a sum: expected KroneckerOperators.*cg"),
        (lambda: _GENERAL - _SUM, "a sum: .*KroneckerOperator and KroneckerSum"),
        (lambda: _GENERAL + 0.1, "a sum: .*sigma2"),
        (lambda: 0.1 * np.eye(6) + _GENERAL, "a sum: .*ndarray.*sigma2"),
        (lambda: np.dot(_GENERAL, np.ones(6)), r"array: .*operator @ x.*to_dense\(\)"),
        (lambda: np.asarray(_SPECTRUM), r"array: .*to_dense\(\)"),
        (lambda: _GENERAL.solve(_GENERAL), r"b: expected a tensor.*to_dense\(\)"),
    ],
)
def test_what_has_no_operator_says_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(ElementTypeError, match=message):
        call()


def _scaled_identity(*values: float, make: Any = kronop.KroneckerOperator, put: Any = None) -> Any:
    factors = [np.eye(3, dtype="float16") * np.float16(value) for value in values]
    return make([put(factor) for factor in factors] if put else factors)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("of_tensors", [False, True], ids=["numbers", "tensors"])
def test_only_the_result_has_to_be_in_the_range_of_16_bits(library: str, of_tensors: bool) -> None:
    """Neither a factor times the scale, nor a product of some factors."""
    put, tensor = np.asarray, lambda value: np.asarray([value], "float32")
    if library == "torch":
        torch = pytest.importorskip("torch")
        put, tensor = torch.from_numpy, lambda value: torch.tensor([value])
    scale = tensor if of_tensors else float

    def product(*values: float) -> Any:
        return _scaled_identity(*values, put=put)

    def total(*values: float) -> Any:
        return _scaled_identity(*values, make=kronop.KroneckerSum, put=put)

    for operator, wanted in (
        (scale(2) * product(6e4, 1e-4), 12),
        (scale(0.1) * product(1e-7, 6e4), 0.1 * 6e4 * 2**-23),  # Of 1e-7 rounded.
        (scale(1e-4) * product(3e4, 100), 300),
        (product(6e4, 6e4) / scale(1e8), 36),
        (-(scale(2) * product(6e4, 1e-4)), -12),
        ((scale(2) * product(6e4, 1e-4)).T, 12),
        (product(6e4, 1e-4) @ product(6e4, 1e-4), 36),
        ((scale(2) * product(6e4, 1e-4)) ** 2, 144),
        (scale(2) * product(6e4, 1e-4) + product(1, 1), 13),
        (scale(2) * total(6e4, -6e4), 0),
        (scale(0.1) * total(6e4, 6e4), 12000),
        (scale(0.1) * total(1e-7, 1e-7), 0),
    ):
        order = operator.shape[-1]
        x = put(np.ones(order, "float16"))
        dense = np.asarray(operator.to_dense(), "float64").reshape(order, order)
        for found in (operator @ x, x @ operator, dense.sum(0), operator.diagonal()):
            found = np.asarray(found, "float64").reshape(order)
            # A rounding of each factor, of each product, and of the result.
            np.testing.assert_allclose(found, wanted, rtol=8 * 2.0**-11, atol=2.0**-24)
    several = scale(1e-4) * product(6e4, 6e4, 1e-4)
    for found in (several.to_dense().diagonal(0, -2, -1), several.diagonal(), several.trace() / 27):
        np.testing.assert_allclose(np.asarray(found, "float64"), 36, rtol=8 * 2.0**-11)


@pytest.mark.parametrize("scale", [2.5, -0.5, [2.0, 0.5]], ids=str)
def test_all_of_a_multiple(scale: Any) -> None:
    factors, general, b = definite(SQUARE, "float64"), matrices(SQUARE, "float64"), np.ones((24, 2))
    b[3:, 1] = -2
    scale = np.asarray(scale)
    wide = scale[..., None, None]
    for make, dense in ((kronop.KroneckerOperator, kron), (kronop.KroneckerSum, kronecker_sum)):
        any_one, wanted = scale * make(general), wide * dense(general)
        for found, expected in (
            (any_one.to_dense(), wanted),
            (any_one.T.to_dense(), wanted.swapaxes(-1, -2)),
            (any_one @ b, wanted @ b),
            (b.T @ any_one, b.T @ wanted),
            (any_one.diagonal(), np.diagonal(wanted, 0, -2, -1)),
            (any_one.trace(), np.trace(wanted, 0, -2, -1)),
            (any_one.like(general).to_dense(), wanted),
        ):
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)
        operator, wanted = scale * make(factors), wide * dense(factors)
        shifted = wanted + np.copysign(0.3, wide) * np.eye(24)
        for found, expected in (
            (operator.solve(b), np.linalg.solve(wanted, b + 0 * wide)),
            (
                operator.solve(b, np.copysign(0.3, scale)),
                np.linalg.solve(shifted, b + 0 * wide),
            ),
            (operator.inverse().to_dense(), np.linalg.inv(wanted)),
            (operator.eigh().to_dense(), wanted),
            (np.sort(operator.eigvalsh()), np.linalg.eigvalsh(wanted)),
            (operator.slogdet(), np.linalg.slogdet(wanted)),
            ((operator**3).to_dense(), wanted @ wanted @ wanted),
            ((operator**-1).to_dense(), np.linalg.inv(wanted)),
            ((0.01 * operator).exp().to_dense(), _exp(0.01 * wanted)),
        ):
            assert np.allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scale", [2.5, -0.5, np.asarray([2.0, 0.5])], ids=str)
def test_decompositions_of_a_multiple(scale: Any) -> None:
    factors, b = definite(SQUARE, "float64"), np.ones(24)
    dense = np.asarray(scale)[..., None, None] * kron(factors)
    u, s, vh = (scale * kronop.KroneckerOperator(matrices(SQUARE, "float64"))).svd()
    assert (s > 0).all()
    wide = np.asarray(scale)[..., None, None] * kron(matrices(SQUARE, "float64"))
    assert np.allclose((u.to_dense() * s[..., None, :]) @ vh.to_dense(), wide)
    if np.min(scale) < 0:  # A negative multiple of what is negative definite.
        negative = kronop.KroneckerOperator([-factors[0], *factors[1:]])
        lower = (scale * negative).cholesky().to_dense()
        assert np.allclose(lower @ lower.T, -dense)
        return
    lower = (scale * kronop.KroneckerOperator(factors)).cholesky().to_dense()
    assert np.allclose(lower @ lower.swapaxes(-1, -2), dense)
    symmetric = [0.3 * (g + g.T) for g in matrices(SQUARE, "float64")]
    one, other = kronop.KroneckerOperator(factors), kronop.KroneckerOperator(symmetric)
    two = scale * one + 0.1 * other
    assert np.allclose(two.like(two.tensors).to_dense(), dense + 0.1 * kron(symmetric))
    assert np.allclose(two @ two.solve(b[:, None]), b[:, None])
    assert np.allclose(two.logdet(), np.linalg.slogdet(two.to_dense())[1])


def _exp(dense: Any) -> Any:
    values, q = np.linalg.eigh(dense)
    return (q * np.exp(values)[..., None, :]) @ q.swapaxes(-1, -2)


def test_a_scale_is_read_and_shown() -> None:
    operator = 2 * (kronop.KroneckerOperator([np.eye(2)]) * np.float32(0.5)) * 3
    assert (operator.scale, operator.factors[0][0, 0]) == (3, 1)
    assert repr(operator) == "3.0 * KroneckerOperator(2x2; numpy float64)"
    with pytest.raises(ArgumentError, match="the scale: expected a number other than 0"):
        (0 * operator).solve(np.ones(2))
    assert (0 * operator).slogdet() == (0, -np.inf)
    whole = 3 * kronop.KroneckerOperator([np.full((2, 2), 100, "int8")])
    assert (whole @ np.ones(2, "int8")).tolist() == [600, 600]  # In int32, as products are.


@pytest.mark.parametrize("batch", [(), (2,)])
def test_exponentials_of_what_is_not_symmetric(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    factors = matrices([(3, 3), (2, 2)], "float64", batch)
    operator = kronop.KroneckerSum(factors)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "scipy.linalg", None)
        with pytest.raises(ArgumentError, match=r"factors\[0\]: expected a symmetric .*install"):
            operator.exp()
    linalg = pytest.importorskip("scipy.linalg")
    wanted = linalg.expm(0.5 * kronecker_sum(factors))
    np.testing.assert_allclose((0.5 * operator).exp().to_dense(), wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0)])
def test_a_division_by_0_is_refused(zero: Any) -> None:
    operator = kronop.KroneckerOperator([np.eye(2), np.eye(3)])
    with pytest.raises(kronop.ArgumentError, match="the divisor: expected a number other than 0"):
        operator / zero
