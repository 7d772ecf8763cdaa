"""Which operators are multiplied as dense matrices, and when that is the faster way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    SumLinearOperator,
    ToeplitzLinearOperator,
    TriangularLinearOperator,
)

# Whatever an operator is made of, so small a matrix is multiplied fastest as a dense one.
_SMALL = 64 * 64
# linear_operator multiplies a Toeplitz matrix by Fourier transforms. NOTE: on an AVX-512 core a
# dense one is 5 times as fast for 30 x 30, and not slower up to this size.
_LARGEST_TOEPLITZ = 256
# NOTE: measured with one and two threads of AVX-512 cores, in float32 and float64, for factors of
# 4 to 2000. Within these bounds one product of kronop is 1.1 to 4 times as fast as a matrix product
# for each factor; beyond them, with two threads, torch's matrix products are up to 3 times as fast.
_MOST_COLUMNS, _LARGEST, _LARGEST_OF_VECTORS = 16, 400, 1000
# Here calls cost more than arithmetic, and kronop makes only one.
_FEW_ELEMENTS = 4096

_KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def matrices(operators: Sequence[LinearOperator]) -> list[torch.Tensor] | None:
    """The operators as tensors (..., rows, columns), differentiable; None if one of them is better
    multiplied by a method of its own."""
    if not all(map(_is_dense, operators)):
        return None
    return [matrix(item) for item in operators]


def is_faster(factors: Sequence[torch.Tensor], x: torch.Tensor) -> bool:
    """Whether kronop's product of factors with x (..., K, columns) is possible, and expected to be
    faster than one matrix product for each factor."""
    if not _is_possible(factors, x):
        return False
    largest, columns = max(max(item.shape[-2:]) for item in factors), x.shape[-1]
    most = _LARGEST_OF_VECTORS if columns == 1 else _LARGEST
    is_small = math.prod(x.shape[-2:]) <= _FEW_ELEMENTS
    return bool(x.is_cuda) or is_small or (columns <= _MOST_COLUMNS and largest <= most)


def is_derivative_faster(factors: Sequence[torch.Tensor], x: torch.Tensor) -> bool:
    """As `is_faster`, for the derivatives of the factors. NOTE: on a CPU autograd of matrix
    products was up to twice as fast, measured as above."""
    return bool(x.is_cuda) and _is_possible(factors, x)


def _is_possible(factors: Sequence[torch.Tensor], x: torch.Tensor) -> bool:
    return bool(
        x.dtype in _KINDS
        and all(item.dtype is x.dtype and item.device == x.device for item in factors)
        and x.device.type in ("cpu", "cuda")
        and all(item.numel() for item in (*factors, x))
    )


def matrix(operator: LinearOperator) -> torch.Tensor:
    """The operator as a tensor (..., rows, columns), differentiable."""
    if isinstance(operator, ToeplitzLinearOperator):
        column = operator.column
        index = torch.arange(column.shape[-1], device=column.device)
        return column[..., (index[:, None] - index).abs()]
    return operator.to_dense()


def _is_dense(operator: LinearOperator) -> bool:
    """Whether the operator is a matrix that is cheap to write down, and not faster as it is."""
    if isinstance(operator, DiagLinearOperator):
        return False
    if operator.shape[-2] * operator.shape[-1] <= _SMALL:
        return True
    if isinstance(operator, ToeplitzLinearOperator):
        return bool(operator.shape[-1] <= _LARGEST_TOEPLITZ)
    if isinstance(operator, TriangularLinearOperator):
        return _is_dense(operator._tensor)
    if isinstance(operator, ConstantMulLinearOperator):
        return _is_dense(operator.base_linear_op)
    if isinstance(operator, SumLinearOperator):
        parts = operator.linear_ops
        return any(map(_is_dense, parts)) and all(
            isinstance(item, DiagLinearOperator) or _is_dense(item) for item in parts
        )
    return isinstance(operator, DenseLinearOperator)
