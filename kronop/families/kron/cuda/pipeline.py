"""The passes of a Kronecker matmul in order, with intermediates in the workspace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Pipeline
from kronop.families.kron.cuda.pass_design import KronPass
from kronop.families.kron.cuda.shapes import PassWork
from kronop.families.kron.description import KronProblem
from kronop.frozen import dataclass
from kronop.target import Target

_ALIGNMENT = 256
# Bounds the workspace, by running a part of the rows at a time. NOTE: on an H200, smaller parts
# whose intermediates stay in the level-2 cache (16 to 64 MB) took 1.1 to 2 times as long: in
# launches of some microseconds, filling and draining the GPU counts.
_PART_BYTES = 1 << 30
_LEAST_CONTIGUOUS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KronPasses(Pipeline):
    """Passes over all digits of a row; a size is M times the batch."""

    passes: tuple[KronPass, ...]

    @property
    def parts(self) -> tuple[KronPass, ...]:
        return self.passes

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """The intermediates of as many rows as run at a time."""
        return sum(self._buffers(self.rows_at_once(size)))

    def rows_at_once(self, rows: int) -> int:
        """The rows of a part, which goes through all passes before the next part starts.

        The intermediates of a part take a gigabyte at most, and all parts have about equally many
        rows.
        """
        works = [item.work for item in self.passes]
        if len(works) == 1 or rows == 0:
            return rows
        of_a_row = max(work.shape.columns_out * work.ends.output.bytes for work in works[:-1])
        least = _LEAST_CONTIGUOUS if works[0].ends.source_by_rows else 1
        parts = operands.cover(rows, max(least, _PART_BYTES // of_a_row))
        return min(rows, operands.round_up(operands.cover(rows, parts), least))

    def _buffers(self, rows: int) -> tuple[int, int]:
        """Bytes of the two halves of the workspace: for the intermediates of even and of odd
        passes, each with its number of rows padded."""
        sizes = [0, 0]
        for index, item in enumerate(self.passes[:-1]):
            element, columns = item.work.ends.output, item.work.shape.columns_out
            padded = operands.round_up(rows, operands.vector_of(element))
            wanted = operands.round_up(columns * padded * element.bytes, _ALIGNMENT)
            sizes[index % 2] = max(sizes[index % 2], wanted)
        return sizes[0], sizes[1]

    def launches(self, problem: KronProblem, target: Target) -> tuple[Launch, ...]:
        """For each part of the rows in order, those of each pass."""
        most = self.rows_at_once(problem.all_rows)
        halves = (problem.workspace, problem.workspace + self._buffers(most)[0])
        first, last = self.passes[0].work, self.passes[-1].work
        sizes = {
            "x": first.ends.source.bytes,
            "y": last.ends.output.bytes,
            "factor": first.math.element_b.bytes,
        }
        return tuple(
            launch
            for part in _parts(problem.folded(), most, sizes)
            for launch in self._of_part(part, halves, target)
        )

    def _of_part(
        self, problem: KronProblem, halves: tuple[int, int], target: Target
    ) -> Iterator[Launch]:
        """Those of each pass; the intermediates alternate between the halves of the workspace."""
        x, last = problem.x, len(self.passes) - 1
        for index, item in enumerate(self.passes):
            moved = replace(problem, x=x)
            if index != last:
                y = _intermediate(item.work, problem, halves[index % 2])
                moved = replace(moved, y=y, z=None, scalars=())
            yield from self.launches_of(index, moved, target)
            x = moved.y


def _parts(problem: KronProblem, most: int, sizes: Mapping[str, int]) -> Iterator[KronProblem]:
    """The problem in parts of at most `most` rows, cut along the first batch axis or along M."""
    rows = problem.all_rows
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

    def moved(item: Strided, size: int) -> Strided:
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


def _intermediate(work: PassWork, problem: KronProblem, pointer: int) -> Strided:
    """An intermediate in the workspace: dense, and contiguous along the same axis as X."""
    columns = work.shape.columns_out
    inner = [
        math.prod(problem.batch[axis + 1 :]) * problem.rows for axis in range(len(problem.batch))
    ]
    if work.ends.source_by_rows:
        column = operands.round_up(problem.all_rows, operands.vector_of(work.ends.output))
        return Strided(pointer=pointer, strides=(1, column), batch=tuple(inner))
    return Strided(
        pointer=pointer, strides=(columns, 1), batch=tuple(size * columns for size in inner)
    )
