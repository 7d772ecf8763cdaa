"""One step on either target; it has no choices."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan, Step
from kronop.target import Target
from tests.families.scaled.description import ScaledDescription, ScaledProblem
from tests.families.scaled.design import ScaledDesign


class _Emitter:
    threads: ClassVar[int] = 0

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def _design(self, what: ScaledDescription) -> ScaledDesign:
        return ScaledDesign(
            math=what.math,
            source=what.X.element,
            output=what.Y.element,
            epilogue=what.epilogue,
            threads=self.threads,
        )

    def supports(self, description: ScaledDescription, target: Target) -> Status:
        return self._design(description).status(target)

    def plan(self, description: ScaledDescription, target: Target, rows: int | None = None) -> Plan:
        what = description
        name = f"scaled_{what.X.element.short}_{what.epilogue.name}_{target.arch}"
        step = Step(
            entry=name.replace("-", "_"),
            design=self._design(what),
            bytes_per_row=what.columns * (2 * what.X.element.bytes + what.Y.element.bytes),
            operations_per_row=what.columns,
            note="X times W",
        )
        return Plan(target=target, steps=(step,))

    def candidates(
        self, description: ScaledDescription, target: Target, count: int, rows: int | None = None
    ) -> tuple[Plan, ...]:
        return (self.plan(description, target, rows),)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        return 0

    def launches(self, plan: Plan, problem: ScaledProblem) -> tuple[Launch, ...]:
        (step,) = plan.steps
        design = step.design
        assert isinstance(design, ScaledDesign)
        return (design.launch(0, problem),) if problem.items else ()


class CudaEmitter(_Emitter):
    threads = 256


class X86Emitter(_Emitter):
    pass
