"""One step on either target; it has no choices."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import planning
from kronop.target import Target
from tests.families.scaled.description import ScaledDescription, ScaledProblem

_THREADS = 256
_POINTERS = ("x", "w", "z", "y")


class _Emitter:
    header: str
    threads = 0
    constants: tuple[tuple[str, Constant], ...] = ()

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def supports(self, description: ScaledDescription, target: Target) -> Status:
        return operands.accept_math(description.math)

    def plan(self, description: ScaledDescription, target: Target, rows: int | None = None) -> Plan:
        what, scalars = description, planning.scalar_fields(description.epilogue)
        step = Step(
            entry=f"scaled_{what.X.element.short}_{what.epilogue.name}_{target.arch}".replace(
                "-", "_"
            ),
            bytes_per_row=what.columns * (2 * what.X.element.bytes + what.Y.element.bytes),
            operations_per_row=what.columns,
            note="X times W",
            design=Flat(
                header=self.header,
                package="tests.families.scaled",
                template="kronop::scaled",
                parameters=f"kronop::ScaledParameters<{scalars.count}, {scalars.scalar.cxx}>",
                types=operands.element_types(
                    what.math, what.X.element, what.Y.element, what.epilogue
                ),
                constants=(*self.constants, ("kSaturate", operands.saturates(what.epilogue))),
                signature=KernelSignature(
                    "ScaledParameters",
                    (
                        *(Field(name, Scalar.POINTER) for name in _POINTERS),
                        Field("items", Scalar.INT64),
                        Field("threads", Scalar.INT64),
                        scalars,
                    ),
                ),
                epilogue=what.epilogue,
                threads=self.threads,
                shared_bytes=0,
            ),
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
        values = {name: getattr(problem, name) for name in (*_POINTERS, "items", "scalars")}
        threads = planning.shares(problem.items, problem.items, problem.threads)
        return (
            Launch(
                step=0,
                parameters=step.signature.pack(values | {"threads": threads}),
                grid=(operands.cover(problem.items, _THREADS), 1, 1),
                block=(step.threads, 1, 1),
                shared_bytes=0,
            ),
        )


class CudaEmitter(_Emitter):
    header, threads = "scaled.cuh", _THREADS
    constants = (("kThreads", _THREADS), ("kBlocks", 1))


class X86Emitter(_Emitter):
    header = "scaled.hpp"
