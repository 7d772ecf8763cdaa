"""What the one-line functions of all families share: describing plain tensors, and running."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kronop.args.tensor import TensorView, check_element, describe, view
from kronop.core.prepared import Lesson
from kronop.descriptions import activation as activations
from kronop.descriptions.datatype import FLOAT8, DataType, Layout, int8, result_type
from kronop.descriptions.epilogue import (
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import SIMT_ELEMENTS, MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ElementTypeError, mismatch


def operand_of(x: Any) -> TensorView:
    """A view of X.

    Raises:
        ElementTypeError: no kernel multiplies X's element type.
    """
    x_view = view(x, "X")
    if x_view.element not in SIMT_ELEMENTS:
        raise ElementTypeError(
            mismatch(
                "element type of X",
                expected=f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}",
                got=x_view.element.name,
                hint="convert all tensors to one of these",
            )
        )
    return x_view


def describe_output(x: DataType, inner: int, z: Any, out: Any) -> TensorDescription:
    """The description with the largest alignment that both Y and Z satisfy.

    `inner` is the contiguous extent of Y, in elements, if Y is made here.

    Raises:
        ElementTypeError: they are not of the type that X's product has.
    """
    tensors = (("Z", z), ("Y", out))
    given = {name: describe(view(item, name), name) for name, item in tensors if item is not None}
    element = result_type(x)
    if out is not None and (given["Y"].element == x or x in FLOAT8):
        element = given["Y"].element
    for name, item in given.items():
        check_element(item.element, element, name)
    if out is None:
        alignment = math.gcd(inner, 16 // element.bytes) or 1
        given["Y"] = TensorDescription(element, Layout.RowMajor, alignment)
    layouts = {item.layout for item in given.values()}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in given.values()))


def epilogue_of(x: DataType, Y: TensorDescription, activation: str | None) -> Epilogue:
    accumulator = MathInstruction.simt(x).element_accumulator
    if activation is None:
        functor = LinearCombinationClamp if Y.element == int8 else LinearCombination
        return functor(Y.element, Y.alignment, accumulator, accumulator)
    function = getattr(activations, activation)(accumulator)
    return LinearCombinationGeneric(function, Y.element, Y.alignment, accumulator, accumulator)


def finish(arguments: Any, lesson: Lesson | None, slots: Mapping[str, int]) -> Any:
    arguments.operation.run(arguments)
    if lesson is not None:
        lesson.add(arguments, slots)
    return arguments.Y
