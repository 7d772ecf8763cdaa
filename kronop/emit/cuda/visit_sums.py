"""The pass that takes sums through a visitor tree on GPUs; see visit_sums.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.descriptions.summed import VisitProblem, moved_bytes, parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import HERTZ, MEMORY_BYTES_PER_CYCLE, SECONDS_OF_LAUNCH
from kronop.emit.design import Design, Instantiation
from kronop.emit.visiting import values_of
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _LANES = 256, 32
_WARPS = _THREADS // _LANES
# Rows of a thread and, where sums are along columns, columns.
_STEPS = 4
# Threads that join the parts of a result, which are so many each; threads that fill a GPU.
_MOST_SHARES, _FEW_PARTS, _MANY = 32, 8, 1 << 20


def shared_bytes_of_tree(
    epilogue: VisitorEpilogue, tile: tuple[int, int], holders: tuple[int, int]
) -> int:
    """Shared memory in which threads join values.

    Args:
        tile: rows and columns of a block.
        holders: threads that have sums of a row, and of a column.
    """
    places = {"": 0, "row": tile[0] * holders[0], "column": tile[1] * holders[1]}
    wanted = sum(places[item.axis] for item in epilogue.tree.results)
    return wanted * epilogue.element_epilogue.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitSums(Design):
    """A block has a tile of the result.

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
        return _THREADS

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        if not self.along_rows:
            return _LANES * _STEPS, _WARPS * _STEPS
        return _WARPS * _STEPS, _LANES * operands.vector_of(self.sums)

    @property
    def shared_bytes(self) -> int:
        """Places in which threads join values of each row, and of each column."""
        holders = (_LANES, _WARPS) if self.along_rows else (_WARPS, _LANES)
        joined = (
            _THREADS * self.epilogue.element_epilogue.bytes if self.epilogue.tree.reduces else 0
        )
        return max(joined, shared_bytes_of_tree(self.epilogue, self.tile, holders))

    def status(self, target: Target) -> Status:
        """Whether a block has the shared memory that its reductions take."""
        if self.shared_bytes <= target.shared_bytes:
            return Status.accept()
        count = sum(1 for item in self.epilogue.tree.results if item.axis)
        return Status.reject(
            f"{count} reductions of a tree take {self.shared_bytes} bytes of shared memory,"
            f" {target} has {target.shared_bytes}; return fewer"
        )

    def style(self, target: Target) -> Iterator[str]:
        yield "sums along rows" if self.along_rows else "sums along columns"
        yield "reduces" if self.epilogue.tree.reduces else "no reductions"

    @property
    def signature(self) -> KernelSignature:
        whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
        scalars, visited, results = self._counts
        return KernelSignature(
            "VisitSumsParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("sums", "partial")),
                Field("visited", Scalar.POINTER, visited),
                *(Field(name, whole) for name in ("m", "n")),
                *(Field(name, whole, batch) for name in ("batch", "sums_batch")),
                *(Field(name, whole) for name in ("sums_row", "sums_column")),
                Field("visited_batch", whole, visited * batch),
                Field("visited_row", whole, visited),
                Field("visited_column", whole, visited),
                Field("joins", whole),
                Field("folds", whole, results),
                Field("scalars", operands.scalar_kind(self.epilogue), scalars),
            ),
        )

    @property
    def _counts(self) -> tuple[int, int, int]:
        """How many scalars, operands and results, and results the struct has."""
        tree = self.epilogue.tree
        results = len(tree.results)
        return max(1, len(tree.scalars)), len(tree.tensors) + results, results

    def instantiation(self, target: Target) -> Instantiation:
        scalars, visited, results = self._counts
        scalar = operands.scalar_kind(self.epilogue)
        return Instantiation(
            header="kronop/visit_sums.cuh",
            template="kronop::visit_sums",
            parameters=f"kronop::VisitSumsParameters<{scalars}, {scalar.cxx}, {visited},"
            f" {results}>",
            types=(("Accumulator", self.sums.cxx),),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kTileM", self.tile[0]),
                ("kTileN", self.tile[1]),
                ("kAlongRows", self.along_rows),
            ),
        )

    def seconds(self, elements: int, target: Target) -> float:
        """Modelled time of the pass over so many sums: what it moves, and its launches."""
        rate = MEMORY_BYTES_PER_CYCLE * target.cores * HERTZ[target.arch]
        launches = 1 + self.epilogue.tree.reduces
        return elements * moved_bytes(self.epilogue) / rate + launches * SECONDS_OF_LAUNCH

    def launches(self, index: int, problem: VisitProblem) -> tuple[Launch, ...]:
        """One launch, and one that joins parts if the tree reduces.

        Raises:
            ArgumentError: the result has more tiles than a grid has blocks.
        """
        m, n = problem.m, problem.n
        tiles = operands.cover(m, self.tile[0]) * operands.cover(n, self.tile[1])
        launches = [self._launch(index, problem, problem.problems * tiles, joins=0)]
        if self.epilogue.tree.reduces:
            shares = self._shares(m, n)
            blocks = problem.problems * operands.cover(max(m, n), _THREADS // shares)
            launches.append(self._launch(index, problem, blocks, joins=shares))
        return tuple(launches)

    def _shares(self, m: int, n: int) -> int:
        """How many threads join the parts of a result: where these are many, and results few."""
        parts = max(operands.cover(m, self.tile[0]), operands.cover(n, self.tile[1]))
        shares = 1
        while shares < _MOST_SHARES and shares * _FEW_PARTS < parts and shares * max(m, n) < _MANY:
            shares *= 2
        return shares

    def _launch(self, index: int, problem: VisitProblem, blocks: int, *, joins: int) -> Launch:
        operands.check_blocks(blocks)
        values: dict[str, Any] = {
            "sums": problem.sums.pointer,
            "partial": problem.workspace,
            "m": problem.m,
            "n": problem.n,
            "batch": padded(problem.batch, 1),
            "sums_batch": padded(problem.sums.batch),
            "sums_row": problem.sums.row,
            "sums_column": problem.sums.column,
            **values_of((*problem.operands, *problem.results)),
            "joins": joins,
            "folds": parts_of(self.epilogue, problem.m, problem.n, problem.problems, self.tile)[0],
            "scalars": problem.scalars,
        }
        return operands.make_launch(index, self, blocks, values)


def design(epilogue: VisitorEpilogue, sums: DataType, *, along_rows: bool) -> VisitSums:
    return VisitSums(sums=sums, along_rows=along_rows, epilogue=epilogue)
