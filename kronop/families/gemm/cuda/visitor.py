"""Parameters of products of blocks and warps whose epilogue is a visitor tree: gemm_visitor.cuh."""

from __future__ import annotations

import itertools
import math
from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.families.gemm.description import GemmProblem

_ALIGNMENT = 16


def _counts(epilogue: VisitorEpilogue) -> tuple[int, int, int]:
    """How many scalars the struct has, how many operands and results, and how many results."""
    tree = epilogue.tree
    results = len(tree.results)
    return max(1, len(tree.scalars)), len(tree.tensors) + results, results


def parameters_of(epilogue: VisitorEpilogue) -> str:
    """The C++ name of the parameter struct."""
    scalars, visited, results = _counts(epilogue)
    scalar = operands.scalar_kind(epilogue)
    return f"kronop::GemmVisitorParameters<{scalars}, {scalar.cxx}, {visited}, {results}>"


def signature(epilogue: VisitorEpilogue) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    scalars, visited, results = _counts(epilogue)
    return KernelSignature(
        "GemmVisitorParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("a", "b", "partial")),
            Field("visited", Scalar.POINTER, visited),
            *(Field(name, whole) for name in ("m", "n", "k")),
            *(Field(name, whole, batch) for name in ("batch", "a_batch", "b_batch")),
            *(Field(name, whole) for name in ("a_row", "a_column", "b_row", "b_column")),
            Field("visited_batch", whole, visited * batch),
            Field("visited_row", whole, visited),
            Field("visited_column", whole, visited),
            *(Field(name, whole) for name in ("slices", "depth", "adds_up")),
            Field("folds", whole, results),
            Field("scalars", operands.scalar_kind(epilogue), scalars),
        ),
    )


def values_of(epilogue: VisitorEpilogue, problem: GemmProblem) -> dict[str, Any]:
    """The members of the parameter struct that those of other epilogues have not."""
    count = len(epilogue.tree.tensors)
    every = (*problem.visited[:count], problem.y, *problem.visited[count:])
    missing = (0,) * (MOST_BATCH_DIMENSIONS - len(problem.batch))
    batches = [(*missing, *item.batch) for item in every]
    return {
        "visited": tuple(item.pointer for item in every),
        "visited_batch": tuple(itertools.chain(*batches)),
        "visited_row": tuple(item.row for item in every),
        "visited_column": tuple(item.column for item in every),
    }


def folds(
    epilogue: VisitorEpilogue, m: int, n: int, problems: int, tile: tuple[int, int]
) -> tuple[tuple[int, ...], int]:
    """(where the parts of each result begin in the workspace, where they end), in bytes.

    Args:
        tile: rows and columns, of which a block leaves a part each.
    """
    end, begins = 0, []
    for item in epilogue.tree.results:
        begins.append(end)
        if item.axis:
            parts = math.ceil(n / tile[1]) * m if item.axis == "row" else math.ceil(m / tile[0]) * n
            wanted = problems * parts * epilogue.element_epilogue.bytes
            end += operands.round_up(wanted, _ALIGNMENT)
    return tuple(begins), end


def shared_bytes(epilogue: VisitorEpilogue, tile: tuple[int, int], holders: tuple[int, int]) -> int:
    """Shared memory in which threads join values.

    Args:
        tile: rows and columns of a block.
        holders: threads that have sums of a row, and of a column.
    """
    places = {"": 0, "row": tile[0] * holders[0], "column": tile[1] * holders[1]}
    wanted = sum(places[item.axis] for item in epilogue.tree.results)
    return wanted * epilogue.element_epilogue.bytes
