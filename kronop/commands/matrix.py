"""The support matrix: element types of each kind of operation on each target."""

from __future__ import annotations

import argparse
from typing import Any

import kronop
from kronop import families
from kronop.core.family import Kind
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.target import BASELINE, every_target

_GPUS = tuple(item.name for item in every_target() if item.backend == "cuda")
_X86 = tuple(item.name for item in every_target() if item.baseline == BASELINE)


EXAMPLES = {"matrix": "a Markdown table of families, targets and element types"}


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def execute(options: argparse.Namespace) -> None:
    print(table())


def table() -> str:
    """The matrix as a Markdown table; targets with the same types share a line."""
    lines = ["| family | targets | element types |", "| --- | --- | --- |"]
    for kind in (kind for family in families.FAMILIES for kind in family.kinds):
        targets: dict[str, list[str]] = {}
        known: dict[object, str] = {}
        for target in every_target():
            name = target.name
            # What a GPU can do follows from these.
            able = (target.gpu.features, target.shared_bytes) if target.gpu else name
            if able not in known:
                known[able] = ", ".join(
                    item.name for item in TENSOR_TYPES.values() if sample(kind, item, target)
                )
            if known[able]:
                targets.setdefault(known[able], []).append(name)
        lines += [
            f"| {kind.name} | {_joined(names)} | {types} |" for types, names in targets.items()
        ]
    return "\n".join(lines)


def _joined(targets: list[str]) -> str:
    """Their names, those of neighbouring GPUs as a range; that of all x86 CPUs is x86."""
    gpus = [index for index, name in enumerate(_GPUS) if name in targets]
    starts = [at for at in gpus if at - 1 not in gpus]
    ends = [at for at in gpus if at + 1 not in gpus]
    ranges = [
        _GPUS[start] if start == end else f"{_GPUS[start]} to {_GPUS[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]
    others = [name for name in targets if name not in _GPUS]
    if set(_X86) <= set(others):
        others = ["x86", *(name for name in others if name not in _X86)]
    return ", ".join([*ranges, *others])


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
        "Y": kind.tensor(output),
        "epilogue": kronop.LinearCombination(output, 1, accumulator, accumulator),
        **dict.fromkeys(kind.inputs, kind.tensor(element)),
        **kind.sample_fields,
    }
    return kind.description.get()(math=math, tile=None, **fields)
