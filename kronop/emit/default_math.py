"""The multiply-add of both targets where none is given; other rules are each target's own."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.target import Target


def ordinary(element: DataType, target: Target) -> MathInstruction:
    """The ordinary cores, or vectors of a CPU."""
    return MathInstruction.simt(element)
