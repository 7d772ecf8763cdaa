"""How the one step runs on either target."""

from __future__ import annotations

from dataclasses import dataclass

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.emit.x86 import planning
from kronop.target import Target
from tests.families.scaled.description import ScaledProblem

_POINTERS, _INTEGERS = ("x", "w", "z", "y"), ("items", "threads")


@dataclass(frozen=True, kw_only=True)
class ScaledDesign(Design):
    """A loop over all elements on the host; on a GPU a thread for each.

    Attributes:
        threads: of a block; 0 on the host.
    """

    math: MathInstruction
    epilogue: Epilogue
    threads: int

    shared_bytes = 0

    @property
    def signature(self) -> KernelSignature:
        fields = [Field(name, Scalar.POINTER) for name in _POINTERS]
        fields += [Field(name, Scalar.INT64) for name in _INTEGERS]
        scalars = planning.scalar_fields(self.epilogue)
        return KernelSignature("ScaledParameters", (*fields, scalars))

    def status(self, target: Target) -> Status:
        return operands.accept_math(self.math)

    def instantiation(self, target: Target) -> Instantiation:
        scalars = planning.scalar_fields(self.epilogue)
        types = (self.math, self.math.element_a, self.epilogue.element_output, self.epilogue)
        return Instantiation(
            header="scaled.cuh" if self.threads else "scaled.hpp",
            template="kronop::scaled",
            parameters=f"kronop::ScaledParameters<{scalars.count}, {scalars.scalar.cxx}>",
            types=operands.element_types(*types),
            constants=(("kThreads", self.threads), ("kBlocks", 1)) if self.threads else (),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: ScaledProblem, target: Target) -> tuple[Launch, ...]:
        threads = planning.shares(problem.items, problem.items, problem.threads)
        values = {name: getattr(problem, name) for name in (*_POINTERS, "items", "scalars")}
        blocks = operands.cover(problem.items, self.threads or problem.items)
        return (operands.make_launch(self, blocks, values | {"threads": threads}),)
