"""The Kronecker-sparse family on CPUs."""

from __future__ import annotations

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.ksparse.description import KSparseProblem
from kronop.families.ksparse.x86.ksparse_design import KSparseDesign
from kronop.machine import Feature
from kronop.target import Target


class X86KSparseEmitter(Searching):
    """Plans Kronecker-sparse products for x86 targets; see ksparse.hpp for what a plan means.

    With the tile instruction, patterns for which tiles are no faster still run on vectors.
    """

    search = "kronop.families.ksparse.x86.ksparse_choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.has(Feature.tiles) and element in (bfloat16, int8)
        return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread that has work; `rows` is the batch."""
        return _design(plan).workspace_bytes(rows, threads)

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """One call, or none if the batch is 0."""
        return (_design(plan).launch(0, problem),) if problem.rows else ()


def _design(plan: Plan) -> KSparseDesign:
    design = plan.steps[0].design
    assert isinstance(design, KSparseDesign)
    return design
