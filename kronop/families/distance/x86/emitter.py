"""Kernels of pairs of points on CPUs."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.x86.design import DistanceTiles
from kronop.target import Target


class X86Emitter(Searching):
    """Plans one step for x86 targets."""

    search = "kronop.families.distance.x86.choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, size: DistanceSize, threads: int) -> int:
        """None: scratch is on the stacks of the threads."""
        return 0

    def launches(self, plan: Plan, problem: DistanceProblem) -> tuple[Launch, ...]:
        """One call, or none if there is nothing to compute."""
        design = plan.steps[0].design
        assert isinstance(design, DistanceTiles)
        is_empty = not (problem.m and problem.n and math.prod(problem.batch))
        return () if is_empty else (design.launch(0, problem),)
