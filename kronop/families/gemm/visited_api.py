"""Matrix products with a visitor tree, on plain tensors: types of results, operations, runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from kronop.args.device import target_of
from kronop.core.calls import operation_of
from kronop.descriptions.datatype import DataType, Layout, float32, result_type
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.families.gemm.api import described
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.operation import GemmOperationUniversal

_MOST_BYTES = 16  # The widest access to D.


def run_visited(
    a: Any, b: Any, given: Mapping[str, Any], elements: tuple[DataType, ...], tree: str
) -> None:
    """Computes a tree's results from the sums of a product.

    Args:
        a: (..., M, K).
        b: (..., K, N).
        given: what `epilogue_type` takes: scalars, operands and all results, by name.
        elements: the types of the operands in memory, in the order of the tree.
        tree: its text.
    """
    (first, second), (A, B) = described(a, b)
    length = math.gcd(second.shape[-1], _MOST_BYTES // _output(first.element, elements).bytes) or 1
    epilogue = epilogue_for(tree, first.element, elements, length)
    C = TensorDescription(epilogue.element_output, Layout.RowMajor, length)
    operation = operation_of(
        GemmOperationUniversal, target_of(first), A, B, C, epilogue, visitor=True
    )
    output_op = operation.epilogue_type(**given)
    operation.run(GemmArguments(operation=operation, A=a, B=b, output_op=output_op))


@functools.lru_cache(maxsize=512)
def epilogue_for(
    tree: str, element: DataType, elements: tuple[DataType, ...], length: int = 1
) -> VisitorEpilogue:
    """The tree as the epilogue of a product.

    Args:
        tree: its text.
        element: the type of a and b.
        elements: those of the operands in memory, in the order of the tree.
        length: how many elements of D are written at once.

    Raises:
        DescriptionError: no kernel computes a tree with these types.
    """
    output, told = _output(element, elements), from_text(tree)
    sums = MathInstruction.simt(element).element_accumulator
    others = {
        item.name: own
        for item, own in zip(told.tensors, elements, strict=True)
        if own is not output
    }
    return told(output, length, sums, sums if sums.kind == "float" else float32, others)


@functools.lru_cache(maxsize=512)
def _output(element: DataType, elements: tuple[DataType, ...]) -> DataType:
    """The type of D: that of the product or, where this is an integer and some operands are floats,
    the least type that holds these floats."""
    result = result_type(element)
    floats = {item for item in elements if item.kind == "float"}
    if result.kind == "float" or not floats:
        return result
    bits = max(item.bits for item in floats)
    widest = [item for item in floats if item.bits == bits]
    return widest[0] if len(widest) == 1 else float32
