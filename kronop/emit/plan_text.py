"""Plans to text and back, so that later processes need not plan again.

The text is JSON. Values that are not strings, numbers or lists become objects with one of the keys
below. The target and the operation's own epilogue are left out: the reader has both.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from typing import Any

from kronop.artifacts import Decision, Field, KernelSignature
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, tfloat32
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Design, Pipeline
from kronop.emit.plan import Plan, Step
from kronop.late import imported
from kronop.target import Target

# Keys of the objects that encode other values; their blanks keep them apart from field names.
_OWN, _TYPE, _CLASS, _MEMBER = "own epilogue", "element type", "a class", "a member"
_STEP = "the design of a step"
_OWN_PACKAGE = __name__.partition(".")[0]
_TRANSPOSED = "own visitor tree, transposed"
_ELEMENTS = {**TENSOR_TYPES, tfloat32.name: tfloat32}
_PLAIN = (str, bool, int, float, type(None))
# Declared type of a field -> the type that its value must have. Fields of other types are checked
# by their own classes.
_DECLARED = {"int": int, "bool": bool, "str": str}


def to_text(plan: Plan, epilogue: Epilogue) -> str:
    """The text of a plan for an operation with that epilogue."""

    def told(value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return {_MEMBER: value.name, **_class_name(type(value))}
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, tuple):
            return [told(item) for item in value]
        if isinstance(value, Design) and value in designs:
            return {_STEP: designs.index(value)}
        if isinstance(value, DataType):
            return {_TYPE: value.name}
        if isinstance(value, Epilogue) and value == epilogue:
            return {_OWN: True}
        if isinstance(value, VisitorEpilogue) and value == _transposed(epilogue):
            return {_TRANSPOSED: True}
        if isinstance(value, _KEPT) or type(value) is LinearCombination:
            return {**_class_name(type(value)), **_named(value)}
        raise TypeError(f"plans are made of decisions, not of {value!r}")

    def _named(value: Any) -> dict[str, Any]:
        return {
            item.name: told(getattr(value, item.name))
            for item in dataclasses.fields(value)
            if item.init
        }

    designs: list[Any] = []
    steps = [_named(step) for step in plan.steps]
    designs += [step.design for step in plan.steps]
    whole = [steps, plan.rejected, told(plan.pipeline)]
    return json.dumps(whole, separators=(",", ":"))


def from_text(text: str, target: Target, epilogue: Epilogue, package: str = _OWN_PACKAGE) -> Plan:
    """The plan of `text`, whose classes are kronop's, or of a family's own `package`.

    Raises:
        ValueError: it is not the text of a plan.
    """

    def value_of(told: Any) -> Any:
        if isinstance(told, list):
            return tuple(value_of(item) for item in told)
        if not isinstance(told, dict):
            return told
        if _STEP in told:
            return steps[told[_STEP]].design
        if _OWN in told:
            return epilogue
        if _TRANSPOSED in told:
            return _transposed(epilogue)
        if _TYPE in told:
            return _ELEMENTS[told[_TYPE]]
        kind = _class_of(told.pop(_CLASS), package)
        if _MEMBER in told:
            return kind[told[_MEMBER]]
        return made(kind, told)

    def made(kind: Any, told: dict[str, Any]) -> Any:
        return kind(**{name: _checked(kind, name, value_of(it)) for name, it in told.items()})

    steps: list[Step] = []
    try:
        described, rejected, pipeline = json.loads(text)
        steps += [made(Step, step) for step in described]
        return Plan(
            target=target,
            steps=tuple(steps),
            rejected=tuple((_is(str, name), _is(str, why)) for name, why in rejected),
            pipeline=None if pipeline is None else _is(Pipeline, value_of(pipeline)),
        )
    except (LookupError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"not the text of a plan: {error!r}") from error


def _transposed(epilogue: Epilogue) -> Epilogue | None:
    return epilogue.transposed if isinstance(epilogue, VisitorEpilogue) else None


_KEPT = (Decision, MathInstruction, KernelSignature, Field)
_CLASSES = (*_KEPT, LinearCombination, enum.Enum)


def _class_name(kind: type) -> dict[str, str]:
    return {_CLASS: f"{kind.__module__}:{kind.__qualname__}"}


@functools.cache
def _class_of(told: str, package: str) -> Any:
    """The class of that name, if it is one that plans consist of, in kronop or the package."""
    module, _, name = told.partition(":")
    if module.partition(".")[0] not in (_OWN_PACKAGE, package):
        raise TypeError(f"plans are not made of {told}")
    kind = getattr(imported(module), name)
    if not (isinstance(kind, type) and issubclass(kind, _CLASSES)):
        raise TypeError(f"plans are not made of {told}")
    return kind


@functools.cache
def _declared(kind: type) -> dict[str, type | None]:
    every = {item.name: _DECLARED.get(str(item.type)) for item in dataclasses.fields(kind)}
    return {**every, "design": Design} if kind is Step else every


def _checked(kind: type, name: str, value: Any) -> Any:
    declared = _declared(kind)[name]
    return value if declared is None else _is(declared, value)


def _is(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value
