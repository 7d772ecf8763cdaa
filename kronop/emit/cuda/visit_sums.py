"""The kernel that applies a visitor tree to sums on GPUs; see visit_sums.cuh."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Launch, Status
from kronop.descriptions.summed import VisitProblem, parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation
from kronop.emit.visit_design import VisitDesign, repeating
from kronop.frozen import dataclass
from kronop.machine import WARP
from kronop.target import Target

_THREADS = 256
_WARPS = _THREADS // WARP
# Rows of a thread and, where sums are contiguous along columns, its columns.
_STEPS = 4
# Most threads that combine one result, partial results for each, threads that fill a GPU.
_MOST_SHARES, _FEW_PARTS, _MANY = 32, 8, 1 << 20


def places_of_tree(
    epilogue: VisitorEpilogue, tile: tuple[int, int], holders: tuple[int, int]
) -> int:
    """Values in shared memory in which threads combine reductions of a tile; an odd number for each
    row, see visitor_places.cuh.

    Args:
        tile: rows and columns.
        holders: threads that have sums of a row, and of a column.
    """
    places = {"": 0, "row": tile[0] * (holders[0] | 1), "column": tile[1] * holders[1]}
    return sum(places[item.axis] for item in epilogue.tree.results)


def shared_bytes_of_tree(
    epilogue: VisitorEpilogue, threads: int, tile: tuple[int, int], holders: tuple[int, int]
) -> int:
    """Shared memory for the reductions of a tile, and for combining the partial results of all
    tiles in another launch.

    Args:
        threads: of a block.
        tile: rows and columns of a block.
        holders: threads that have sums of a row, and of a column.
    """
    wanted = places_of_tree(epilogue, tile, holders)
    return (max(wanted, threads) if wanted else 0) * epilogue.element_epilogue.bytes


def shares_of_join(m: int, n: int, tile: tuple[int, int]) -> int:
    """How many threads combine one result: several if partial results are many, and results few.

    Args:
        tile: rows and columns of a tile; each tile has one partial result.
    """
    parts = max(operands.cover(m, tile[0]), operands.cover(n, tile[1]))
    shares = 1
    while shares < _MOST_SHARES and shares * _FEW_PARTS < parts and shares * max(m, n) < _MANY:
        shares *= 2
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitSums(VisitDesign):
    """Applies the tree; a block has a tile of the result."""

    threads = _THREADS

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        if not self.along_rows:
            return WARP * _STEPS, _WARPS * _STEPS
        return _WARPS * _STEPS, WARP * operands.vector_of(self.sums)

    @property
    def shared_bytes(self) -> int:
        """The values of reductions of each row, and of each column."""
        holders = (WARP, _WARPS) if self.along_rows else (_WARPS, WARP)
        return shared_bytes_of_tree(self.epilogue, _THREADS, self.tile, holders)

    def status(self, target: Target) -> Status:
        """Whether a block has enough shared memory for its reductions."""
        if self.shared_bytes <= target.shared_bytes:
            return Status.accept()
        count = sum(1 for item in self.epilogue.tree.results if item.axis)
        return Status.reject(
            f"{count} reductions of a tree take {self.shared_bytes} bytes of shared memory,"
            f" {target} has {target.shared_bytes}; return fewer"
        )

    @property
    def signature(self) -> KernelSignature:
        kind = operands.scalar_kind(self.epilogue)
        return self.signature_with("partial", ("joins",), Field("scalars", kind, self._scalars))

    @property
    def _scalars(self) -> int:
        return max(1, len(self.epilogue.tree.scalars))

    def instantiation(self, target: Target) -> Instantiation:
        visited, results = self.visited
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="kronop/visit_sums.cuh",
            parameters=f"kronop::VisitSumsParameters<{self._scalars}, {scalar}, {visited},"
            f" {results}>",
            types=(("Accumulator", self.sums.cxx),),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                *zip(("kTileM", "kTileN"), self.tile, strict=True),
                ("kAlongRows", self.along_rows),
                ("kRepeating", repeating(self.epilogue)),
            ),
        )

    def launches(self, problem: VisitProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, and one that combines partial results if the tree reduces.

        Raises:
            ArgumentError: the result has more tiles than a grid has blocks.
        """
        m, n = problem.m, problem.n
        tiles = operands.cover(m, self.tile[0]) * operands.cover(n, self.tile[1])
        launches = [self._launch(problem, problem.problems * tiles, joins=0)]
        if self.epilogue.tree.reduces:
            shares = shares_of_join(m, n, self.tile)
            blocks = problem.problems * operands.cover(max(m, n), _THREADS // shares)
            launches.append(self._launch(problem, blocks, joins=shares))
        return tuple(launches)

    def _launch(self, problem: VisitProblem, blocks: int, *, joins: int) -> Launch:
        operands.check_blocks(blocks)
        folds, _ = parts_of(self.epilogue, problem.m, problem.n, problem.problems, self.tile)
        values = self.values_with("partial", {"joins": joins}, problem, folds)
        return operands.make_launch(self, blocks, values)
