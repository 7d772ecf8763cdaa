"""Plans gradients of distances on the host."""

from __future__ import annotations

import math

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan, Step
from kronop.families.distance import gradient_parts
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
)
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.x86.gradient_design import GradientTiles
from kronop.target import Target

# What a plan is for that is told no size.
_USUAL = GradientSize(m=512, n=2048, k=2048, o=4)
_MOST_ROWS = 4


# NOTE: measured on Zen 3, with 16 registers and four outputs: tiles of one vector took three
# quarters of the time of those of two.
def _tile(outputs: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of a tile, which has as many sums as there are registers, or less."""
    vectors = 2 if 2 * _MOST_ROWS * outputs <= registers else 1
    return max(1, min(_MOST_ROWS, registers // (vectors * outputs))), vectors


class X86GradientEmitter:
    """One step."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def _design(
        self, what: DistanceGradientDescription, target: Target, size: GradientSize
    ) -> GradientTiles:
        outputs = size.outputs
        rows, vectors = _tile(outputs, target.registers)
        return GradientTiles(
            math=what.math,
            source=what.A.element,
            output=what.Y.element,
            epilogue=what.epilogue,
            power=what.power,
            outputs=outputs,
            vector_bytes=target.vector_bytes,
            rows=rows,
            vectors=vectors,
        )

    def supports(self, description: DistanceGradientDescription, target: Target) -> Status:
        return self._design(description, target, _USUAL).status(target)

    def plan(
        self,
        description: DistanceGradientDescription,
        target: Target,
        size: GradientSize | None = None,
    ) -> Plan:
        size = size or _USUAL
        design = self._design(description, target, size)
        step = Step(
            entry=gradient_parts.kernel_name(description, design.outputs, target),
            design=design,
            bytes_per_row=description.Y.element.bytes,
            operations_per_row=3 + design.outputs,
            note="sums of derivatives of powers of differences",
        )
        return Plan(target=target, steps=(step,))

    def candidates(
        self,
        description: DistanceGradientDescription,
        target: Target,
        count: int,
        size: GradientSize | None = None,
    ) -> tuple[Plan, ...]:
        return (self.plan(description, target, size),)

    def workspace_bytes(self, plan: Plan, size: GradientSize, threads: int) -> int:
        return 0

    def launches(self, plan: Plan, problem: GradientProblem) -> tuple[Launch, ...]:
        (step,) = plan.steps
        design = step.design
        assert isinstance(design, GradientTiles)
        extents = (problem.m, problem.n, problem.o, *problem.batch)
        return (design.launch(0, problem),) if math.prod(extents) else ()
