"""A product whose lanes are deinterleaved first, and interleaved again afterwards.

If neighbours in memory belong to different lanes, a product of a few lanes uses a small part of
every cache line it reads. Separating and joining the lanes reads and writes X and Y once more, in
whole lines; in between, each product has one lane, whose elements are contiguous.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from kronop.artifacts import Launch
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract
from kronop.emit.cuda.machine import hertz, memory_rate
from kronop.emit.cuda.operands import View
from kronop.emit.design import Runnable
from kronop.emit.plan import Step
from kronop.families.ksparse.cuda.lanes import Apart, LanesProblem, MoveLanes
from kronop.families.ksparse.cuda.product import KSparseProduct
from kronop.families.ksparse.description import KSparseProblem
from kronop.frozen import dataclass, derived
from kronop.target import Target

# Most bytes of separated lanes in the workspace; further rows follow in further launches.
_MOST_WORKSPACE = 256 << 20
# Rows of a launch are a multiple of this, and so of every tile's rows.
_ROWS = 512
# Cycles of a launch that moves lanes, besides its memory traffic.
_CALL = 3500.0
# Indices of the parts, counted from the end.
_PART, _PART_Z, _PRODUCT, _JOIN = -4, -3, -2, -1


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a launch, and the addresses of their separated lanes, relative to the end of the
    packed weights in the workspace."""

    rows: int
    x: Apart
    y: Apart
    end: int


@dataclass(frozen=True, kw_only=True)
class Parted(KSparseProduct):
    """Separates lanes, multiplies each of them, and joins them."""

    product: WarpGroupContract

    def __str__(self) -> str:
        return f"lanes apart, {self.product}"

    @derived
    def moves(self) -> tuple[MoveLanes, MoveLanes, MoveLanes]:
        """The kernels that separate X, separate Z (if there is one), and join the results."""
        work = self.product.work
        each = (
            (work.source, work.contracted, False),
            (work.output, work.produced, False),
            (work.output, work.produced, True),
        )
        part, part_z, join = (
            MoveLanes(math=work.math, element=element, own=own, lanes=work.lanes, join=joins)
            for element, own, joins in each
        )
        return part, part_z, join

    @property
    def parts(self) -> tuple[Runnable, ...]:
        *pack, product = super().parts
        part, part_z, join = self.moves
        return *pack, part, part_z, product, join

    def steps(self, step: Step) -> tuple[Step, ...]:
        *pack, product = super().steps(step)
        sections, (part, part_z, join) = self.product.work.sections, self.moves
        return (
            *pack,
            part.step(f"part_{step.entry}", sections),
            # Most calls have no Z, so its bytes are not counted.
            part_z.step(f"part_z_{step.entry}", 0),
            product,
            join.step(f"join_{step.entry}", sections),
        )

    def seconds(self, size: int, target: Target) -> float:
        work, rows = self.product.work, size * self.product.work.sections
        moved = 2 * (work.contracted * work.source.bytes + work.produced * work.output.bytes)
        moving = moved * rows * work.lanes / memory_rate(target) + 2 * _CALL / hertz(target)
        return self.product.seconds(rows, target) + moving

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """Bytes of the packed weights, and of the separated lanes of X and Y."""
        return self.packed_bytes + self._rows_at_once(size).end

    def _rows_at_once(self, rows: int) -> _Rows:
        part, _, join = self.moves
        matrices = self.product.work.sections * part.lanes  # Vectors of `own` elements in a row.
        sizes = [(item.own, item.element.bytes) for item in (part, join)]
        of_row = sum(matrices * own * size for own, size in sizes)
        most = max(1, _MOST_WORKSPACE // (of_row * _ROWS)) * _ROWS
        launches = operands.cover(rows, most)
        together = min(rows, operands.round_up(operands.cover(rows, launches), _ROWS))
        at, places = 0, []
        for own, size in sizes:
            places.append(Apart(at, matrices * own, part.lanes * own, own))
            at += operands.round_up(together * matrices * own * size, 256)
        return _Rows(together, places[0], places[1], at)

    def launches(self, problem: KSparseProblem, target: Target) -> tuple[Launch, ...]:
        packs, contraction = self.packed(problem, target)
        rows, part, begin = problem.rows, self._rows_at_once(problem.rows), self.packed_bytes
        begin += problem.workspace
        x, y = (replace(it, pointer=it.pointer + begin) for it in (part.x, part.y))
        z = y if problem.z else Apart(0, 0, 0, 0)
        views = {"x": _view(x, "contracted"), "y": _view(y, "produced"), "z": _view(z, "produced")}
        contraction = replace(contraction, views={**contraction.views, **views})
        to_move = ((_PART, problem.x, x), (_PART_Z, problem.z, y), (_JOIN, problem.y, y))
        found = [*packs]
        for first in range(0, rows, part.rows):
            count = min(part.rows, rows - first)
            here = replace(contraction, extents={**contraction.extents, "row": (count, 1, 1)})
            of_rows = {"first": first, "rows": count, "sections": self.product.work.sections}
            *moves, join = (
                self.launches_of(place, LanesProblem(apart=there, together=it, **of_rows), target)
                for place, it, there in to_move
                if it is not None
            )
            found += [*itertools.chain(*moves), *self.launches_of(_PRODUCT, here, target), *join]
        return tuple(found)


def _view(apart: Apart, own: str) -> View:
    strides = {
        "row": (apart.row, 0, 0),
        own: (1,),
        "lane": (apart.lane,),
        "section": (apart.section, 0, 0, 0),
    }
    return View(pointer=apart.pointer, strides=strides)
