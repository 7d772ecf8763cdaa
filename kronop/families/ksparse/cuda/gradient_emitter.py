"""Gradients of weights on CUDA: blocks sum up shares of the rows, and a second step adds these."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.ksparse.cuda.gradient_ends import end_launches
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.gradient_description import (
    KSparseGradientProblem,
)
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True)
class CudaKSparseGradientEmitter(Searching):
    """Plans gradients of weights for GPUs."""

    search = "kronop.families.ksparse.cuda.gradient_choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        if element.kind == "int":
            return MathInstruction.simt(element)
        return MathInstruction.tensor_op(element)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Room for the sums of all shares, and for operands whose lanes are separated."""
        return _sums(plan).workspace_bytes(rows, plan.target)

    def launches(self, plan: Plan, problem: KSparseGradientProblem) -> tuple[Launch, ...]:
        """The sums (none for an empty batch), and the launches that add their shares up."""
        design = _sums(plan)
        sums, shares = design.launches(problem, plan.target)
        added, *others = end_launches(plan.steps, problem, shares)
        return *sums, replace(added, overlaps=design.lets_next_begin and bool(sums)), *others


def _sums(plan: Plan) -> GradientSums:
    """The design of the step that sums up."""
    return next(step.design for step in plan.steps if isinstance(step.design, GradientSums))
