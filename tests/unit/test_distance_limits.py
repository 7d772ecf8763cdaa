"""Kernels at the ends of floating point: points and bandwidths of all sizes, and infinite ones.

Most tests put NumPy's own functions, of the same type, in the place of kernels, of which hundreds
would have to be compiled.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.families.distance import api, gradient_api
from kronop.families.distance.form import sum_of, value_of
from kronop.frozen import dataclass

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402

# Numbers of float32; two of the points are the same, and one is 0.
_X, _Y, _V, _G, _H = (
    np.random.default_rng(38).standard_normal(shape).astype(np.float32).astype(float)
    for shape in ((5, 3), (4, 3), (6, 2), (7, 6), (7, 2))
)
_Y[2], _X[1] = _X[3], 0
_VALUES = (1.75, 1.25)  # A bandwidth and a power.
_FLOATS = (torch.float32, torch.float64)


def _norm(x: Any, y: Any, p: Any) -> Any:
    """The p-norms of differences, whose derivatives are 0 where they are."""
    total = (x[:, None] - y).abs().pow(p).sum(-1)
    return torch.where(total > 0, torch.where(total > 0, total, 1.0) ** (1 / p), 0.0)


def _direction(x: Any) -> Any:
    length = _norm(x, torch.zeros_like(x[:1]), 2)
    return torch.where(length > 0, x / torch.where(length > 0, length, 1.0), 0.0)


@dataclass(frozen=True, slots=True)
class _Case:
    """A kernel.

    Attributes:
        kernel: (bandwidth, power) -> the kernel.
        formula: (x, y, bandwidth, power) -> its values by torch's functions.
        degree: values of points and bandwidths times s are s^degree times as large.
        most: up to which power of two s may be in float32 without the squares, or other powers, of
            distances leaving the type's range.
    """

    kernel: Callable[[Any, Any], kernels.Kernel]
    formula: Callable[[Any, Any, Any, Any], Any]
    degree: int = 0
    most: int = 58


def _of_norm(p: Any, most: int) -> _Case:
    """A norm of this power, or of the one that is given."""
    return _Case(
        lambda l, q: kernels.PowerNorm(p or q), lambda x, y, l, q: _norm(x, y, p or q), 1, most
    )


def _of_distance(
    kernel: Callable[[Any], kernels.Kernel], formula: Callable[[Any], Any], p: int = 2
) -> _Case:
    """A kernel of the distance over the bandwidth."""
    return _Case(lambda l, q: kernel(l), lambda x, y, l, q: formula(_norm(x, y, p) / l))


_CASES = {
    "gaussian": _of_distance(kernels.Gaussian, lambda r: (-r * r / 2).exp()),
    "laplace": _of_distance(kernels.Laplace, lambda r: (-r).exp(), 1),
    "laplace of norm 2": _of_distance(
        functools.partial(kernels.Laplace, norm=2), lambda r: (-r).exp()
    ),
    "matern 3/2": _of_distance(
        functools.partial(kernels.Matern, 1.5),
        lambda r: (1 + math.sqrt(3) * r) * (-math.sqrt(3) * r).exp(),
    ),
    "matern 5/2": _of_distance(
        functools.partial(kernels.Matern, 2.5),
        lambda r: (1 + math.sqrt(5) * r + 5 * r * r / 3) * (-math.sqrt(5) * r).exp(),
    ),
    "rational quadratic": _of_distance(
        functools.partial(kernels.RationalQuadratic, 1.5), lambda r: (1 + r * r / 3) ** -1.5
    ),
    "cosine": _Case(
        lambda l, p: kernels.Cosine(),
        lambda x, y, l, p: _direction(x) @ _direction(y).T,
    ),
    "norm 1": _of_norm(1, 100),
    "norm 3/2": _of_norm(1.5, 70),
    "norm 2": _of_norm(2, 58),
    "norm 3": _of_norm(3, 38),
    "norm infinity": _Case(
        lambda l, p: kernels.PowerNorm(math.inf),
        lambda x, y, l, p: (x[:, None] - y).abs().amax(-1),
        1,
        100,
    ),
    "any norm": _of_norm(None, 70),
}
_PRODUCT = _Case(
    lambda l, p: kernels.Linear() * (2 * kernels.Gaussian(l)),
    lambda x, y, l, p: 2 * x @ y.T * (-((_norm(x, y, 2) / l) ** 2) / 2).exp(),
)
_DECAYING = [name for name, case in _CASES.items() if not case.degree and name != "cosine"]


def _evaluated(x1: Any, x2: Any, bound: Any) -> Any:
    """The kernel matrix in NumPy, in the type of the points."""
    kind = x1.detach().numpy().dtype
    values, vectors = (
        [np.asarray(item, kind) for item in each] for each in (bound.values, bound.vectors)
    )
    found = bound.form.evaluate(x1.detach().numpy(), x2.detach().numpy(), values, vectors)
    assert found.dtype == kind
    return torch.tensor(found)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def cdist_grad(a: Any, b: Any, c: None, d: Any, p: Any) -> Any:
        t = d[:, None] - b[:, :, None]
        slopes = torch.where(t == 0, 0.0, t.sign() * t.abs() ** (p - 1))
        return (a * slopes).sum(1)

    monkeypatch.setattr(api, "matrix_of", lambda x1, x2, bound, mode: _evaluated(x1, x2, bound))
    monkeypatch.setattr(api, "product_of", lambda x1, x2, v, bound: _evaluated(x1, x2, bound) @ v)
    monkeypatch.setattr(gradient_api, "cdist_grad", cdist_grad)


def _derived(call: Callable[..., Any], points: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The result of a call, and its gradients in both points and in those values that are tensors;
    None for those that it does not depend on."""
    result = call(*points, *values)
    weights = torch.as_tensor(_G if result.shape[1] > 2 else _H, dtype=result.dtype)
    total = (result * weights[: result.shape[0], : result.shape[1]]).sum()
    given = [*points, *(item for item in values if isinstance(item, torch.Tensor))]
    return [result.detach(), *torch.autograd.grad(total, given, allow_unused=True)]


