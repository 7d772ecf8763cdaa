"""Matrix products on CPUs."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86.design import HostGemm
from kronop.machine import Feature
from kronop.target import Target


class X86Emitter(Searching):
    """Plans one step for x86 targets."""

    search = "kronop.families.gemm.x86.choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.has(Feature.tiles) and element in (bfloat16, int8)
        return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, size: GemmSize, threads: int) -> int:
        """Packed operands and sums of every thread, and the sums of slices."""
        return self._design(plan).workspace_bytes(size, threads) if size else 0

    def launches(self, plan: Plan, problem: GemmProblem) -> tuple[Launch, ...]:
        """One call, or none if there is nothing to compute."""
        is_empty = not (problem.m and problem.n and math.prod(problem.batch))
        return () if is_empty else (self._design(plan).launch(0, problem),)

    def _design(self, plan: Plan) -> HostGemm:
        design = plan.steps[0].design
        assert isinstance(design, HostGemm)
        return design
