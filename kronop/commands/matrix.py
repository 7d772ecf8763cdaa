"""The support matrix: element types of each family on each target, from the table of emitters."""

from __future__ import annotations

import argparse

import kronop
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.emit.table import EMITTERS

_TARGETS = ("sm_80", "sm_90a", "x86-amx", "x86-avx512", "x86-avx2", "x86-generic")
_FAMILIES = {
    kronop.KronMatmulDescription: "Kronecker",
    kronop.KSparseDescription: "Kronecker-sparse",
    kronop.KSparseChainDescription: "chain of Kronecker-sparse",
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
        description = _description(family, element, emitter.instruction(element, target))
    except (kronop.DescriptionError, kronop.ElementTypeError):
        return False
    return bool(emitter.supports(description, target))


def _description(family: type, element: DataType, math: kronop.MathInstruction) -> object:
    """A small operation of a family.

    Raises:
        ElementTypeError: the family has none of this type.
    """
    tensor = kronop.TensorDescription(element)
    accumulator = math.element_accumulator
    result = kronop.TensorDescription(result_type(element))
    epilogue = kronop.LinearCombination(result.element, 1, accumulator, accumulator)
    if family is kronop.KronMatmulDescription:
        return kronop.KronMatmulDescription(
            math=math,
            tile=None,
            X=tensor,
            F=tensor,
            Y=result,
            epilogue=epilogue,
            factors=((8, 8), (8, 8)),
        )
    if family is kronop.KSparseChainDescription:
        return kronop.KSparseChainDescription(
            math=math,
            tile=None,
            X=tensor,
            W=tensor,
            Y=result,
            epilogue=epilogue,
            patterns=((2, 8, 8, 2), (2, 8, 8, 2)),
        )
    if family is kronop.KSparseGradientDescription:
        return kronop.KSparseGradientDescription(
            math=math,
            tile=None,
            X=tensor,
            G=tensor,
            Y=result,
            epilogue=epilogue,
            pattern=(2, 8, 8, 2),
        )
    return kronop.KSparseDescription(
        math=math,
        tile=None,
        X=tensor,
        W=tensor,
        Y=result,
        epilogue=epilogue,
        pattern=(2, 8, 8, 2),
    )
