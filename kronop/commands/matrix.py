"""The support matrix: element types of each kind of operation on each target."""

from __future__ import annotations

import argparse
from typing import Any

import kronop
from kronop import families
from kronop.core.family import Kind
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type

_TARGETS = ("sm_80", "sm_90a", "x86-amx", "x86-avx512", "x86-avx2", "x86-generic")


EXAMPLES = {"matrix": "a Markdown table of families, targets and element types"}


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def execute(options: argparse.Namespace) -> None:
    print(table())


def table() -> str:
    """The matrix as a Markdown table."""
    lines = ["| family | target | element types |", "| --- | --- | --- |"]
    for kind in (kind for family in families.FAMILIES for kind in family.kinds):
        for target in map(kronop.Target.parse, _TARGETS):
            types = [item.name for item in TENSOR_TYPES.values() if sample(kind, item, target)]
            if types:
                lines.append(f"| {kind.name} | {target} | {', '.join(types)} |")
    return "\n".join(lines)


def sample(kind: Kind, element: DataType, target: kronop.Target) -> Any:
    """The description of a small operation; None if the kind does not support the type there."""
    if target.backend not in kind.emitters:
        return None
    emitter = kind.emitter(target)
    try:
        description = _description(kind, element, emitter.instruction(element, target))
    except (kronop.DescriptionError, kronop.ElementTypeError):
        return None
    return description if emitter.supports(description, target) else None


def _description(kind: Kind, element: DataType, math: kronop.MathInstruction) -> object:
    """The description of a small operation of a kind.

    Raises:
        DescriptionError, ElementTypeError: the kind has no operation of this element type.
    """
    accumulator, output = math.element_accumulator, result_type(element)
    fields = {
        "Y": kronop.TensorDescription(output),
        "epilogue": kronop.LinearCombination(output, 1, accumulator, accumulator),
        **dict.fromkeys(kind.inputs, kronop.TensorDescription(element)),
        **kind.sample_fields,
    }
    return kind.description.get()(math=math, tile=None, **fields)
