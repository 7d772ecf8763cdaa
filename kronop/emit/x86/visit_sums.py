"""The pass that takes sums through a visitor tree on CPUs; see visit_sums.hpp."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, StridedMatrix, padded
from kronop.descriptions.summed import LEAST_PART, VisitProblem, parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Design, Instantiation
from kronop.emit.visiting import values_of
from kronop.emit.x86 import planning
from kronop.frozen import dataclass
from kronop.target import Target

_PANEL = 32
# Elements of an item of work, at least; and the most items down a matrix. Neither depends on the
# threads, so that values are joined in the same order by any number of them.
_ELEMENTS, _MOST_ITEMS = 1 << 14, 512
# Multiply-adds that take as long as an element of the pass.
_WORK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVisitSums(Design):
    """An item of work is some rows of the result, which go through the tree in runs.

    Attributes:
        sums: type of the sums.
        along_rows: sums of a row are contiguous in memory, else those of a column.
        epilogue: the tree.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("sums along rows", "sums along columns"),
        *("reduces", "no reductions"),
    )

    sums: DataType
    along_rows: bool
    epilogue: VisitorEpilogue

    @property
    def threads(self) -> int:
        return 0

    @property
    def shared_bytes(self) -> int:
        return 0

    def status(self, target: Target) -> Status:
        """Any tree."""
        return Status.accept()

    def style(self, target: Target) -> Iterator[str]:
        yield "sums along rows" if self.along_rows else "sums along columns"
        yield "reduces" if self.epilogue.tree.reduces else "no reductions"

    @property
    def signature(self) -> KernelSignature:
        whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
        visited, results = self._counts
        return KernelSignature(
            "VisitSumsParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("sums", "workspace")),
                Field("visited", Scalar.POINTER, visited),
                *(Field(name, whole) for name in ("m", "n")),
                *(Field(name, whole, batch) for name in ("batch", "sums_batch")),
                *(Field(name, whole) for name in ("sums_row", "sums_column")),
                Field("visited_batch", whole, visited * batch),
                Field("visited_row", whole, visited),
                Field("visited_column", whole, visited),
                *(Field(name, whole) for name in ("rows", "threads", "turned")),
                Field("folds", whole, results),
                planning.scalar_fields(self.epilogue),
            ),
        )

    @property
    def _counts(self) -> tuple[int, int]:
        """How many operands and results, and how many results."""
        results = len(self.epilogue.tree.results)
        return len(self.epilogue.tree.tensors) + results, results

    def instantiation(self, target: Target) -> Instantiation:
        visited, results = self._counts
        scalars = planning.parameter_arguments(self.epilogue)
        return Instantiation(
            header="kronop_x86/visit_sums.hpp",
            template="kronop::visit_sums",
            parameters=f"kronop::VisitSumsParameters<{scalars}, {visited}, {results}>",
            types=(("Accumulator", self.sums.cxx),),
            constants=(("kPanel", _PANEL),),
        )

    def launches(self, index: int, problem: VisitProblem) -> tuple[Launch, ...]:
        work = _WORK * problem.m * problem.n * problem.problems
        threads = planning.shares(work, problem.threads, problem.threads)
        of = problem if self.along_rows else _turned(problem)
        rows = max(LEAST_PART, -(-_ELEMENTS // max(of.n, 1)), -(-of.m // _MOST_ITEMS))
        tile = (rows, _PANEL) if self.along_rows else (_PANEL, rows)
        values: dict[str, Any] = {
            "sums": of.sums.pointer,
            "workspace": problem.workspace,
            "m": of.m,
            "n": of.n,
            "batch": padded(of.batch, 1),
            "sums_batch": padded(of.sums.batch),
            "sums_row": of.sums.row,
            "sums_column": of.sums.column,
            **values_of((*of.operands, *of.results)),
            "rows": rows,
            "threads": threads,
            "turned": int(not self.along_rows),
            "folds": parts_of(self.epilogue, problem.m, problem.n, problem.problems, tile)[0],
            "scalars": problem.scalars,
        }
        return (Launch(step=index, parameters=self.signature.pack(values)),)


def _turned(problem: VisitProblem) -> VisitProblem:
    """The problem of the transposed result."""

    def across(item: StridedMatrix) -> StridedMatrix:
        return dataclasses.replace(item, row=item.column, column=item.row)

    return dataclasses.replace(
        problem,
        m=problem.n,
        n=problem.m,
        sums=across(problem.sums),
        operands=tuple(map(across, problem.operands)),
        results=tuple(map(across, problem.results)),
    )


def design(epilogue: VisitorEpilogue, sums: DataType, *, along_rows: bool) -> HostVisitSums:
    return HostVisitSums(sums=sums, along_rows=along_rows, epilogue=epilogue)
