"""Products by warp groups whose epilogue is a visitor tree: gemm_warp_group_visitor.cuh."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.descriptions.summed import parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.visit_sums import places_of_tree, shares_of_join
from kronop.emit.visit_design import visited_strides, visited_values
from kronop.families.gemm.cuda.parameters import counts_of
from kronop.families.gemm.cuda.warp_group_problem import LINE_BYTES
from kronop.families.gemm.description import GemmProblem

# Threads of a team, and bytes of a thread's contiguous sums.
_TEAM, _RUN_BYTES = 128, 16


def fold_bytes(tree: VisitorEpilogue, tile: tuple[int, int], lines: int) -> int:
    """Bytes in which a team combines reductions.

    Args:
        tile: rows and columns of a team.
        lines: lines of sums in a row that a team processes at once.
    """
    across = lines * LINE_BYTES // _RUN_BYTES
    places = places_of_tree(tree, tile, (across, _TEAM // across))
    return operands.round_up(places * tree.element_epilogue.bytes, _RUN_BYTES)


def parameters_of(tree: VisitorEpilogue) -> str:
    """The C++ name of the parameter struct."""
    scalars, visited, results = counts_of(tree)
    kind = operands.scalar_kind(tree).cxx
    return f"kronop::GemmWarpGroupVisitorParameters<{scalars}, {kind}, {visited}, {results}>"


def signature(tree: VisitorEpilogue) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    scalars, visited, results = counts_of(tree)
    numbers = ("m", "n", "k", "problems", "a_repeats", "b_repeats", "joins")
    return KernelSignature(
        "GemmWarpGroupVisitorParameters",
        (
            *operands.map_blocks("ab"),
            Field("partial", Scalar.POINTER),
            Field("visited", Scalar.POINTER, visited),
            *(Field(name, whole) for name in numbers),
            Field("batch", whole, batch),
            *visited_strides(visited),
            Field("folds", whole, results),
            Field("scalars", operands.scalar_kind(tree), scalars),
        ),
    )


def values_of(tree: VisitorEpilogue, tile: tuple[int, int], part: GemmProblem) -> dict[str, Any]:
    """The members of the parameter struct for the tree and its results.

    Args:
        tree: in the kernel's orientation.
        tile: rows and columns of a team, which has a partial result of each reduction.
    """
    return {
        **visited_values(part.in_memory(tree)),
        "partial": part.workspace,
        "batch": padded(part.batch, 1),
        "folds": parts_of(tree, part.m, part.n, part.problems, tile)[0],
        "joins": 0,
    }


def join_of(tile: tuple[int, int], part: GemmProblem, cluster: int) -> tuple[int, int]:
    """(blocks, threads for each result) of the launch that combines partial results.

    Args:
        tile: as of `values_of`.
        cluster: blocks of a cluster, of which there are whole ones.
    """
    shares = shares_of_join(part.m, part.n, tile)
    blocks = part.problems * operands.cover(max(part.m, part.n), _TEAM // shares)
    blocks = operands.round_up(blocks, cluster)
    operands.check_blocks(blocks)
    return blocks, shares


def element_bytes(tree: VisitorEpilogue) -> tuple[int, ...]:
    """Bytes of an element of each operand and auxiliary result, as in `GemmProblem.visited`."""
    return tuple(
        tree.element_epilogue.bytes if getattr(item, "axis", "") else tree.element_of(item).bytes
        for item in tree.tree.in_memory
    )