def _calls(case: _Case, kind: Any, is_product: bool) -> tuple[Callable[..., Any], ...]:
    """The case as kronop's matrix or product, and by torch's functions."""
    v = torch.as_tensor(_V, dtype=kind)

    def call(x: Any, y: Any, *values: Any) -> Any:
        kernel = case.kernel(*values)
        if is_product:
            return kronop.torch.kernel_matmul(x, y, v[: len(y)], kernel)
        return kronop.torch.kernel_matrix(x, y, kernel)

    def formula(x: Any, y: Any, *values: Any) -> Any:
        found = case.formula(x, y, *values)
        return found @ v[: len(y)].double() if is_product else found

    return call, formula


def _tensors(arrays: Sequence[Any], s: float = 1.0, kind: Any = torch.float64) -> list[Any]:
    return [(torch.tensor(it, dtype=torch.float64) * s).to(kind).requires_grad_() for it in arrays]


@pytest.mark.parametrize("is_product", [False, True])
@pytest.mark.parametrize("kind", _FLOATS)
@pytest.mark.parametrize("name", _CASES)
@pytest.mark.usefixtures("without_kernels")
def test_scales(name: str, kind: Any, is_product: bool) -> None:
    """Points and bandwidths times s give values times a power of s, and so do gradients."""
    case = _CASES[name]
    call, formula = _calls(case, kind, is_product)
    wanted = _derived(formula, _tensors((_X, _Y)), _tensors(_VALUES))
    most = case.most if kind is torch.float32 else 100
    # Bandwidths as numbers may be more extreme.
    for power, of_tensors in ((0, True), (most, True), (-most, True), (100, False), (-100, False)):
        if not of_tensors and (case.degree or name == "cosine") and most < 100:
            continue
        s = 2.0**power
        values = [_VALUES[0] * s, _VALUES[1]]
        given = _tensors(values, 1.0, kind) if of_tensors else values
        found = _derived(call, _tensors((_X, _Y), s, kind), given)
        degrees = [case.degree, *[case.degree - 1] * 3, case.degree]
        for at, (one, other, degree) in enumerate(zip(found, wanted, degrees, strict=False)):
            assert (one is None) == (other is None)
            if one is None:
                continue
            # Sums of some terms, of arguments up to 10. Powers of s have roundings of its
            # logarithm; logarithms cancel in the derivative by a power.
            units = 64 + (64 if at == 4 else 4) * case.degree * abs(power)
            error = (one.double() / s**degree - other).abs().max() / other.abs().max()
            assert error <= units * torch.finfo(kind).eps, (power, at)


