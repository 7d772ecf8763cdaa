"""KronProblem -> launches: places intermediates in the workspace, and folds batches into rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from kronop.artifacts import Launch
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.plan import Plan
from kronop.families.kron.cuda.pass_design import KronPass
from kronop.families.kron.cuda.shapes import PassWork
from kronop.families.kron.description import KronProblem

_ALIGNMENT = 256
# Bounds the workspace, by running a part of the rows at a time. NOTE: on an H200, smaller parts
# whose intermediates stay in the level-2 cache (16 to 64 MB) took 1.1 to 2 times as long: in
# launches of some microseconds, filling and draining the GPU counts.
_PART_BYTES = 1 << 30
_LEAST_CONTIGUOUS = 64


def _passes(plan: Plan) -> tuple[KronPass, ...]:
    """The designs of a plan's steps."""
    return tuple(cast(KronPass, step.design) for step in plan.steps)


def _buffers(plan: Plan, rows: int) -> tuple[int, int]:
    """Bytes of the two halves of the workspace: for the intermediates of even and of odd steps,
    each with its number of rows padded."""
    sizes = [0, 0]
    for index, item in enumerate(_passes(plan)[:-1]):
        element, columns = item.work.ends.output, item.work.shape.columns_out
        padded = operands.round_up(rows, operands.vector_of(element))
        wanted = operands.round_up(columns * padded * element.bytes, _ALIGNMENT)
        sizes[index % 2] = max(sizes[index % 2], wanted)
    return sizes[0], sizes[1]


def workspace_bytes(plan: Plan, rows: int) -> int:
    """Bytes of the intermediates for `rows` rows (M times the batch), of which one part runs at a
    time."""
    return sum(_buffers(plan, rows_at_once(plan, rows)))


def rows_at_once(plan: Plan, rows: int) -> int:
    """The rows of a part, which goes through all steps before the next part starts.

    The intermediates of a part take a gigabyte at most, and all parts have about equally many rows.
    """
    works = [item.work for item in _passes(plan)]
    if len(works) == 1 or rows == 0:
        return rows
    of_a_row = max(work.shape.columns_out * work.ends.output.bytes for work in works[:-1])
    least = _LEAST_CONTIGUOUS if works[0].ends.source_by_rows else 1
    parts = operands.cover(rows, max(least, _PART_BYTES // of_a_row))
    return min(rows, operands.round_up(operands.cover(rows, parts), least))


def launch_steps(plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
    """For each part of the rows in order, one launch per step; none if there are no rows."""
    rows = problem.rows * math.prod(problem.batch)
    if rows == 0:
        return ()
    most = rows_at_once(plan, rows)
    buffers = _buffers(plan, most)
    starts = (problem.workspace, problem.workspace + buffers[0])
    first, last = (_passes(plan)[place].work for place in (0, -1))
    sizes = {
        "x": first.ends.source.bytes,
        "y": last.ends.output.bytes,
        "factor": first.math.element_b.bytes,
    }
    return tuple(
        launch
        for part in _parts(_fold(problem), most, sizes)
        for launch in _launches(plan, part, starts)
    )


def _launches(plan: Plan, problem: KronProblem, starts: tuple[int, int]) -> Iterator[Launch]:
    """One launch per step; the intermediates alternate between the halves of the workspace."""
    rows = problem.rows * math.prod(problem.batch)
    x, last = problem.x, len(plan.steps) - 1
    for index, item in enumerate(_passes(plan)):
        if index == last:
            moved = replace(problem, x=x)
        else:
            y = _intermediate(item.work, problem, rows, starts[index % 2])
            moved = replace(problem, x=x, y=y, z=None, scalars=())
        yield item.launch(index, plan.target, moved)
        x = moved.y


def _parts(problem: KronProblem, most: int, sizes: Mapping[str, int]) -> Iterator[KronProblem]:
    """The problem in parts of at most `most` rows, cut along the first batch axis or along M."""
    rows = problem.rows * math.prod(problem.batch)
    if rows <= most:
        yield problem
        return
    extent = problem.batch[0] if problem.batch else problem.rows
    step = max(1, most // (rows // extent))
    for start in range(0, extent, step):
        count = min(step, extent - start)
        yield from _parts(_slice(problem, start, count, sizes), most, sizes)


def _slice(problem: KronProblem, start: int, count: int, sizes: Mapping[str, int]) -> KronProblem:
    """The part from `start` of `count` indices of the first batch axis (which is dropped if `count`
    is 1), or of the rows if there is no batch."""
    batched = bool(problem.batch)
    single = batched and count == 1

    def moved(item: StridedMatrix, size: int) -> StridedMatrix:
        stride = item.batch[0] if batched else item.row
        batch = item.batch[1:] if single else item.batch
        return replace(item, pointer=item.pointer + start * stride * size, batch=batch)

    x, y = moved(problem.x, sizes["x"]), moved(problem.y, sizes["y"])
    z = None if problem.z is None else moved(problem.z, sizes["y"])
    if not batched:
        return replace(problem, rows=count, x=x, y=y, z=z)
    return replace(
        problem,
        batch=problem.batch[1:] if single else (count, *problem.batch[1:]),
        x=x,
        y=y,
        z=z,
        factors=tuple(moved(item, sizes["factor"]) for item in problem.factors),
    )


def _intermediate(work: PassWork, problem: KronProblem, rows: int, pointer: int) -> StridedMatrix:
    """An intermediate in the workspace: dense, and contiguous along the same axis as X."""
    columns = work.shape.columns_out
    inner = [
        math.prod(problem.batch[axis + 1 :]) * problem.rows for axis in range(len(problem.batch))
    ]
    if work.ends.source_by_rows:
        column = operands.round_up(rows, operands.vector_of(work.ends.output))
        return StridedMatrix(pointer=pointer, row=1, column=column, batch=tuple(inner))
    return StridedMatrix(
        pointer=pointer, row=columns, column=1, batch=tuple(size * columns for size in inner)
    )


def _fold(problem: KronProblem) -> KronProblem:
    """Turns the last batch dimensions into rows, if no factor depends on them and the strides of X,
    Y and Z allow it: fewer, larger problems fill the GPU better."""
    while problem.batch and all(factor.batch[-1] == 0 for factor in problem.factors):
        extent = problem.batch[-1]
        matrices = [problem.x, problem.y, *([] if problem.z is None else [problem.z])]
        if problem.rows > 1 and any(item.batch[-1] != item.row * problem.rows for item in matrices):
            return problem
        single = problem.rows == 1

        def drop(item: StridedMatrix, single: bool = single) -> StridedMatrix:
            return replace(item, row=item.batch[-1] if single else item.row, batch=item.batch[:-1])

        problem = replace(
            problem,
            rows=problem.rows * extent,
            batch=problem.batch[:-1],
            x=drop(problem.x),
            y=drop(problem.y),
            z=None if problem.z is None else drop(problem.z),
            factors=tuple(replace(item, batch=item.batch[:-1]) for item in problem.factors),
        )
    return problem
