"""The default multiply-add that both targets share; other defaults are each target's own."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.target import Target


def ordinary(element: DataType, target: Target) -> MathInstruction:
    """The ordinary cores of a GPU, or the vector units of a CPU."""
    return MathInstruction.simt(element)
