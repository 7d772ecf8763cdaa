"""Groups of products: the plan of one product, launched for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.families.gemm.cuda.emitter import CudaEmitter
from kronop.families.gemm.cuda.group_design import GemmGroup
from kronop.families.gemm.cuda.group_many import GemmMany
from kronop.families.gemm.grouped_description import GemmGroupedDescription, GemmGroupedProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86.emitter import X86Emitter
from kronop.target import Target


class _Each:
    """Asks the emitter of single products, `product`."""

    product: Any

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        found: MathInstruction = self.product.instruction(element, target)
        return found

    def supports(self, description: GemmGroupedDescription, target: Target) -> Status:
        status: Status = self.product.supports(description.product, target)
        return status

    def plan(
        self, description: GemmGroupedDescription, target: Target, size: GemmSize | None = None
    ) -> Plan:
        return self.candidates(description, target, 1, size)[0]

    def candidates(
        self,
        description: GemmGroupedDescription,
        target: Target,
        count: int,
        size: GemmSize | None = None,
    ) -> tuple[Plan, ...]:
        found: tuple[Plan, ...] = self.product.candidates(description.product, target, count, size)
        return found

    def workspace_bytes(self, plan: Plan, size: GemmSize, threads: int) -> int:
        found: int = self.product.workspace_bytes(plan, size, threads)
        return found

    def launches(self, plan: Plan, problem: GemmGroupedProblem) -> tuple[Launch, ...]:
        """Those of each product that is not empty."""
        return tuple(
            launch for item in problem.problems for launch in self.product.launches(plan, item)
        )


class X86GroupedEmitter(_Each):
    """Plans groups on CPUs."""

    product = X86Emitter()


class CudaGroupedEmitter(_Each):
    """Plans groups on GPUs: one launch for many products where warp groups multiply these."""

    product = CudaEmitter()

    def candidates(
        self,
        description: GemmGroupedDescription,
        target: Target,
        count: int,
        size: GemmSize | None = None,
    ) -> tuple[Plan, ...]:
        found = super().candidates(description, target, count, size)
        return tuple(_together(plan) for plan in found)

    def workspace_bytes(self, plan: Plan, size: GemmSize, threads: int) -> int:
        if isinstance(plan.steps[0].design, GemmMany):
            return 0
        return super().workspace_bytes(plan, size, threads)

    def launches(self, plan: Plan, problem: GemmGroupedProblem) -> tuple[Launch, ...]:
        design = plan.steps[0].design
        if isinstance(design, GemmMany):
            return tuple(design.launches(0, plan.target, problem.problems))
        return super().launches(plan, problem)


def _together(plan: Plan) -> Plan:
    step = plan.steps[0]
    if len(plan.steps) > 1 or not isinstance(step.design, GemmGroup):
        return plan
    design = GemmMany(wrapped=step.design)
    entry = step.entry.replace("gemm_group", "gemm_many")
    steps = (replace(step, entry=entry, design=design, note=f"matrix products: {design}"),)
    return replace(plan, steps=steps)
