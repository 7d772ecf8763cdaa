"""The Kronecker matmul family on CPUs: one kernel for all factors, on vectors or on AMX tiles."""

from __future__ import annotations

import math

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, bfloat16
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.families.kron.description import KronMatmulDescription, KronProblem
from kronop.families.kron.x86.kron_design import KronDesign
from kronop.target import Target


class X86KronEmitter:
    """Plans Kronecker matmuls for x86 targets; see kron.hpp and kron_amx.hpp for what a plan means.

    With the tile instruction, shapes that tiles do not make faster still go through vectors: what
    is between two factors is then not rounded.
    """

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.arch == "amx" and element is bfloat16
        return MathInstruction.amx() if on_tiles else MathInstruction.simt(element)

    def supports(self, description: KronMatmulDescription, target: Target) -> Status:
        """Whether a plan exists, and which size of the tile stands in the way where not."""
        from kronop.families.kron.x86 import kron_choice  # Plans that are remembered do without.

        return kron_choice.supports(description, target)

    def plan(
        self, description: KronMatmulDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The cheapest legal candidate.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KronMatmulDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest legal candidates, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        from kronop.families.kron.x86 import kron_choice

        return kron_choice.candidates(description, target, count, rows)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread; `rows` is M times the batch."""
        return _design(plan).workspace_bytes(rows, threads)

    def launches(self, plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
        """One call, or none where a size is 0."""
        if problem.rows * math.prod(problem.batch) == 0:
            return ()
        return (_design(plan).launch(0, problem),)


def _design(plan: Plan) -> KronDesign:
    design = plan.steps[0].design
    assert isinstance(design, KronDesign)
    return design
