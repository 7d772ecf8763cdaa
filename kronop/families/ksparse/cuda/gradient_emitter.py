"""Gradients of weights on CUDA: blocks share a long sum, and a second step adds their shares."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.families.ksparse.cuda.gradient_ends import end_launches, end_steps
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.frozen import dataclass
from kronop.target import Target

_MOST_REJECTED = 8


@dataclass(frozen=True, slots=True)
class CudaKSparseGradientEmitter:
    """Plans gradients of weights for sm_80 and sm_90a."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        if element.kind == "int":
            return MathInstruction.simt(element)
        return MathInstruction.tensor_op(element)

    def supports(self, description: KSparseGradientDescription, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        return _candidates(description, target, None)[0]

    def plan(
        self, description: KSparseGradientDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The sums with the cheapest tile that fits, and what is made of them.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KSparseGradientDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest tiles that fit, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` says no.
        """
        status, accepted, rejected = _candidates(description, target, rows)
        if not status:
            raise DescriptionError(status.reason)
        slower = [
            (str(design), f"{cost:.0f} cycles, the best {accepted[0][0]:.0f}")
            for cost, design in accepted[1 : 1 + _MOST_REJECTED]
        ]
        ends = end_steps(description, target)
        return tuple(
            Plan(
                target=target,
                steps=(*design.steps(target), *ends),
                rejected=() if place else (*slower, *rejected[:_MOST_REJECTED]),
            )
            for place, (_, design) in enumerate(accepted[:count])
        )

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """What the shares leave, and operands that are prepared."""
        return _sums(plan).workspace_bytes(rows, plan.target)

    def launches(self, plan: Plan, problem: KSparseGradientProblem) -> tuple[Launch, ...]:
        """The sums, where there is anything to sum up, and what is made of their shares."""
        design = _sums(plan)
        sums, shares = design.launches(problem, plan.target)
        added, *others = end_launches(plan.steps, problem, shares)
        return *sums, replace(added, overlaps=design.lets_next_begin and bool(sums)), *others


def _candidates(
    description: KSparseGradientDescription, target: Target, rows: int | None
) -> tuple[Status, list[tuple[float, GradientSums]], list[tuple[str, str]]]:
    """Whether anything fits, which does not depend on rows; what fits, and what does not."""
    status = _accept_math(description.math)
    if not status:
        return status, [], []
    # Plans that are remembered do without.
    from kronop.families.ksparse.cuda import gradient_choice

    accepted, rejected = gradient_choice.candidates(description, target, rows)
    if not accepted:
        status = Status.reject(rejected[0][1])
    return status, accepted, rejected


def _accept_math(instruction: MathInstruction) -> Status:
    """Tensor cores: as they are, or three products of TF32 for one of float32."""
    exact = instruction.math_operation is MathOperation.multiply_add
    three = instruction.math_operation is MathOperation.multiply_add_fast_f32
    if (
        instruction.opcode_class is OpClass.TensorOp
        and instruction.instruction_shape in ((16, 8, 8), (8, 8, 4))
        and (exact or (three and instruction.element_a is float32))
    ):
        return Status.accept()
    return Status.reject(f"no kernel for {instruction}; use MathInstruction.tensor_op")


def _sums(plan: Plan) -> GradientSums:
    """The way that sums are made."""
    return next(step.design for step in plan.steps if isinstance(step.design, GradientSums))
