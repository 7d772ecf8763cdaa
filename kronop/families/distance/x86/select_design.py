"""The first k numbers of each row, selected on the host: select.hpp."""

from __future__ import annotations

import dataclasses
import functools

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.design import Instantiation, InWorkspace, package_folder
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import planning
from kronop.frozen import dataclass
from kronop.target import Target

# The most numbers of a row. NOTE: of 4000 random ones in float32 the 32 smallest took 2.8 ns each
# on one core (Zen 3), the 128 smallest 13; NumPy's partition took 5 to 8.
MOST = 64
SIGNATURE = KernelSignature(
    "SelectParameters",
    (
        *(Field(name, Scalar.POINTER) for name in ("matrix", "values", "indices")),
        *(Field(name, Scalar.INT64) for name in ("rows", "columns", "before", "k", "largest")),
        Field("threads", Scalar.INT64),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectProblem:
    """The k first numbers of each row, of a matrix and of an earlier selection.

    Attributes:
        matrix, values, indices: addresses.
        before: columns that came before those of the matrix.
        largest: 1 if the largest come first, else 0.
    """

    matrix: int
    values: int
    indices: int
    rows: int
    columns: int
    before: int
    k: int
    largest: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRows(InWorkspace):
    """One pass over a contiguous matrix, whose rows are divided among threads."""

    signature = SIGNATURE

    element: DataType
    vector_bytes: int

    threads = 0
    shared_bytes = 0

    def instantiation(self, target: Target) -> Instantiation:
        compute = MathInstruction.simt(self.element).element_accumulator
        return Instantiation(
            header="select.hpp",
            parameters="kronop::SelectParameters",
            types=(("Element", self.element.cxx), ("Compute", compute.cxx)),
            constants=(("kWidth", self.vector_bytes // compute.bytes), ("kMost", MOST)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: SelectProblem, target: Target) -> tuple[Launch, ...]:
        values = dataclasses.asdict(problem)
        numbers = problem.rows * problem.columns
        values["threads"] = planning.shares(numbers, problem.rows, problem.threads)
        return (Launch(parameters=SIGNATURE.pack(values)),)


@functools.cache
def plan(element: DataType, target: Target) -> Plan:
    """The plan for numbers of this type."""
    step = Step(
        entry=planning.kernel_name("select", element, "rows", target),
        design=SelectRows(element=element, vector_bytes=target.vector_bytes),
        note="the first numbers of each row",
    )
    return Plan(target=target, steps=(step,))
