"""The Kronecker-sparse family on CPUs."""

from __future__ import annotations

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.families.ksparse.x86.ksparse_design import KSparseDesign
from kronop.target import Target


class X86KSparseEmitter:
    """Plans Kronecker-sparse products for x86 targets; see ksparse.hpp for what a plan means.

    With the tile instruction, patterns that tiles do not make faster still go through vectors.
    """

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.arch == "amx" and element in (bfloat16, int8)
        return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)

    def supports(self, description: KSparseDescription, target: Target) -> Status:
        """Whether a plan exists, and which size of the tile stands in the way where not."""
        from kronop.families.ksparse.x86 import (
            ksparse_choice,  # Plans that are remembered do without.
        )

        return ksparse_choice.supports(description, target)

    def plan(
        self, description: KSparseDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The cheapest legal candidate.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        return self.candidates(description, target, 1)[0]

    def candidates(
        self,
        description: KSparseDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest legal candidates, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        from kronop.families.ksparse.x86 import ksparse_choice

        return ksparse_choice.candidates(description, target, count)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread that has work; `rows` is the batch."""
        return _design(plan).workspace_bytes(rows, threads)

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """One call, or none where the batch is 0."""
        return (_design(plan).launch(0, problem),) if problem.rows else ()


def _design(plan: Plan) -> KSparseDesign:
    design = plan.steps[0].design
    assert isinstance(design, KSparseDesign)
    return design
