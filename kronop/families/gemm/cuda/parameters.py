"""The parameter struct of products of blocks and warps: gemm_parameters.cuh, gemm_visitor.cuh."""

from __future__ import annotations

import functools
from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, NOTHING, padded
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.design import members
from kronop.emit.visit_design import visited_strides, visited_values
from kronop.families.gemm.description import GemmProblem
from kronop.frozen import dataclass

_OPERANDS = ("a", "b", "y", "z", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """How sums over K are split (split-K).

    Attributes:
        slices: the number of slices.
        depth: contracted indices of each.
        partial: the address of the slices' sums; 0 if there is one slice.
        adds_up: 0, or 1 for a launch that adds these sums up; for a launch that combines partial
            results of reductions, the number of threads for each result.
    """

    slices: int
    depth: int
    partial: int
    adds_up: int


def counts_of(epilogue: VisitorEpilogue) -> tuple[int, int, int]:
    """How many scalars the struct has, how many operands and results, and how many results."""
    tree = epilogue.tree
    results = len(tree.results)
    return max(1, len(tree.scalars)), len(tree.tensors) + results, results


def parameters_of(epilogue: Epilogue) -> str:
    """The C++ name of the parameter struct."""
    scalar = operands.scalar_kind(epilogue).cxx
    if isinstance(epilogue, VisitorEpilogue):
        scalars, visited, results = counts_of(epilogue)
        return f"kronop::GemmVisitorParameters<{scalars}, {scalar}, {visited}, {results}>"
    return f"kronop::GemmParameters<{operands.SCALARS}, {scalar}>"


@functools.cache
def signature(epilogue: Epilogue) -> KernelSignature:
    if isinstance(epilogue, VisitorEpilogue):
        return _visitor_signature(epilogue)
    whole = Scalar.INT64
    pointers = (*_OPERANDS, "partial")
    return KernelSignature(
        "GemmParameters",
        (
            *(Field(name, Scalar.POINTER) for name in pointers),
            *(Field(name, whole) for name in ("m", "n", "k")),
            Field("batch", whole, MOST_BATCH_DIMENSIONS),
            *(Field(f"{name}_batch", whole, MOST_BATCH_DIMENSIONS) for name in _OPERANDS),
            *(Field(f"{name}_{way}", whole) for name in _OPERANDS for way in ("row", "column")),
            *(Field(name, whole) for name in ("slices", "depth", "adds_up")),
            operands.scalar_fields(epilogue),
        ),
    )


def _visitor_signature(epilogue: VisitorEpilogue) -> KernelSignature:
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


def values_of(epilogue: Epilogue, problem: GemmProblem, slicing: Slicing) -> dict[str, Any]:
    """The members of the parameter struct; for a visitor tree, `folds` is added."""
    p = problem
    every = (p.a, p.b, p.y, p.z or NOTHING, p.bias or NOTHING)
    found = dict(zip(_OPERANDS, every, strict=True))
    more: dict[str, Any] = {}
    if isinstance(epilogue, VisitorEpilogue):
        found = {name: found[name] for name in ("a", "b")}
        more = visited_values(problem.in_memory(epilogue))
    return {
        **{name: item.pointer for name, item in found.items()},
        **members(slicing, "partial slices depth adds_up"),
        **members(p, "m n k scalars"),
        "batch": padded(p.batch, 1),
        **{f"{name}_batch": padded(item.batch, 0) for name, item in found.items()},
        **{f"{name}_row": item.row for name, item in found.items()},
        **{f"{name}_column": item.column for name, item in found.items()},
        **more,
    }
