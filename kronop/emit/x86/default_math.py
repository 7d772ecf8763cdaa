"""The multiply-add on a CPU where none is given: rules that emitters name as their `default`."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.machine import Feature
from kronop.target import Target


def tiles(element: DataType, target: Target) -> MathInstruction:
    """AMX tiles for bfloat16 and int8, where the CPU has them."""
    on_tiles = target.has(Feature.tiles) and element in (bfloat16, int8)
    return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)


def tiles_for_floats(element: DataType, target: Target) -> MathInstruction:
    """AMX tiles for bfloat16, where the CPU has them."""
    on_tiles = target.has(Feature.tiles) and element is bfloat16
    return MathInstruction.amx() if on_tiles else MathInstruction.simt(element)
