"""Sums by `gradient_warp_group` (wgmma): for many rows of 16-bit operands on sm_90a.

Teams are warp groups. If the operands have several lanes, these are separated first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Instantiation, members, named, package_folder
from kronop.emit.plan import Step
from kronop.families.ksparse.cuda.gradient_room import REGISTERS, TEAM, GradientRoom
from kronop.families.ksparse.cuda.lanes import Apart, LanesProblem, MoveLanes
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass, derived
from kronop.late import imported
from kronop.target import Target

# Most bytes of separated lanes in the workspace; further rows follow in further launches, whose
# rows are a multiple of _ROWS.
_MOST_APART, _ROWS = 1 << 30, 512
_ALIGNMENT = 256
_SIGNATURE = KernelSignature(
    "GradientWarpGroupParameters",
    (
        *(Field(name, Scalar.POINTER) for name in ("x", "g", "partial")),
        *(Field(name, Scalar.INT64) for name in ("rows", "shares")),
        *(Field(name, Scalar.INT64) for name in ("x_own", "g_own", "x_row", "g_row")),
        *(Field(name, Scalar.INT64, 3) for name in ("matrix", "x_matrix", "g_matrix")),
    ),
)


@dataclass(frozen=True, slots=True)
class _Call:
    """How a call is divided into launches, and its workspace.

    Attributes:
        parts: (rows, shares) of each launch of sums in order.
        at: the byte offsets of the separated lanes of X and of G in the workspace.
        end: bytes of the workspace.
    """

    parts: tuple[tuple[int, int], ...]
    at: tuple[int, int]
    end: int


@dataclass(frozen=True, slots=True)
class _Operand:
    """The address and strides of X or G. Strides are in elements; `matrix` has those of (lead,
    section, lane)."""

    pointer: int
    own: int
    row: int
    matrix: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpGroupProblem:
    """Rows to sum up.

    Attributes:
        x, g: operands whose first row is the first of these rows.
        shares: how many parts the rows are divided into, each with its own sums.
        partial: the address of the sums.
    """

    x: _Operand
    g: _Operand
    rows: int
    shares: int
    partial: int


@dataclass(frozen=True, kw_only=True)
class GradientWarpGroup(GradientRoom):
    """Sums by warp groups: some copy X and G to shared memory while the others multiply."""

    signature = _SIGNATURE
    lets_next_begin: ClassVar[bool] = True
    styles = ("1 teams", "2 teams", "3 teams", "along", "across", "moved")

    def style(self, target: Target) -> Iterator[str]:
        yield f"{self.teams} teams"
        yield "along" if self.work.by_rows else "across"
        if self.lanes > 1:
            yield "moved"

    @property
    def label(self) -> str:
        work = self.work
        order = "last" if work.by_rows else "first"
        return f"gradient_warp_group_{work.element.short}_{work.p}x{work.q}_{order}"

    def _cycles(self, rows: int, target: Target) -> float:
        imported("kronop.families.ksparse.cuda.gradient_warp_group_cost")
        from kronop.families.ksparse.cuda import gradient_warp_group_cost

        return gradient_warp_group_cost.cycles(self, rows, target)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gradient_warp_group.cuh",
            parameters="kronop::GradientWarpGroupParameters",
            types=self.types,
            constants=self._constants(),
            folders=(package_folder(__package__),),
        )

    def _constants(self) -> tuple[tuple[str, Constant], ...]:
        registers = REGISTERS[self.teams, self.copiers]
        return (
            ("kThreads", self.threads),
            ("kBlocks", 1),
            *named(self, "stages teams team_p"),
            *named(self.work, "p q"),
            *named(self, "p q k", "kTile"),
            ("kAlongSums", self.work.by_rows),
            ("kCopyThreads", self.copiers * TEAM),
            *zip(("kCopyRegisters", "kProductRegisters"), registers, strict=True),
            ("kBarriersAt", self.stages * self.stage_bytes),
        )

    def steps(self, target: Target) -> tuple[Step, ...]:
        a, _, _, d = self.work.pattern
        names = (f"part_{name}_gradient_{self.work.element.short}" for name in "xg")
        moves = (
            move.step(f"{name}_{move.own}x{d}_{target.arch}", a)
            for name, move in zip(names, self.movers, strict=False)
        )
        return *moves, *super().steps(target)

    @derived
    def movers(self) -> tuple[MoveLanes, ...]:
        work = self.work
        if self.lanes == 1:
            return ()
        return tuple(
            MoveLanes(math=work.math, element=work.element, own=own, lanes=self.lanes, join=False)
            for own in (work.q, work.p)
        )

    def shares(self, rows: int, target: Target) -> int:
        return sum(count for _, count in self._call(rows, target).parts)

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """Bytes of the sums of all shares, and of separated lanes."""
        return self._call(size, target).end

    def _call(self, rows: int, target: Target) -> _Call:
        """How a call for `rows` rows is divided into launches."""
        imported("kronop.families.ksparse.cuda.gradient_warp_group_cost")
        from kronop.families.ksparse.cuda import gradient_warp_group_cost

        work = self.work
        sizes = [self.products * own * work.element.bytes for own in (work.q, work.p)]
        together = rows
        if self.lanes > 1:
            most = max(1, _MOST_APART // (sum(sizes) * _ROWS)) * _ROWS
            calls = operands.cover(max(1, rows), most)
            together = min(rows, operands.round_up(operands.cover(rows, calls), _ROWS))
        parts = []
        for first in range(0, rows, max(1, together)):
            here = min(together, rows - first)
            parts.append((here, gradient_warp_group_cost.shares(self, here, target)))
        results = max(1, sum(count for _, count in parts)) * self._results_bytes
        partial = operands.round_up(results, _ALIGNMENT)
        if self.lanes == 1:
            return _Call(tuple(parts), (partial, partial), partial)
        x, g = (operands.round_up(together * size, _ALIGNMENT) for size in sizes)
        return _Call(tuple(parts), (partial, partial + x), partial + x + g)

    @property
    def _results_bytes(self) -> int:
        """Bytes of the sums of one share."""
        return 4 * self.products * self.work.p * self.work.q

    def problems(
        self, problem: KSparseGradientProblem, target: Target
    ) -> Iterator[tuple[int, LanesProblem | WarpGroupProblem]]:
        """The movers and the sums, for one part of the rows after the other."""
        call, sources = self._call(problem.rows, target), (problem.x, problem.g)
        a, b, c, d = self.work.pattern
        aparts = [
            Apart(problem.workspace + at, a * d * own, d * own, own)
            for at, own in zip(call.at, (c, b), strict=True)
        ]
        x, g = map(_apart, aparts) if self.movers else map(self._in_place, sources, (c, b))
        first, partial = 0, problem.workspace
        for rows, shares in call.parts:
            for place, apart in enumerate(aparts[: len(self.movers)]):
                yield (
                    place,
                    LanesProblem(
                        first=first, rows=rows, sections=a, apart=apart, together=sources[place]
                    ),
                )
            own = WarpGroupProblem(x=x, g=g, rows=rows, shares=shares, partial=partial)
            yield len(self.movers), own
            first, partial = first + rows, partial + shares * self._results_bytes

    def _in_place(self, item: Strided, own: int) -> _Operand:
        """X or G at its original address."""
        d = self.work.pattern[3]
        lead = item.batch[0] if item.batch else 0
        matrix = (lead, own * d * item.column, item.column)
        return _Operand(item.pointer, d * item.column, item.row, matrix)

    def launches(self, problem: WarpGroupProblem, target: Target) -> tuple[Launch, ...]:
        (a, b, c, d), x, g = self.work.pattern, problem.x, problem.g
        values: dict[str, int | tuple[int, ...]] = {
            "x": x.pointer,
            "g": g.pointer,
            **members(problem, "partial rows shares"),
            "x_own": x.own,
            "g_own": g.own,
            "x_row": x.row,
            "g_row": g.row,
            "matrix": (self.work.lead, a, d),
            "x_matrix": x.matrix,
            "g_matrix": g.matrix,
        }
        tiles = operands.cover(b, self.p) * operands.cover(c, self.q)
        blocks = min(target.cores, tiles * problem.shares * self.products)
        return (operands.make_launch(self, blocks, values),)


def _apart(item: Apart) -> _Operand:
    """X or G with separated lanes, in the workspace."""
    return _Operand(item.pointer, 1, item.row, (0, item.section, item.lane))
