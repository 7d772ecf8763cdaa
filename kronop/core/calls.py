"""What the one-line functions of all families share: describing plain tensors, and running."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kronop.args.frameworks import DIFFERENTIABLE
from kronop.args.tensor import TensorView, check_element, describe, view
from kronop.core.prepared import Lesson
from kronop.descriptions import activation as activations
from kronop.descriptions.datatype import FLOAT8, RESULT_TYPES, DataType, Layout, int8, result_type
from kronop.descriptions.epilogue import (
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import SIMT_ELEMENTS, MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError
from kronop.target import Target
from kronop.tensors import Tensor

if TYPE_CHECKING:
    from kronop.core.operation import Operation

# The names of Z and Y for users of most one-line functions.
_NAMES: Mapping[str, str] = {"Z": "Z", "Y": "Y"}
_NO_SLOTS: Mapping[str, int] = {}
AnyOperation = TypeVar("AnyOperation", bound="Operation[Any, Any]")


def operand_of(tensor: Tensor, name: str = "X", differentiable: str = DIFFERENTIABLE) -> TensorView:
    """A view of an operand.

    Args:
        name: what the caller calls it.
        differentiable: the functions that have gradients, for the message that there are none here.

    Raises:
        ElementTypeError: no kernel multiplies its element type.
    """
    found = view(tensor, name, differentiable)
    if found.element not in SIMT_ELEMENTS:
        raise ElementTypeError(
            f"element type of {name}",
            expected=f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}",
            got=found.element.name,
            hint="convert all tensors to one of these",
        )
    return found


def describe_output(
    x: DataType,
    inner: int,
    z: Tensor,
    out: Tensor,
    called: Mapping[str, str] = _NAMES,
    differentiable: str = DIFFERENTIABLE,
) -> TensorDescription:
    """The description with the largest alignment that both Y and Z satisfy.

    Args:
        x: the element type of the operands.
        inner: the contiguous extent of Y, in elements, if Y is made here.
        z, out: the tensors of Z and Y, or None.
        called: what the caller calls Z and Y.
        differentiable: as of `operand_of`.

    Raises:
        ElementTypeError: they are not of the type that X's product has.
    """
    tensors = (("Z", z), ("Y", out))
    given = {
        name: describe(view(item, called[name], differentiable), called[name])
        for name, item in tensors
        if item is not None
    }
    element = result_type(x)
    if out is not None and (given["Y"].element == x or x in FLOAT8):
        element = given["Y"].element
    for name, item in given.items():
        check_element(item.element, element, called[name], _result_told(x, element, called, name))
    if out is not None and element.name not in RESULT_TYPES:
        raise ElementTypeError(
            f"element type of {called['Y']}",
            expected=f"one of {', '.join(RESULT_TYPES)} for a product of {x!r}",
            got=repr(element),
            hint="results of 8 bits are integers alone; convert the result afterwards",
        )
    if out is None:
        alignment = math.gcd(inner, 16 // element.bytes) or 1
        given["Y"] = TensorDescription(element, Layout.RowMajor, alignment)
    layouts = {item.layout for item in given.values()}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in given.values()))


def _result_told(x: DataType, result: DataType, called: Mapping[str, str], name: str) -> str:
    """What follows the type that Z or Y should have, in a message."""
    of_product = "" if result == x else f", the result's type for operands of {x!r}"
    if x != int8:
        return of_product
    if name == "Y":
        return f"{of_product}, or {int8!r}, to which it saturates"
    if result == int8:
        return f", the type of {called['Y']}"
    return f"{of_product}, or {int8!r} where {called['Y']} is of that"


def check_activation(activation: object) -> None:
    """Raises ArgumentError unless it is the name of an activation, or None.

    Check this first: activations become keys of caches, and a list there fails without a useful
    message.
    """
    known = (*activations.ACTIVATION_NAMES, activations.BOUNDED)
    named = isinstance(activation, str) and activation in known
    if activation is not None and not named:
        own = getattr(activation, "name", getattr(activation, "__name__", activation))
        by_name = f"pass its name, {own!r}" if own in activations.ACTIVATION_NAMES else ""
        raise ArgumentError(
            "activation",
            expected=f"None or one of {', '.join(activations.ACTIVATION_NAMES)}",
            got=repr(activation),
            hint=by_name or "apply other functions to the result",
        )


@functools.lru_cache(maxsize=512)
def epilogue_of(x: DataType, Y: TensorDescription, activation: str | None) -> Epilogue:
    accumulator = MathInstruction.simt(x).element_accumulator
    if activation is None:
        functor = LinearCombinationClamp if Y.element == int8 else LinearCombination
        return functor(Y.element, Y.alignment, accumulator, accumulator)
    if accumulator.kind != "float":
        raise DescriptionError(
            f"activation {activation}",
            expected="tensors of float64, float32, float16, bfloat16 or a float of 8 bits",
            got=repr(x),
            hint="apply it to the result",
        )
    function = getattr(activations, activation)(accumulator)
    return LinearCombinationGeneric(function, Y.element, Y.alignment, accumulator, accumulator)


def finish(arguments: Any, lesson: Lesson | None, slots: Mapping[str, int] = _NO_SLOTS) -> Any:
    """Runs the arguments of a call, and lets later calls repeat its launches.

    Args:
        slots: those of tensors that lie elsewhere than `arguments.slots` says.
    """
    arguments.operation.run(arguments)
    if lesson is not None:
        lesson.learn(arguments, {**arguments.slots, **slots})
    return arguments.Y


plain = functools.lru_cache(maxsize=64)(TensorDescription)
"""The description of an operand of a type, of which nothing else is known."""


@functools.lru_cache(maxsize=2048)
def operation_of(
    made: type[AnyOperation],
    target: str | Target,
    *fields: Any,
    tile: TileDescription | None = None,
    **named: Any,
) -> AnyOperation:
    """The operation of a class that has these fields; one-line calls share it."""
    ahead = len(made.kind.ahead)
    return made(*fields[:ahead], target, tile, *fields[ahead:], **named)
