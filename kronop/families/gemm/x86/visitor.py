"""Parameters of products on CPUs whose epilogue is a visitor tree; see visitor_results.hpp."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.descriptions.summed import parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.visit_design import visited_strides
from kronop.emit.x86 import planning
from kronop.families.gemm.x86.cutting import Cut

CUTS = "rows columns depth slice slices scratch_bytes packed_columns sums partial pitch threads"
_OPERANDS = ("a", "b")


def signature(epilogue: VisitorEpilogue) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    results = len(epilogue.tree.results)
    count = len(epilogue.tree.tensors) + results
    return KernelSignature(
        "GemmVisitorParameters",
        (
            *(Field(name, Scalar.POINTER) for name in (*_OPERANDS, "workspace")),
            Field("visited", Scalar.POINTER, count),
            *(Field(name, whole) for name in "mnk"),
            *(Field(name, whole, batch) for name in ("batch", "a_batch", "b_batch")),
            *(Field(f"{name}_{way}", whole) for name in _OPERANDS for way in ("row", "column")),
            *visited_strides(count),
            *(Field(name, whole) for name in (*CUTS.split(), "turned")),
            Field("folds", whole, results),
            planning.scalar_fields(epilogue),
        ),
    )


def arguments(epilogue: VisitorEpilogue) -> str:
    """The template arguments of the parameter struct."""
    tree = epilogue.tree
    results = len(tree.results)
    counts = f"{len(tree.tensors) + results}, {results}"
    return f"{planning.parameter_arguments(epilogue)}, {counts}"


def folds(
    epilogue: VisitorEpilogue,
    found: Cut,
    m: int,
    n: int,
    problems: int,
    panel: int,
    *,
    turned: bool,
) -> tuple[tuple[int, ...], int]:
    """(where the partial results of each reduction begin in the workspace, its bytes).

    Args:
        found: how the kernel's problem, m x n, is divided.
        panel: columns that are finished at once.
    """
    begin = planning.aligned(found.workspace_bytes)
    m, n, tile = (n, m, (panel, found.rows)) if turned else (m, n, (found.rows, panel))
    begins, end = parts_of(epilogue, m, n, problems, tile)
    return tuple(begin + item for item in begins), begin + end
