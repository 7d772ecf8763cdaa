"""The Kronecker-sparse family on CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.plan import Plan, Step
from kronop.emit.x86.planning import reaches, shares
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.target import Target

_NO_MATRIX = StridedMatrix(pointer=0, row=0, column=0)


class X86KSparseEmitter:
    """Plans Kronecker-sparse products for x86 targets; see ksparse.hpp for what a plan means.

    With the tile instruction, patterns that tiles do not make faster still go through vectors.
    """

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.arch == "amx" and element in (bfloat16, int8)
        return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)

    def supports(self, description: KSparseDescription, target: Target) -> Status:
        """Whether a plan exists, and which size of the tile stands in the way where not."""
        from kronop.families.ksparse.x86 import (
            ksparse_choice,  # Plans that are remembered do without.
        )

        return ksparse_choice.supports(description, target)

    def plan(
        self, description: KSparseDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The cheapest legal candidate.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        return self.candidates(description, target, 1)[0]

    def candidates(
        self,
        description: KSparseDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest legal candidates, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        from kronop.families.ksparse.x86 import ksparse_choice

        return ksparse_choice.candidates(description, target, count)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread that has work; `rows` is the batch."""
        step = plan.steps[0]
        return step.shared_bytes * _threads(step, rows, threads) if rows else 0

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """One call, or none where the batch is 0."""
        if problem.rows == 0:
            return ()
        step = plan.steps[0]
        return (Launch(step=0, parameters=step.signature.pack(_values(step, problem))),)


def _values(
    step: Step, problem: KSparseProblem
) -> dict[str, int | Sequence[int] | Sequence[float]]:
    """Values of every field of the signature."""
    z = problem.z or _NO_MATRIX
    row_tile, threads = _split(step, problem)
    values: dict[str, int | Sequence[int] | Sequence[float]] = {
        "x": problem.x.pointer,
        "weights": problem.weights,
        "z": z.pointer,
        "bias": problem.bias,
        "y": problem.y.pointer,
        "workspace": problem.workspace,
        "rows": problem.rows,
        "row_tile": row_tile,
        "threads": threads,
        "stream": reaches(step, "passing_rows", problem.rows),
        "ahead": reaches(step, "far_rows", problem.rows),
        "weight_strides": problem.weight_strides,
        "bias_stride": problem.bias_stride,
        "slice": step.shared_bytes,
        "scalars": problem.scalars,
    }
    for name, matrix in (("x", problem.x), ("z", z), ("y", problem.y)):
        values[f"{name}_strides"] = (matrix.row, matrix.column)
    return values


def _sizes(step: Step) -> dict[str, int]:
    return {name: int(value) for name, value in step.constants if isinstance(value, int)}


def patches(step: Step) -> int:
    """Parts of the result's columns that are computed apart, each with weights of its own."""
    size = _sizes(step)
    return (
        -(-size["kA"] // size["kBlocks"])
        * (size["kD"] // size["kSlices"])
        * -(-size["kB"] // size["kOutputs"])
    )


def _threads(step: Step, rows: int, threads: int) -> int:
    """Threads that a run takes of those that it may."""
    work = step.constant("work")
    assert isinstance(work, int)
    return shares(work * rows, rows * patches(step), threads)


def _split(step: Step, problem: KSparseProblem) -> tuple[int, int]:
    """Rows of an item and threads, so that every thread gets as many items."""
    size = _sizes(step)
    count = patches(step)
    threads = _threads(step, problem.rows, problem.threads)
    lanes = size["kWidth"] * size["kVectors"]
    tiles = -(-problem.rows // size["kRowTile"])
    if count % threads and tiles % threads:
        tiles += threads - tiles % threads
    row_tile = -(-problem.rows // tiles)
    row_tile = min(size["kRowTile"], -(-row_tile // lanes) * lanes)
    return row_tile, min(threads, count * -(-problem.rows // row_tile))
