"""A NaN among the operands of products on the tensor cores is one in the results."""

from __future__ import annotations

import pytest

import kronop
from kronop.descriptions.math_instruction import MathInstruction

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
