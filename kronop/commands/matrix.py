"""The support matrix: element types of each family on each target, from the table of emitters."""

from __future__ import annotations

import argparse

import kronop
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.emit.table import EMITTERS

_TARGETS = ("sm_80", "sm_90a", "x86-avx512", "x86-avx2", "x86-generic")
_FAMILIES = {
    kronop.KronMatmulDescription: "Kronecker",
    kronop.KSparseDescription: "Kronecker-sparse",
    kronop.KSparseGradientDescription: "gradient of weights",
}


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def execute(options: argparse.Namespace) -> None:
    print(table())


def table() -> str:
    """The matrix as a Markdown table."""
    lines = ["| family | target | element types |", "| --- | --- | --- |"]
    for family, name in _FAMILIES.items():
        for target in map(kronop.Target.parse, _TARGETS):
            types = [
                item.name for item in TENSOR_TYPES.values() if _supported(family, item, target)
            ]
            if types:
                lines.append(f"| {name} | {target} | {', '.join(types)} |")
    return "\n".join(lines)


def _supported(family: type, element: DataType, target: kronop.Target) -> bool:
    emitter = EMITTERS.get((family, target.backend))
    if emitter is None:
        return False
    try:
        math = emitter.instruction(element)
    except kronop.DescriptionError:
        return False
    tensor = kronop.TensorDescription(element)
    accumulator = math.element_accumulator
    result = kronop.TensorDescription(result_type(element))
    epilogue = kronop.LinearCombination(result.element, 1, accumulator, accumulator)
    description: object
    if family is kronop.KronMatmulDescription:
        description = kronop.KronMatmulDescription(
            math=math,
            tile=None,
            X=tensor,
            F=tensor,
            Y=result,
            epilogue=epilogue,
            factors=((8, 8), (8, 8)),
        )
    elif family is kronop.KSparseGradientDescription:
        description = kronop.KSparseGradientDescription(
            math=math,
            tile=None,
            X=tensor,
            G=tensor,
            Y=result,
            epilogue=epilogue,
            pattern=(2, 8, 8, 2),
        )
    else:
        description = kronop.KSparseDescription(
            math=math,
            tile=None,
            X=tensor,
            W=tensor,
            Y=result,
            epilogue=epilogue,
            pattern=(2, 8, 8, 2),
        )
    return bool(emitter.supports(description, target))
