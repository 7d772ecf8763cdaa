"""Operators of torch tensors and CuPy arrays on a GPU, beside the same of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from tests.unit.operator_cases import SQUARE, check_solution, definite, kron, matrices

pytestmark = pytest.mark.cuda


@pytest.fixture(params=["torch", "cupy"])
def framework(request: pytest.FixtureRequest) -> Any:
    module = pytest.importorskip(request.param)
    if request.param == "torch" and not module.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return module


def _put(framework: Any, array: Any) -> Any:
    is_torch = framework.__name__ == "torch"
    return framework.from_numpy(array).cuda() if is_torch else framework.asarray(array)


def _get(tensor: Any) -> Any:
    return tensor.get() if hasattr(tensor, "get") else tensor.cpu().numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_all_of_an_operator(framework: Any, dtype: str, batch: Any) -> None:
    factors, b = definite(SQUARE, dtype, batch), np.ones((24, 3), dtype)
    b[3:, 1], b[:5, 2] = 2, -1
    ours = kronop.KroneckerOperator(factors)
    theirs = kronop.KroneckerOperator([_put(framework, factor) for factor in factors])
    columns, dense = _put(framework, b), kron(factors)
    tolerance = 24 * 24 * np.finfo(dtype).eps * np.abs(dense).max()
    for name in ("to_dense", "diagonal", "trace", "logdet", "eigvalsh"):
        found, wanted = _get(getattr(theirs, name)()), getattr(ours, name)()
        assert np.allclose(found, wanted, rtol=0, atol=tolerance), name
    assert np.allclose(_get(theirs @ columns), ours @ b, rtol=0, atol=tolerance)
    assert np.allclose(_get(columns.T @ theirs), b.T @ ours, rtol=0, atol=tolerance)
    check_solution(_get(theirs.solve(columns)), dense, b, dtype)
    shifted = dense + 0.5 * np.eye(24)
    check_solution(_get(theirs.solve(columns, 0.5)), shifted, b, dtype)
    lower = _get(theirs.cholesky().to_dense())
    assert np.allclose(lower @ lower.swapaxes(-1, -2), dense, rtol=0, atol=tolerance)
    for found, wanted in ((theirs.sqrt(), ours.sqrt()), (theirs**-2, ours**-2)):
        assert np.allclose(_get(found.to_dense()), wanted.to_dense(), rtol=0, atol=tolerance)
    x, info = kronop.cg(theirs, columns, sigma2=0.5)
    assert bool(info.converged.all())
    assert np.allclose(_get(x), np.linalg.solve(shifted, b), atol=1e-3)


def test_sums(framework: Any) -> None:
    factors, b = definite(SQUARE, "float64"), np.ones((24, 2))
    symmetric = [0.3 * (g + g.T) for g in matrices(SQUARE, "float64")]
    columns = _put(framework, b)
    placed, others = ([_put(framework, item) for item in given] for given in (factors, symmetric))
    ours, theirs = kronop.KroneckerSum(factors), kronop.KroneckerSum(placed)
    assert np.allclose(_get(theirs @ columns), ours @ b)
    assert np.allclose(_get(theirs.solve(columns, 0.5)), ours.solve(b, 0.5))
    assert np.allclose(_get(theirs.exp().to_dense()), ours.exp().to_dense())
    general = [_put(framework, item) for item in matrices(SQUARE, "float64", (2,))]
    grown, back = (kronop.KroneckerSum(general) * sign for sign in (0.3, -0.3))
    assert np.allclose(_get((grown.exp() @ back.exp()).to_dense()), np.eye(24))
    two = kronop.KroneckerOperator(placed) + kronop.KroneckerOperator(others)
    dense = kron(factors) + kron(symmetric)
    check_solution(_get(two.solve(columns)), dense, b, "float64")
    assert np.allclose(_get(two.logdet()), np.linalg.slogdet(dense)[1])


def test_a_scale_is_no_part_of_a_factor_of_16_bits(framework: Any) -> None:
    eye = np.eye(3, dtype="float16")
    x = _put(framework, np.ones((9, 1), "float16"))
    for scale, values, wanted in ((2, (6e4, 1e-4), 12), (0.1, (1e-7, 6e4), 6000 * 2**-23)):
        operator = kronop.KroneckerOperator([_put(framework, eye * np.float16(v)) for v in values])
        for own in (scale, _put(framework, np.asarray([scale], "float32"))):
            found = _get((own * operator) @ x).astype("float64")
            np.testing.assert_allclose(found.ravel(), wanted, rtol=8 * 2.0**-11)
            np.testing.assert_allclose(_get((own * operator).diagonal()).ravel(), found.ravel())


@pytest.mark.parametrize("method", ["dense", "iterative"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_grids_with_missing_points(framework: Any, method: str, batch: Any) -> None:
    factors, b, mask = definite(SQUARE, "float64", batch), np.ones((18, 2)), np.arange(24) % 4 != 1
    b[3:, 1] = -1
    placed = kronop.KroneckerOperator([_put(framework, item) for item in factors])
    ours = kronop.KroneckerOperator(factors).masked(mask, method=method)
    theirs = placed.masked(_put(framework, mask), method=method)
    columns = _put(framework, b)
    assert np.allclose(_get(theirs @ columns), ours @ b)
    assert np.allclose(_get(theirs.to_dense()), ours.to_dense())
    assert np.allclose(_get(theirs.solve(columns, 0.3)), ours.solve(b, 0.3), atol=1e-7)
    for found, wanted in zip(theirs.estimate_logdet(0.3), ours.estimate_logdet(0.3), strict=True):
        assert np.allclose(_get(found), wanted)


def test_what_cupy_does_not_raise_is_told() -> None:
    cupy = pytest.importorskip("cupy")
    singular = kronop.KroneckerOperator([cupy.ones((2, 2))])
    with pytest.raises(kronop.ArgumentError, match=r"factors\[0\].*singular"):
        singular.solve(cupy.ones(2))
    with pytest.raises(kronop.ArgumentError, match=r"factors\[0\].*definite"):
        kronop.KroneckerOperator([-cupy.eye(2)]).cholesky()


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    a, b, x, s = (
        torch.rand(shape, dtype=torch.float64, device="cuda", requires_grad=True)
        for shape in ((3, 3), (2, 2), (6, 2), ())
    )

    def solved(a: Any, b: Any, x: Any, s: Any) -> Any:
        factors = [g @ g.mT + torch.eye(len(g), dtype=g.dtype, device=g.device) for g in (a, b)]
        operator = kronop.KroneckerOperator(factors)
        part = (s * operator).masked([True, True, False, True, False, True])
        return operator.solve(x, s), operator.logdet(s), part.solve(x[:4], s), part.logdet(s)

    assert torch.autograd.gradcheck(solved, (a, b, x, s))
