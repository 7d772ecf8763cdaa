"""kronop.scipy: operators in scipy.sparse.linalg."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import kronop
import kronop.scipy
from kronop.errors import ArgumentError, ElementTypeError, installing
from tests.unit.operator_cases import RECTANGULAR, SQUARE, definite, kron, kronecker_sum, matrices


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scipy", "scipy.sparse.linalg"):  # Another test may have imported the latter.
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(vars(kronop.scipy), "LinearOperator", raising=False)
    with pytest.raises(ImportError, match=f"expected scipy.*{re.escape(installing('scipy'))}"):
        kronop.scipy.LinearOperator  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        kronop.scipy.nothing  # noqa: B018


@pytest.fixture
def linalg() -> Any:
    return pytest.importorskip("scipy.sparse.linalg")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_from_both_sides(linalg: Any, dtype: str) -> None:
    factors = matrices(RECTANGULAR, dtype)
    operator, dense = kronop.scipy.LinearOperator(kronop.KroneckerOperator(factors)), kron(factors)
    assert isinstance(operator, linalg.LinearOperator)
    assert (operator.shape, operator.dtype) == (dense.shape, np.dtype(dtype))
    bound = 16 * np.finfo(dtype).eps * np.abs(dense).sum()
    x, y = np.ones((30, 3)), np.ones((24, 3))  # Of float64: SciPy's functions mix types.
    x[0], y[0] = 2, 3
    for found, wanted in (
        (operator.matvec(x[:, 0]), dense @ x[:, 0]),
        (operator.matvec(x[:, :1]), dense @ x[:, :1]),
        (operator.matmat(x), dense @ x),
        (operator.rmatvec(y[:, 0]), dense.T @ y[:, 0]),
        (operator.rmatmat(y), dense.T @ y),
        (operator.H.matmat(y), dense.T @ y),
        (operator.T @ y[:, 0], dense.T @ y[:, 0]),
    ):
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=0, atol=bound)


def test_solvers_and_eigenvalues(linalg: Any) -> None:
    factors, b = definite(SQUARE, "float64"), np.arange(24.0)
    x, info = linalg.cg(
        kronop.scipy.LinearOperator(kronop.KroneckerOperator(factors)), b, rtol=1e-12
    )
    assert info == 0
    assert np.allclose(kron(factors) @ x, b)
    laplacian = kronop.scipy.LinearOperator(kronop.KroneckerSum(factors))
    values = linalg.eigsh(laplacian, k=3, return_eigenvectors=False)
    assert np.allclose(np.sort(values), np.linalg.eigvalsh(kronecker_sum(factors))[-3:])


def test_torch_tensors_are_shared(linalg: Any) -> None:
    torch = pytest.importorskip("torch")
    factors = definite(SQUARE, "float64")
    tensors = [torch.from_numpy(factor).requires_grad_() for factor in factors]
    operator = kronop.scipy.LinearOperator(kronop.KroneckerOperator(tensors))
    assert np.allclose(operator @ np.ones(24), kron(factors) @ np.ones(24))
    with torch.no_grad():
        tensors[1].mul_(3)  # What is shared is seen by the operator that was made before.
    changed = [tensor.detach().numpy().copy() for tensor in tensors]
    assert np.allclose(operator @ np.ones(24), kron(changed) @ np.ones(24))


def test_errors(linalg: Any) -> None:
    batch = kronop.KroneckerOperator(definite(SQUARE, "float64", (2,)))
    with pytest.raises(ArgumentError, match="leading dimensions"):
        kronop.scipy.LinearOperator(batch)
    with pytest.raises(ElementTypeError, match="one of kronop's operators"):
        kronop.scipy.LinearOperator(np.eye(2))
    operator = kronop.scipy.LinearOperator(kronop.KroneckerOperator([np.eye(2)]))
    with pytest.raises(ElementTypeError, match="real numbers"):
        operator @ np.ones(2, complex)


def test_fractions_are_not_cut_to_whole_numbers(linalg: Any) -> None:
    whole = kronop.KroneckerOperator([np.ones((3, 3), np.int64), np.eye(4, dtype=np.int64)])
    operator = kronop.scipy.LinearOperator(whole)
    assert (operator @ np.ones(12, np.int64) == 3).all()
    with pytest.raises(ElementTypeError, match="whole numbers beside an operator of int64"):
        operator @ np.full(12, 0.5)
