"""Visitor trees as text, for graphs that are kept: of a compiled or an exported program.

The text is JSON without blanks,

    [[[name, kind], ...], [value, ...], [[name, value, reduction, axis], ...]]

with operands, values and results. A value is a number, the name of an input, or a list of an
operation and its operands. Equal trees have equal texts in every process.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from typing import Any

from kronop.descriptions.expression import OPERATIONS, Expression, apply, lift, variable
from kronop.descriptions.visitor import (
    ACCUMULATOR,
    AXES,
    KINDS,
    REDUCTIONS,
    Operand,
    Result,
    VisitorTree,
)
from kronop.errors import DescriptionError, mismatch

# Deeper values than any tree of a function has: who walks over them recurses.
_MOST_DEPTH = 100


def to_text(tree: VisitorTree) -> str:
    operands = [[item.name, item.kind] for item in tree.operands]
    values = [_told(item) for item in tree.values]
    results = [[it.name, _told(it.value), it.reduction, it.axis] for it in tree.results]
    return json.dumps([operands, values, results], separators=(",", ":"))


def _told(value: Expression) -> Any:
    if value.operation == "constant":
        return float(value.operands[0])
    if value.operation == "input":
        return value.operands[0]
    return [value.operation, *map(_told, value.operands)]


@functools.lru_cache(maxsize=256)
def from_text(text: str) -> VisitorTree:
    """The tree that `to_text` told.

    Raises:
        DescriptionError: it is not the text of a tree.
    """
    try:
        operands, values, results = json.loads(text)
        names = [ACCUMULATOR]
        parameters = tuple(_operand(item) for item in operands)
        names += [item.name for item in parameters]
        read = []
        for place, value in enumerate(values):
            read.append(_value(value, names, 0))
            names.append(f"v{place}")
        found = tuple(_result(item, names) for item in results)
        if not found:
            raise ValueError("no results")
    except (ValueError, TypeError, RecursionError) as error:
        raise DescriptionError(
            mismatch(
                "the text of a visitor tree",
                expected="operands, values and results, as kronop writes them",
                got=f"{text[:100]!r} ({error})",
                hint="trace or export the program again, with this version of kronop",
            )
        ) from error
    return VisitorTree(operands=parameters, values=tuple(read), results=found)


def _operand(told: Any) -> Operand:
    name, kind = told
    return Operand(_one_of(name, None), _one_of(kind, KINDS))


def _result(told: Any, names: Sequence[str]) -> Result:
    name, value, reduction, axis = told
    if reduction or axis:
        _one_of(reduction, [*REDUCTIONS])
        _one_of(axis, AXES)
    return Result(_one_of(name, None), _value(value, names, 0), reduction, axis)


def _value(told: Any, names: Sequence[str], depth: int) -> Expression:
    if depth > _MOST_DEPTH:
        raise ValueError("a value that is too deep")
    if isinstance(told, str):
        return variable(_one_of(told, names))
    if isinstance(told, float) and math.isfinite(told):
        return lift(told)
    if not isinstance(told, list) or not told:
        raise ValueError(f"{told!r} is no value")
    operation, *operands = told
    _, spelling, _ = OPERATIONS[_one_of(operation, [*OPERATIONS])]
    if len(operands) != spelling.count("{}"):
        raise ValueError(f"{len(operands)} operands of {operation}")
    return apply(operation, *(_value(item, names, depth + 1) for item in operands))


def _one_of(told: Any, known: Sequence[str] | None) -> str:
    """The text, which is one of those that are known; any if None."""
    if not isinstance(told, str) or (known is not None and told not in known):
        raise ValueError(f"{told!r} is none of {', '.join(known or ('any name',))}")
    return told
