"""A plan as text, and back: how one process hands its plans to the next.

The text is JSON of strings, numbers and lists. The target and the operation's own epilogue are not
in it, for whoever asks for a plan has both.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.emit.plan import Plan, Step
from kronop.target import Target

_OWN = "own"
_KINDS = {"str": str, "int": int}
# name -> type of what JSON has as well; lists stand for tuples.
_PLAIN: dict[str, type] = {
    item.name: _KINDS.get(str(item.type), tuple)
    for item in dataclasses.fields(Step)
    if item.name not in ("signature", "epilogue")
}


def to_text(plan: Plan, epilogue: Epilogue) -> str:
    """The text of a plan for an operation with that epilogue."""
    steps = [
        [
            [getattr(step, name) for name in _PLAIN],
            _of_signature(step.signature),
            _of_epilogue(step.epilogue, epilogue),
        ]
        for step in plan.steps
    ]
    return json.dumps([steps, plan.rejected], separators=(",", ":"))


def from_text(text: str, target: Target, epilogue: Epilogue) -> Plan:
    """The plan of `text`.

    Raises:
        ValueError: it is not the text of a plan.
    """
    try:
        steps, rejected = json.loads(text)
        return Plan(
            target=target,
            steps=tuple(
                _step(plain, signature, used, epilogue) for plain, signature, used in steps
            ),
            rejected=tuple((_is(str, name), _is(str, why)) for name, why in rejected),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the text of a plan: {error!r}") from error


def _step(plain: list[Any], signature: Any, used: Any, epilogue: Epilogue) -> Step:
    named = zip(_PLAIN.items(), plain, strict=True)
    return Step(
        **{name: _is(kind, _frozen(value)) for (name, kind), value in named},
        signature=_signature(*signature),
        epilogue=_epilogue(used, epilogue),
    )


def _is(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _of_signature(signature: KernelSignature) -> list[Any]:
    fields = [[item.name, item.scalar.name, item.count] for item in signature.fields]
    return [signature.struct_name, fields]


def _signature(struct_name: str, fields: list[Any]) -> KernelSignature:
    return KernelSignature(
        _is(str, struct_name),
        tuple(Field(_is(str, name), Scalar[scalar], count) for name, scalar, count in fields),
    )


def _of_epilogue(used: Epilogue | None, own: Epilogue) -> Any:
    """The operation's own, or the plain one that stands between two factors of a chain."""
    if used is None or used == own:
        return None if used is None else _OWN
    if type(used) is not LinearCombination:
        raise TypeError(f"steps have the operation's epilogue or a plain one, not {used!r}")
    types = (used.element_output, used.element_accumulator, used.element_epilogue)
    return [used.epilogue_vector_length, *(element.name for element in types)]


def _epilogue(told: Any, own: Epilogue) -> Epilogue | None:
    if told is None or told == _OWN:
        return None if told is None else own
    length, *names = told
    output, accumulator, compute = (TENSOR_TYPES[name] for name in names)
    return LinearCombination(output, length, accumulator, compute)
