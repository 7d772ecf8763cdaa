"""A NaN among the operands is one in the results: of products, of distances, and of reductions."""

from __future__ import annotations

import math
from typing import Any

import pytest

import kronop
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.math_instruction import MathInstruction
from kronop.families.distance.api import MODES
from tests.unit.test_distance_calls import check_reductions_of_nan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cuda

_FACTORS = (
    ((4, 4), (4, 5), (4, 2), (7, 3)),
    ((8, 8), (8, 8), (8, 8)),
    ((16, 16), (16, 16)),
    ((64, 64), (64, 64)),
    ((33, 31),),
)
_PATTERNS = ((2, 32, 48, 1), (1, 64, 64, 4), (3, 5, 7, 5), (1, 256, 256, 1))


def _drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("factors", _FACTORS)
def test_kronecker_products(factors, rows: int, dtype: torch.dtype) -> None:
    columns = torch.tensor([p for p, _ in factors]).prod().item()
    x = _drawn(rows, columns, dtype=dtype)
    x[1, columns // 2] = x[3, 0] = torch.nan
    matrices = [_drawn(*shape, dtype=dtype) for shape in factors]
    rows_with_nan = kronop.gemkm(x, matrices).isnan()
    assert rows_with_nan[[1, 3]].all()
    assert not rows_with_nan[[0, 2, 4]].any()
    matrices[0][0, 0] = torch.nan
    assert kronop.gemkm(x, matrices).isnan().any(1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [5, 3000])
@pytest.mark.parametrize("pattern", _PATTERNS)
def test_sparse_products(pattern, rows: int, dtype: torch.dtype) -> None:
    a, b, c, d = pattern
    x, weights = _drawn(rows, a * c * d, dtype=dtype), _drawn(*pattern, dtype=dtype)
    x[1, 0] = torch.nan
    found = kronop.ksmm(x, weights).isnan()
    assert found[1].view(a, b, d)[0, :, 0].all()
    assert found.sum() == b
    weights[0, 0, 0, 0] = torch.nan
    assert kronop.ksmm(x, weights)[:, 0].isnan().all()


@pytest.mark.parametrize("rows", [5, 3000])
@pytest.mark.parametrize("pattern", _PATTERNS[:2])
def test_sparse_products_of_tf32(pattern, rows: int) -> None:
    a, b, c, d = pattern
    math = MathInstruction(
        [16, 8, 8], kronop.float32, kronop.float32, kronop.float32, kronop.OpClass.TensorOp
    )
    tile = kronop.TileDescription([64, 32, 32], 3, [2, 1, 2], math)
    x, weights = _drawn(rows, a * c * d, dtype=torch.float32), _drawn(*pattern, dtype=torch.float32)
    x[1, 0] = weights[0, 1, 0, 0] = torch.nan
    tensor = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    operation = kronop.KSparseOperation(
        90,
        tile,
        tensor,
        kronop.TensorDescription(kronop.float32),
        tensor,
        epilogue,
        pattern=pattern,
    )
    arguments = kronop.KSparseArguments(operation=operation, X=x, W=weights)
    operation.run(arguments)
    found = arguments.Y.isnan()
    assert found[1].view(a, b, d)[0, :, 0].all()
    assert found[:, d].all()


_POWERS = (0, 0.5, 1, 1.3, 1.5, 2, 2.5, 3, 3.7, 4, 60, math.inf)
_FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", _FLOATS)
def test_distances_of_every_norm(dtype: torch.dtype) -> None:
    for features in (33, 300):
        x, y = _drawn(300, features, dtype=dtype), _drawn(500, features, dtype=dtype)
        some, v = y.clone(), torch.ones(500, 2, device="cuda", dtype=dtype)
        x[7, 5] = y[11, 3] = torch.nan
        expected = torch.zeros(300, 500, dtype=torch.bool, device="cuda")
        expected[7], expected[:, 11] = True, True
        powers = torch.full(
            (1,), 2.2, device="cuda", dtype=torch.promote_types(dtype, torch.float32)
        )
        calls = [
            lambda a, b, p=p, mode=mode: kronop.cdist(a, b, p, mode)
            for p in _POWERS
            for mode in MODES
        ]
        calls.append(lambda a, b, p=powers: kronop.cdist(a[None], b[None], p)[0])
        for call in calls:
            assert torch.equal(call(x, y).isnan(), expected)
            own = call(x, x).isnan()
            assert own[7].all()
            assert own[:, 7].all()
            assert own.sum() == 2 * 300 - 1
        for p in _POWERS:
            product = kronop.kernel_matmul(x, some, v, kronop.kernels.PowerNorm(p)).isnan()
            assert product[7].all()
            assert product.sum() == 2


@pytest.mark.parametrize("dtype", _FLOATS[:3])
def test_gradients_of_every_norm(dtype: torch.dtype) -> None:
    weights, points = _drawn(70, 90, dtype=dtype).abs() + 1, _drawn(9, 70, dtype=dtype)
    others = _drawn(9, 90, dtype=dtype)
    points[3, 5] = others[6, 8] = torch.nan
    expected = torch.zeros(9, 90, dtype=torch.bool, device="cuda")
    expected[3], expected[6, 8] = True, True
    for p in _POWERS[1:-1]:
        found = kronop.cdist_grad(weights, points, None, others, p)
        assert torch.equal(found.isnan(), expected)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_reductions(framework: str, dtype: str) -> None:
    x, y = (_drawn(count, 5, dtype=torch.float32).cpu().numpy().astype(dtype) for count in (7, 6))
    y[4, 2] = math.nan
    check_reductions_of_nan(x, y, 4, framework, "cuda")


@pytest.mark.parametrize("dtype", _FLOATS)
def test_activations(dtype: torch.dtype) -> None:
    a, b = _drawn(130, 64, dtype=dtype), _drawn(64, 136, dtype=dtype)
    a[7, 3] = torch.nan
    for name in ACTIVATION_NAMES:
        found = kronop.gemm.matmul(a, b, activation=name).isnan()
        assert found[7].all(), name
        assert found.sum() == 136, name


@pytest.mark.parametrize("dtype", _FLOATS)
def test_maxima_of_trees(dtype: torch.dtype) -> None:
    def maxima(accum: Any) -> Any:
        rows, columns = (kronop.maximum(accum, axis=axis) for axis in ("row", "column"))
        return accum, rows, columns

    a, b = _drawn(130, 64, dtype=dtype), _drawn(64, 136, dtype=dtype)
    a[7, 3] = torch.nan
    _, rows, columns = kronop.torch.matmul_visited(kronop.epilogue_visitor(maxima), a, b)
    assert rows.isnan().nonzero().tolist() == [[7]]
    assert columns.isnan().all()
