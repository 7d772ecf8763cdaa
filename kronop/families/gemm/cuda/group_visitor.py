"""Products by warp groups whose epilogue is a visitor tree: gemm_group_visitor.cuh."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Block, Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.descriptions.summed import parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.visit_sums import places_of_tree, shares_of_join
from kronop.emit.visit_design import visited_strides, visited_values
from kronop.families.gemm.cuda.visitor import counts_of
from kronop.families.gemm.description import GemmProblem
from kronop.frozen import dataclass

# Threads of a team, and bytes of a thread's run of sums; bytes of a line.
_TEAM, _RUN_BYTES, _LINE_BYTES = 128, 16, 128
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64


def fold_bytes(tree: VisitorEpilogue, tile: tuple[int, int], lines: int) -> int:
    """Bytes in which a team joins what is reduced.

    Args:
        tile: rows and columns of a team.
        lines: lines of sums in a row that a team takes at once.
    """
    across = lines * _LINE_BYTES // _RUN_BYTES
    places = places_of_tree(tree, tile, (across, _TEAM // across))
    return operands.round_up(places * tree.element_epilogue.bytes, _RUN_BYTES)


def parameters_of(tree: VisitorEpilogue) -> str:
    """The C++ name of the parameter struct."""
    scalars, visited, results = counts_of(tree)
    kind = operands.scalar_kind(tree).cxx
    return f"kronop::GemmGroupVisitorParameters<{scalars}, {kind}, {visited}, {results}>"


def signature(tree: VisitorEpilogue) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    scalars, visited, results = counts_of(tree)
    numbers = ("m", "n", "k", "problems", "a_repeats", "b_repeats", "joins")
    return KernelSignature(
        "GemmGroupVisitorParameters",
        (
            *(Block(f"{name}_map", _MAP_BYTES, _MAP_ALIGNMENT) for name in ("a", "b")),
            Field("partial", Scalar.POINTER),
            Field("visited", Scalar.POINTER, visited),
            *(Field(name, whole) for name in numbers),
            Field("batch", whole, batch),
            *visited_strides(visited),
            Field("folds", whole, results),
            Field("scalars", operands.scalar_kind(tree), scalars),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What becomes of the sums of problems that are equally far apart.

    Attributes:
        tree: in the kernel's orientation.
        tile: rows and columns of a team, of which there is a part each.
        used: bytes of the workspace in front of the parts.
    """

    tree: VisitorEpilogue
    tile: tuple[int, int]
    used: int

    def values_of(self, problem: GemmProblem, count: int) -> dict[str, Any]:
        """The members of the parameter struct, for so many problems."""
        tensors = len(self.tree.tree.tensors)
        visited = (*problem.visited[:tensors], problem.y, *problem.visited[tensors:])
        folds, _ = parts_of(self.tree, problem.m, problem.n, count, self.tile)
        return {
            **visited_values(visited),
            "partial": problem.workspace + self.used,
            "batch": padded((count,), 1),
            "folds": folds,
            "scalars": problem.scalars,
        }

    def shares(self, problem: GemmProblem) -> int:
        """Threads that join the parts of a result."""
        return shares_of_join(problem.m, problem.n, self.tile)

    def blocks(self, problem: GemmProblem, count: int, shares: int) -> int:
        """Blocks of a team each that join the parts."""
        return count * operands.cover(max(problem.m, problem.n), _TEAM // shares)


def element_bytes(tree: VisitorEpilogue) -> tuple[int, ...]:
    """Bytes of an element of each operand and auxiliary result, as `GemmProblem.visited` has
    them."""
    return tuple(
        tree.element_epilogue.bytes if getattr(item, "axis", "") else tree.element_of(item).bytes
        for item in tree.tree.in_memory
    )
