"""Quantizes rows of numbers in the workspace: quantized_rows.hpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.emit.design import Instantiation, package_folder
from kronop.emit.x86 import planning
from kronop.families.quantized.two_steps import RowsDesign, RowsProblem
from kronop.frozen import dataclass
from kronop.target import Target

# In the unit of `planning.shares`: a number takes about as long as so many multiply-adds.
_WORK_OF_NUMBER = 16
SIGNATURE = KernelSignature(
    "QuantizedRowsParameters",
    (
        *(Field(name, Scalar.POINTER) for name in ("y", "q", "scales")),
        Field("rows", Scalar.INT64),
        Field("threads", Scalar.INT64),
        Field("clip", Scalar.FLOAT64),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRows(RowsDesign):
    """A loop over the rows, divided among threads."""

    threads = 0
    shared_bytes = 0
    signature = SIGNATURE
    styles: ClassVar[tuple[str, ...]] = ("4 bits", "8 bits")

    def style(self, target: Target) -> Iterator[str]:
        yield f"{self.bits} bits"

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="quantized_rows.hpp",
            parameters="kronop::QuantizedRowsParameters",
            types=(("Element", self.element.cxx),),
            constants=(("kColumns", self.columns), ("kBits", self.bits)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: RowsProblem, target: Target) -> tuple[Launch, ...]:
        work = problem.rows * self.columns * _WORK_OF_NUMBER
        threads = planning.shares(work, problem.rows, problem.threads)
        return (Launch(parameters=SIGNATURE.pack({**problem.values, "threads": threads})),)
