"""The Kronecker matmul family on CPUs: one kernel for all factors, on vectors or on AMX tiles."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, bfloat16
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.kron.description import KronProblem
from kronop.families.kron.x86.kron_design import KronDesign
from kronop.machine import Feature
from kronop.target import Target


class X86KronEmitter(Searching):
    """Plans Kronecker matmuls for x86 targets; see kron.hpp and kron_amx.hpp for what a plan means.

    With the tile instruction, shapes for which tiles are no faster still run on vectors; the
    results between two factors are then not rounded to bf16.
    """

    search = "kronop.families.kron.x86.kron_choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.has(Feature.tiles) and element is bfloat16
        return MathInstruction.amx() if on_tiles else MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread; `rows` is M times the batch."""
        return _design(plan).workspace_bytes(rows, threads)

    def launches(self, plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
        """One call, or none if M or a batch dimension is 0."""
        if problem.rows * math.prod(problem.batch) == 0:
            return ()
        return (_design(plan).launch(0, problem),)


def _design(plan: Plan) -> KronDesign:
    design = plan.steps[0].design
    assert isinstance(design, KronDesign)
    return design
