"""What emitters of gradients of distances share on both targets: plans of one step."""

from __future__ import annotations

import math
from abc import abstractmethod

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.emitter import Choiceless
from kronop.emit.plan import Plan, Step
from kronop.families.distance import gradient_parts
from kronop.families.distance.floors import LeastOfGradient
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
)
from kronop.families.distance.gradient_parts import GradientDesign
from kronop.families.distance.gradient_size import USUAL, GradientSize
from kronop.target import Target


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
            least=LeastOfGradient(
                power=description.power,
                element=description.A.element.bytes,
                sums=description.math.element_accumulator.name,
                expanded=design.expanded,
                multiplied=float32.bytes if design.expanded else 0,
                products=PRODUCTS_OF_SPLIT,
            ),
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
