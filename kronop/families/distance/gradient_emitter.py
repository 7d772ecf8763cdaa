"""What emitters of gradients of distances share on both targets: plans of one step."""

from __future__ import annotations

import math
from abc import abstractmethod

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Choiceless
from kronop.emit.plan import Plan, Step
from kronop.families.distance import gradient_parts
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
)
from kronop.families.distance.gradient_parts import GradientDesign
from kronop.families.distance.gradient_size import GradientSize
from kronop.target import Target

# What a plan is for that is told no size.
USUAL = GradientSize(m=512, n=2048, k=2048, o=4)


class GradientEmitter(Choiceless):
    """Plans one step, of the design that a target has for a size."""

    __slots__ = ()

    @abstractmethod
    def design(
        self, what: DistanceGradientDescription, target: Target, size: GradientSize
    ) -> GradientDesign:
        """How the step runs."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def plan(
        self,
        description: DistanceGradientDescription,
        target: Target,
        size: GradientSize | None = None,
    ) -> Plan:
        design = self.design(description, target, size or USUAL)
        step = Step(
            entry=gradient_parts.kernel_name(description, design, target),
            design=design,
            bytes_per_row=description.Y.element.bytes,
            operations_per_row=3 + design.outputs,
            note="sums of derivatives of powers of differences",
        )
        return Plan(target=target, steps=(step,))

    def workspace_bytes(self, plan: Plan, size: GradientSize, threads: int) -> int:
        return 0

    def launches(self, plan: Plan, problem: GradientProblem) -> tuple[Launch, ...]:
        (step,) = plan.steps
        design = step.design
        assert isinstance(design, GradientDesign)
        extents = (problem.m, problem.n, problem.o, *problem.batch)
        return (design.launch(0, problem),) if math.prod(extents) else ()
