"""What a Kronecker problem becomes on a CPU: parameters of its launch, tiles of rows, threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, StridedMatrix
from kronop.emit.plan import Step
from kronop.emit.x86.planning import reaches, scalar_fields, shares
from kronop.families.kron.description import KronMatmulDescription, KronProblem

# What the busiest thread may do more than its part before threads share every tile.
_UNEVEN = 1.1
_NO_MATRIX = StridedMatrix(pointer=0, row=0, column=0)


def signature(description: KronMatmulDescription) -> KernelSignature:
    factors = len(description.factors)
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    return KernelSignature(
        "KronParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("x", "z", "y", "workspace")),
            *(
                Field(name, whole)
                for name in ("rows", "row_tile", "threads", "together", "plain", "stream", "ahead")
            ),
            Field("batch", whole, batch),
            Field("x_strides", whole, 2),
            Field("x_batch", whole, batch),
            Field("z_strides", whole, 2),
            Field("z_batch", whole, batch),
            Field("y_strides", whole, 2),
            Field("y_batch", whole, batch),
            Field("slice", whole),
            Field("factors", Scalar.POINTER, factors),
            Field("factor_row", whole, factors),
            Field("factor_column", whole, factors),
            Field("factor_batch", whole, factors * batch),
            scalar_fields(description.epilogue),
        ),
    )


def _fold_batch(problem: KronProblem) -> KronProblem:
    """The problem with batch dimensions that only continue the rows made rows.

    The last batch dimension continues them where no factor varies along it and one of its steps is
    all of the rows in X, Y and Z.
    """
    while problem.batch and not any(factor.batch[-1] for factor in problem.factors):
        matrices = [item for item in (problem.x, problem.y, problem.z) if item is not None]
        if problem.rows > 1 and any(item.batch[-1] != problem.rows * item.row for item in matrices):
            break
        problem = _fold_last(problem)
    return problem


def _fold_last(problem: KronProblem) -> KronProblem:
    def fold(item: StridedMatrix) -> StridedMatrix:
        row = item.batch[-1] if problem.rows == 1 else item.row
        return StridedMatrix(
            pointer=item.pointer, row=row, column=item.column, batch=item.batch[:-1]
        )

    def drop(item: StridedMatrix) -> StridedMatrix:
        return StridedMatrix(
            pointer=item.pointer, row=item.row, column=item.column, batch=item.batch[:-1]
        )

    return KronProblem(
        rows=problem.rows * problem.batch[-1],
        batch=problem.batch[:-1],
        x=fold(problem.x),
        factors=tuple(map(drop, problem.factors)),
        z=None if problem.z is None else fold(problem.z),
        y=fold(problem.y),
        scalars=problem.scalars,
        workspace=problem.workspace,
        threads=problem.threads,
    )


def values(step: Step, problem: KronProblem) -> dict[str, int | Sequence[int] | Sequence[float]]:
    """Values of every field of the signature."""
    problem = _fold_batch(problem)
    z = problem.z or _NO_MATRIX
    row_tile, threads, together = _split(step, problem)
    all_rows = problem.rows * math.prod(problem.batch)
    values: dict[str, int | Sequence[int] | Sequence[float]] = {
        "x": problem.x.pointer,
        "z": z.pointer,
        "y": problem.y.pointer,
        "workspace": problem.workspace,
        "rows": problem.rows,
        "row_tile": row_tile,
        "threads": threads,
        "together": int(together),
        "plain": int(_is_plain(step, problem)),
        "stream": reaches(step, "passing_rows", all_rows),
        "ahead": reaches(step, "far_rows", all_rows),
        "batch": _padded(problem.batch, 1),
        "slice": step.shared_bytes,
        "factors": [factor.pointer for factor in problem.factors],
        "factor_row": [factor.row for factor in problem.factors],
        "factor_column": [factor.column for factor in problem.factors],
        "factor_batch": [item for factor in problem.factors for item in _padded(factor.batch, 0)],
        "scalars": problem.scalars,
    }
    for name, matrix in (("x", problem.x), ("z", z), ("y", problem.y)):
        values[f"{name}_strides"] = (matrix.row, matrix.column)
        values[f"{name}_batch"] = _padded(matrix.batch, 0)
    return values


def threads_of(step: Step, rows: int, threads: int) -> int:
    """Threads that a run of so many rows in all takes of those that it may."""
    return shares(_launch(step, "work") * rows, threads, threads)


def _split(step: Step, problem: KronProblem) -> tuple[int, int, bool]:
    """Rows of a tile, threads, and whether these work on every tile together.

    Few tiles are evened out, so that every thread gets as many; where rows cannot be, threads share
    the blocks of each.
    """
    most, multiple = _launch(step, "row_tile"), _launch(step, "row_multiple")
    batch = math.prod(problem.batch)
    threads = threads_of(step, problem.rows * batch, problem.threads)
    tiles = -(-problem.rows // most)
    if batch == 1 and tiles % threads:
        tiles += threads - tiles % threads
    row_tile = -(-problem.rows // tiles)
    row_tile = -(-row_tile // multiple) * multiple
    items = batch * -(-problem.rows // row_tile)
    busiest = -(-items // threads) * min(row_tile, problem.rows)
    is_uneven = threads > 1 and busiest * threads > _UNEVEN * problem.rows * batch
    if _launch(step, "teams") and is_uneven:
        return min(most, problem.rows), threads, True
    return row_tile, min(threads, items), False


def _is_plain(step: Step, problem: KronProblem) -> bool:
    """Whether results are what the epilogue makes of them, so that it need not run."""
    return bool(_launch(step, "keeps_sums")) and tuple(problem.scalars) == (1, 0)


def _launch(step: Step, name: str) -> int:
    value = step.constant(name)
    assert not isinstance(value, tuple)
    return int(value)


def _padded(values: Sequence[int], fill: int) -> list[int]:
    return [*values, *[fill] * (MOST_BATCH_DIMENSIONS - len(values))]
