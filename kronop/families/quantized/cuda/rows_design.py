"""Quantizes rows of numbers in the workspace: quantized_rows.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, named, package_folder
from kronop.families.quantized.two_steps import RowsDesign, RowsProblem
from kronop.frozen import dataclass
from kronop.target import Target

THREADS = 256
_WARPS = THREADS // 32
# The least number of columns for which a whole block shares a row: each thread then has a vector.
_LONG = 8 * THREADS
_RESIDENT = 4
SIGNATURE = KernelSignature(
    "QuantizedRowsParameters",
    (
        *(Field(name, Scalar.POINTER) for name in ("y", "q", "scales")),
        Field("rows", Scalar.INT64),
        Field("clip", Scalar.FLOAT64),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRows(RowsDesign):
    """A warp for each row or, if rows are long, a block."""

    threads = THREADS
    shared_bytes = 4 * _WARPS
    signature = SIGNATURE
    styles: ClassVar[tuple[str, ...]] = ("short rows", "long rows", "vectors", "single numbers")

    @property
    def warps(self) -> int:
        """Warps of a row."""
        return _WARPS if self.columns >= _LONG else 1

    def style(self, target: Target) -> Iterator[str]:
        yield "short rows" if self.warps == 1 else "long rows"
        yield "single numbers" if self.columns % 8 else "vectors"

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="quantized_rows.cuh",
            parameters="kronop::QuantizedRowsParameters",
            types=(("Input", self.element.cxx),),
            constants=(
                ("kThreads", THREADS),
                ("kBlocks", _RESIDENT),
                *named(self, "warps columns bits"),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: RowsProblem, target: Target) -> tuple[Launch, ...]:
        blocks = operands.cover(problem.rows, _WARPS // self.warps)
        launch = Launch(
            parameters=SIGNATURE.pack(problem.values),
            grid=(min(blocks, 2 * _RESIDENT * target.cores), 1, 1),
            block=(THREADS, 1, 1),
            shared_bytes=self.shared_bytes,
        )
        return (launch,)
