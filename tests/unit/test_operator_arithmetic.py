"""Powers, sums, differences and multiples of operators, and what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from tests.unit.operator_cases import matrices


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
