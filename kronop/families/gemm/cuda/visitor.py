"""Parameters of products of blocks and warps whose epilogue is a visitor tree: gemm_visitor.cuh."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.visit_design import visited_strides


def counts_of(epilogue: VisitorEpilogue) -> tuple[int, int, int]:
    """How many scalars the struct has, how many operands and results, and how many results."""
    tree = epilogue.tree
    results = len(tree.results)
    return max(1, len(tree.scalars)), len(tree.tensors) + results, results


def parameters_of(epilogue: VisitorEpilogue) -> str:
    """The C++ name of the parameter struct."""
    scalars, visited, results = counts_of(epilogue)
    scalar = operands.scalar_kind(epilogue)
    return f"kronop::GemmVisitorParameters<{scalars}, {scalar.cxx}, {visited}, {results}>"


def signature(epilogue: VisitorEpilogue) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    scalars, visited, results = counts_of(epilogue)
    return KernelSignature(
        "GemmVisitorParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("a", "b", "partial")),
            Field("visited", Scalar.POINTER, visited),
            *(Field(name, whole) for name in ("m", "n", "k")),
            *(Field(name, whole, batch) for name in ("batch", "a_batch", "b_batch")),
            *(Field(name, whole) for name in ("a_row", "a_column", "b_row", "b_column")),
            *visited_strides(visited),
            *(Field(name, whole) for name in ("slices", "depth", "adds_up")),
            Field("folds", whole, results),
            Field("scalars", operands.scalar_kind(epilogue), scalars),
        ),
    )
