"""How the one step runs on either target."""

from __future__ import annotations

from dataclasses import dataclass

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Design, Instantiation, package_folder
from kronop.emit.x86 import planning
from kronop.target import Target
from tests.families.scaled.description import ScaledProblem

_POINTERS = ("x", "w", "z", "y")


@dataclass(frozen=True, kw_only=True)
class ScaledDesign(Design):
    """A loop over all elements on the host; on a GPU a thread for each.

    Attributes:
        source, output: types of the operands and of the result.
        threads: of a block; 0 on the host.
    """

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    threads: int

    @property
    def shared_bytes(self) -> int:
        return 0

    @property
    def signature(self) -> KernelSignature:
        integers = ("items", "threads")
        return KernelSignature(
            "ScaledParameters",
            (
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in integers),
                planning.scalar_fields(self.epilogue),
            ),
        )

    def status(self, target: Target) -> Status:
        return operands.accept_math(self.math)

    def instantiation(self, target: Target) -> Instantiation:
        scalars = planning.scalar_fields(self.epilogue)
        of_blocks: tuple[tuple[str, Constant], ...] = ()
        if self.threads:
            of_blocks = (("kThreads", self.threads), ("kBlocks", 1))
        return Instantiation(
            header="scaled.cuh" if self.threads else "scaled.hpp",
            template="kronop::scaled",
            parameters=f"kronop::ScaledParameters<{scalars.count}, {scalars.scalar.cxx}>",
            types=operands.element_types(self.math, self.source, self.output, self.epilogue),
            constants=of_blocks,
            folders=(package_folder("tests.families.scaled"),),
        )

    def launches(self, problem: ScaledProblem, target: Target) -> tuple[Launch, ...]:
        threads = planning.shares(problem.items, problem.items, problem.threads)
        values = {name: getattr(problem, name) for name in (*_POINTERS, "items", "scalars")}
        blocks = operands.cover(problem.items, self.threads or problem.items)
        return (operands.make_launch(self, blocks, values | {"threads": threads}),)