@pytest.mark.parametrize("is_product", [False, True])
@pytest.mark.parametrize("kind", _FLOATS)
@pytest.mark.parametrize("name", [*_DECAYING, "product"])
@pytest.mark.usefixtures("without_kernels")
def test_far_points(name: str, kind: Any, is_product: bool) -> None:
    """Kernels fall to 0: points at infinity change neither other values nor their gradients."""
    call, formula = _calls(_CASES.get(name, _PRODUCT), kind, is_product)
    wanted = _derived(formula, _tensors((_X, _Y)), _tensors(_VALUES))
    # Inner products with infinite points have infinite derivatives.
    far = np.array([[1e25, 0, 0], [1e25 if name == "product" else math.inf, 0, 0]])
    points = _tensors((np.concatenate([_X, far]), np.concatenate([_Y, -far])), 1.0, kind)
    found = _derived(call, points, _tensors(_VALUES, 1.0, kind))
    for one, other in zip(found[:4], wanted, strict=False):
        near = one[tuple(map(slice, other.shape))]
        assert (near - other).abs().max() <= 64 * torch.finfo(kind).eps * other.abs().max()
        near.zero_()
        assert one.abs().max() <= 1e-20


def _all(l: Any) -> kernels.Kernel:
    """A sum of all kernels that fall to 0, so that few have to be compiled."""
    return functools.reduce(operator.add, (_CASES[name].kernel(l, 1.25) for name in _DECAYING))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_compiled_kernels(kind: Any) -> None:
    x, y = (torch.tensor(item) for item in (_X, _Y))
    expected = sum(_CASES[name].formula(x, y, 1.75, 1.25) for name in _DECAYING).numpy()
    error = 64 * np.finfo(kind).eps * len(_DECAYING)
    far = np.array([[1e25, 0, 0], [math.inf, 0, 0], [math.nan, 0, 0]])
    x1, x2 = np.concatenate([_X, far]).astype(kind), np.concatenate([_Y, -far[:2]]).astype(kind)
    found = kronop.kernel_matrix(x1, x2, _all(1.75))
    assert np.abs(found[:5, :4] - expected).max() <= error
    assert np.abs(found[5:7]).max() <= 1e-20
    assert np.abs(found[:7, 4:]).max() <= 1e-20
    assert np.isnan(found[7]).all()
    product = kronop.kernel_matmul(x1, x2, _V.astype(kind), _all(1.75))
    assert np.abs(product[:5] - expected @ _V[:4]).max() <= error * 4
    assert np.abs(product[5:7]).max() <= 1e-20
    assert np.isnan(product[7]).all()
    for s in (2.0**-100, 2.0**100):
        scaled = [(item * s).astype(kind) for item in (_X, _Y)]
        assert np.abs(kronop.kernel_matrix(*scaled, _all(1.75 * s)) - expected).max() <= error
    # Far below the distances, and where float32 has no such numbers.
    for width in (1e-23, 1e-50):
        found = kronop.kernel_matrix(_X.astype(kind), _X[:2].astype(kind), _all(width))
        np.testing.assert_allclose(found, len(_DECAYING) * np.eye(5, 2), atol=1e-20)


@pytest.mark.parametrize("name", ["gaussian", "rational quadratic", "matern 5/2", "laplace"])
def test_derivatives_of_kernels_that_are_0(name: str) -> None:
    """Of bandwidths and other values too."""
    form = _CASES[name].kernel(1.75, 1.25).bound().form
    inputs = {key: np.array([math.inf, math.nan]) for key in map(sum_of, range(len(form.terms)))}
    inputs |= {value_of(index): np.array(1.5) for index in range(form.values)}
    for key in inputs:
        slope = form.expression.derivative(key)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(slope.evaluate(inputs), [0, math.nan])
