"""Shapes and types of the results of visitor trees without values, and what is refused of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.args.strides import broadcasts
from kronop.args.visited import check_reduced, misfit, own_shape
from kronop.descriptions.datatype import RESULT_TYPES, DataType
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import Operand, VisitorEpilogue
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.gemm.torch.shapes import element_of, result_shape
from kronop.families.gemm.visited_api import epilogue_for
from kronop.torch.checks import check_device
from kronop.torch.declaration import Named


def results(
    a: Tensor, b: Tensor, operands: Sequence[Tensor], scalars: Sequence[float] | None, tree: str
) -> list[Tensor]:
    """New tensors of the results' shapes and types.

    Raises:
        ArgumentError: shapes or devices that do not fit, or a reduction of nothing.
        ElementTypeError: element types that do not fit.
        DescriptionError: no kernel computes a tree with these types.
    """
    shape = result_shape(a, b)
    _check_counts(operands, scalars, tree)
    epilogue = typed(a, operands, tree)
    for item, tensor in zip(epilogue.tree.tensors, operands, strict=True):
        check_device(item.name, tensor, a.device)
        goal = own_shape(item.kind, shape)
        if not broadcasts(tensor.shape, goal):
            raise misfit(f"shape of {item.name}", goal, tuple(tensor.shape))
    for result in epilogue.tree.auxiliary:
        check_reduced(result, shape)
    return [
        a.new_empty(own_shape(item.kind, shape), dtype=kind_of(epilogue.element_of(item)))
        for item in epilogue.tree.results
    ]


def _check_counts(operands: Sequence[Tensor], scalars: Sequence[float] | None, tree: str) -> None:
    told = from_text(tree)
    given = len(operands), len(scalars or ())
    if given != (len(told.tensors), len(told.scalars)):
        raise ArgumentError(
            mismatch(
                "kronop::matmul_visited",
                expected=f"{len(told.tensors)} operands and {len(told.scalars)} scalars, as the"
                " tree has",
                got=f"{given[0]} and {given[1]}",
                hint="call kronop.torch.matmul_visited, which takes them by name",
            )
        )


def typed(a: Tensor, operands: Sequence[Tensor], tree: str) -> VisitorEpilogue:
    """The tree with the types of a call.

    Raises:
        ElementTypeError, DescriptionError: as of `results`.
    """
    element = element_of(a.dtype)
    return epilogue_for(tree, element, elements_of(operands))


def elements_of(operands: Sequence[Tensor]) -> tuple[DataType, ...]:
    """The types of operands in memory.

    Raises:
        ElementTypeError: an epilogue reads no tensors of this type.
    """
    found = []
    for item in operands:
        element = RESULT_TYPES.get(str(item.dtype).removeprefix("torch."))
        if element is None:
            raise ElementTypeError(
                mismatch(
                    "element type of an operand of a visitor tree",
                    expected=f"one of {', '.join(RESULT_TYPES)}",
                    got=str(item.dtype),
                    hint="convert it; it need not have the type of a and b",
                )
            )
        found.append(element)
    return tuple(found)


def as_matrix(item: Operand, tensor: Tensor) -> Tensor:
    """An operand as what broadcasts against (..., M, N)."""
    return tensor if item.kind == "tensor" else tensor.unsqueeze(-2 if item.kind == "row" else -1)


def kind_of(element: DataType) -> torch.dtype:
    return getattr(torch, element.name)


def refuse_gradient(given: Named) -> None:
    """Raises ArgumentError for 8-bit floats, which can't hold their gradients."""
    if given.a.dtype.itemsize == 1 and (given.a.requires_grad or given.b.requires_grad):
        raise ArgumentError(
            mismatch(
                "gradient of matmul_visited",
                expected="a and b of 16 bits or more",
                got=str(given.a.dtype),
                hint="multiply wider tensors; operands of the tree may have gradients",
            )
        )
