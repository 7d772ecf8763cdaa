"""Kernels of pairs of points on GPUs."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.distance.cuda.design import DistanceTile
from kronop.families.distance.cuda.group_design import DistanceGroup
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.size import DistanceSize
from kronop.target import Target


class CudaEmitter(Searching):
    """Plans one step for GPUs, or two: points are packed before their products."""

    search = "kronop.families.distance.cuda.choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, size: DistanceSize, threads: int) -> int:
        """Those of packed points; tiles of differences have their sums in registers."""
        design = plan.steps[-1].design
        return design.workspace_bytes(size) if isinstance(design, DistanceGroup) else 0

    def launches(self, plan: Plan, problem: DistanceProblem) -> tuple[Launch, ...]:
        """The launches of all steps, or none if there is nothing to compute."""
        design = plan.steps[-1].design
        if not (problem.m and problem.n and math.prod(problem.batch)):
            return ()
        if isinstance(design, DistanceGroup):
            return design.launches(problem, plan.target)
        assert isinstance(design, DistanceTile)
        return (design.launch(0, problem),)
