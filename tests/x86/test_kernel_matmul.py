"""Products of kernel matrices on this machine, against NumPy in higher precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.descriptions.datatype import float16, float32, float64
from kronop.descriptions.math_instruction import MathInstruction
from tests import support

# Every kernel's value has a relative error of at most so many units, besides those of its sums: a
# power and a root have a few, and an exponential as many as its argument, which is below 32 here.
_OF_VALUE = 64


def _reference(
    x1: Any, x2: Any, v: Any, kernel: kernels.Kernel, regularization: Any = None
) -> tuple[Any, Any]:
    """(the product in float64, sums of magnitudes)."""
    dims = max(np.ndim(item) for item in (x1, x2, v)) - 2
    bound = kernel.bound(dims, regularization)
    x1, x2, v = (np.asarray(item, np.float64) for item in (x1, x2, v))
    matrix = bound.form.evaluate(x1, x2, bound.values, bound.vectors)
    return matrix @ v, np.abs(matrix) @ np.abs(v)


def _check(
    result: Any, x1: Any, x2: Any, v: Any, kernel: kernels.Kernel, regularization: Any = None
) -> None:
    expected, size = _reference(x1, x2, v, kernel, regularization)
    element = {2: float16, 4: float32, 8: float64}[result.dtype.itemsize]
    # Sums over features and over points; results are rounded to their type.
    steps = x1.shape[-1] + x2.shape[-2] + _OF_VALUE
    of_sums = support.unit(MathInstruction.simt(element).element_accumulator)
    bound = (
        2 * steps * of_sums * size + 2 * support.unit(element) * np.abs(expected) + 1e-7 * of_sums
    )
    assert result.shape == expected.shape
    assert (np.abs(np.float64(result) - expected) <= bound).all()


def _points(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _poisoned(*shape: int, dtype: Any = np.float32) -> Any:
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Gaussian(1.5),
        kernels.Laplace(2.0),
        2.0 * kernels.Matern(2.5, 1.5) + kernels.Linear() * kernels.Gaussian(3.0),
        kernels.RationalQuadratic(0.7, 2.0),
        kernels.PowerNorm(1.3),
        kernels.Polynomial(3, 0.5),
        kernels.Gaussian(np.linspace(1, 2, 5)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_values(kernel: kernels.Kernel) -> None:
    """One compiled kernel each, for several numbers of points and columns."""
    for m, n, c in ((70, 301, 3), (1, 1, 1), (65, 256, 17)):
        x1, x2, v = _points(m, 5), _points(n, 5, seed=1), _points(n, c, seed=2)
        out = _poisoned(m, c)
        assert kronop.kernel_matmul(x1, x2, v, kernel, out=out) is out
        _check(out, x1, x2, v, kernel)


def test_relative_powers() -> None:
    kernel = kernels.PowerNorm(60.0) + kernels.PowerNorm(17.0)
    for features in (5, 600):  # One slab and several.
        x1, x2, v = _points(33, features), _points(140, features, seed=1), _points(140, 3, seed=2)
        out = _poisoned(33, 3)
        _check(kronop.kernel_matmul(x1, x2, v, kernel, out=out), x1, x2, v, kernel)


def test_lengths_of_all_sizes() -> None:
    """Their squares may leave the range of float32."""
    kernel = kernels.Cosine()
    points = [np.ldexp(_points(n, 5), np.arange(n)[:, None] * 40 % 240 - 120) for n in (9, 301)]
    points[0][7] = points[1][8] = 0
    v, out = _points(301, 3, seed=2), _poisoned(9, 3)
    kronop.kernel_matmul(*points, v, kernel, out=out)
    _check(out, *points, v, kernel)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_types(dtype: Any) -> None:
    x1, x2, v = (
        _points(40, 7, dtype=dtype),
        _points(90, 7, dtype=dtype),
        _points(90, 2, dtype=dtype),
    )
    kernel = kernels.Gaussian(2.0)
    out = _poisoned(40, 2, dtype=dtype)
    _check(kronop.kernel_matmul(x1, x2, v, kernel, out=out), x1, x2, v, kernel)


def test_strides_batches_and_broadcasts() -> None:
    x1, x2, v = _points(3, 6, 50).swapaxes(1, 2), _points(60, 12)[:, ::2], _points(2, 1, 4, 60)
    v = v.swapaxes(2, 3)
    kernel = kernels.Gaussian(np.array([[1.0, 1.5, 2.0], [2.5, 3.0, 3.5]]))
    out = _poisoned(4, 2, 3, 50).transpose(1, 2, 3, 0)
    _check(kronop.kernel_matmul(x1, x2, v, kernel, out=out), x1, x2, v, kernel)


@pytest.mark.parametrize("regularization", [0.5, np.array([0.5, 2.0])])
def test_regularization(regularization: Any) -> None:
    """It is on the diagonal alone, whichever of M and N is larger."""
    kernel = kernels.Gaussian(1.0)
    for m, n in ((300, 90), (90, 300)):
        x1, x2, v = _points(2, m, 3), _points(2, n, 3, seed=1), _points(2, n, 1, seed=2)
        out = _poisoned(2, m, 1)
        kronop.kernel_matmul(x1, x2, v, kernel, regularization, out)
        _check(out, x1, x2, v, kernel, regularization)


def test_vector() -> None:
    x, v, kernel = _points(80, 4), _points(80, seed=1), kernels.Gaussian(1.0)
    result, out = kronop.kernel_matmul(x, x, v, kernel), _poisoned(80)
    assert kronop.kernel_matmul(x, x, v, kernel, out=out) is out
    for item in (result, out):
        _check(item[:, None], x, x, v[:, None], kernel)


@pytest.mark.parametrize("shape", [(0, 5, 3, 2), (5, 0, 3, 2), (5, 6, 0, 2), (5, 6, 3, 0)])
def test_nothing(shape: tuple[int, int, int, int]) -> None:
    """No points of x2 give zeros; no features give the kernel of equal points."""
    m, n, k, c = shape
    x1, x2, v, kernel = _points(m, k), _points(n, k), _points(n, c), kernels.Gaussian(1.0)
    out = _poisoned(m, c)
    kronop.kernel_matmul(x1, x2, v, kernel, out=out)
    expected = np.broadcast_to(v.sum(0), (m, c)) if k == 0 else np.zeros((m, c))
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_long_sums() -> None:
    """Sums of many points have no error that grows with their number."""
    x1, x2, v = _points(3, 2), _points(100_000, 2, seed=1), np.ones((100_000, 1), np.float32)
    kernel = kernels.Gaussian(1.0)
    expected, _ = _reference(x1, x2, v, kernel)
    result = kronop.kernel_matmul(x1, x2, v, kernel)
    assert np.linalg.norm(result - expected) <= 1e-6 * np.linalg.norm(expected)


def test_described() -> None:
    """Scaled, and added to what was there."""
    kernel, tensor = kernels.Gaussian(1.0), kronop.TensorDescription(float32)
    operation = kronop.KernelMatmulOperation(
        "x86", None, tensor, tensor, tensor, tensor, support.linear(float32), kernel
    )
    x1, x2, v, y = _points(33, 4), _points(44, 4), _points(44, 2), _points(33, 2, seed=3)
    expected = 2 * _reference(x1, x2, v, kernel)[0] - 3 * y.astype(np.float64)
    output_op = operation.epilogue_type(2, -3)
    operation.run(
        kronop.KernelMatmulArguments(
            operation=operation, X1=x1, X2=x2, V=v, Z=y, Y=y, kernel=kernel, output_op=output_op
        )
    )
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"v": _points(9, 1)}, "V: expected .*a row for each point"),
        ({"v": _points(2, 10)}, "V: expected"),
        ({"v": _points(10, 1, dtype=np.float64)}, "element type of V: expected float32, as X1 has"),
        ({"x2": _points(10, 4)}, "features of X2"),
        ({"out": _poisoned(8, 2)}, "shape of Y"),
        ({"v": _points(10), "out": _poisoned(8, 1)}, "v is a vector"),
        ({"kernel": "gaussian"}, "one of kronop.kernels"),
    ],
)
def test_refusals(changed: dict[str, Any], message: str) -> None:
    given = {
        "x1": _points(8, 3),
        "x2": _points(10, 3),
        "v": _points(10, 1),
        "kernel": kernels.Gaussian(1.0),
    }
    with pytest.raises(kronop.KronopError, match=message):
        kronop.kernel_matmul(**(given | changed))


def test_result_may_not_overlap() -> None:
    x = _points(10, 3)
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.kernel_matmul(x, _points(10, 3), x, kernels.Gaussian(1.0), out=x)
