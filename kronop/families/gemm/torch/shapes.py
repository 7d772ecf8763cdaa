"""Shapes and types of matrix products without values, and what is refused of them."""

from __future__ import annotations

import torch
from torch import Tensor

from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.descriptions.math_instruction import SIMT_ELEMENTS
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.gemm.shape_arguments import check_others, extents_of_product, leading
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Named

_HINT = "a and b have one type, c and bias that of the result"


def result(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None) -> Tensor:
    """A tensor of the result's shape and type.

    Raises:
        ArgumentError: shapes that do not fit.
        ElementTypeError: element types that do not.
    """
    shape, kind = result_shape(a, b), result_kind(a.dtype)
    for name, item in (("c", c), ("bias", bias)):
        if item is not None:
            check_kind(name, item, kind, _HINT)
    others = {
        name: tuple(item.shape) for name, item in (("bias", bias), ("Z", c)) if item is not None
    }
    check_others(others, shape, shape[-1])
    return a.new_empty(shape, dtype=kind)


def result_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """(..., M, N) of a product.

    Raises:
        ArgumentError, ElementTypeError: as of `result`.
    """
    shapes = tuple(a.shape), tuple(b.shape)
    m, n, _ = extents_of_product(*shapes)
    element_of(a.dtype)
    check_kind("b", b, a.dtype, _HINT)
    return (*leading(*shapes, broadcast=common_shape), m, n)


def result_kind(kind: torch.dtype) -> torch.dtype:
    """The type of products of tensors of this type."""
    return getattr(torch, result_type(element_of(kind)).name)


def element_of(kind: torch.dtype) -> DataType:
    """The element type of operands a and b of this type.

    Raises:
        ElementTypeError: no kernel multiplies it.
    """
    element = TENSOR_TYPES.get(str(kind).removeprefix("torch."))
    if element not in SIMT_ELEMENTS:
        raise ElementTypeError(
            mismatch(
                "element type of a",
                expected=f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}",
                got=str(kind),
                hint="convert all tensors to one of these",
            )
        )
    return element


def refuse_gradient(given: Named) -> None:
    """Raises ArgumentError for 8-bit floats, which can't hold their gradients."""
    if given.a.dtype is not result_kind(given.a.dtype):
        raise ArgumentError(
            mismatch(
                "gradient of matmul",
                expected="operands of 16 bits or more",
                got=str(given.a.dtype),
                hint="multiply wider tensors, or record no gradients (torch.no_grad())",
            )
        )
