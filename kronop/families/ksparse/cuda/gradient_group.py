"""Sums by `gradient_group`, with warp groups: for many rows of 16-bit operands on sm_90a.

Teams are warp groups. If the operands have several lanes, these are separated first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Instantiation
from kronop.emit.plan import Step
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.cuda.lanes import Apart, LanesProblem, MoveLanes
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass, derived
from kronop.late import imported
from kronop.target import Target

TEAM, TEAM_ROWS = 128, 64
# 16-bit elements of a line of 128 bytes, and lines that a team copies at once.
LINE, _TEAM_LINES = 64, 16
# (registers of a copying thread, of a multiplying thread) for (multiplying teams, copying teams):
# all threads share 65536. With one multiplying team, threads keep what ptxas gives them (0).
# NOTE: measured: a second copying team never costs time; with three multiplying teams, there are no
# registers for one.
REGISTERS = {(1, 2): (0, 168), (2, 2): (64, 192), (3, 1): (104, 136)}
# Registers of addresses and loops, besides the sums; and the most sums of a thread.
_OTHERS, _MOST_SUMS = 40, 128
# The most indices q of a block, and of one with four teams. NOTE: a kernel with products of 256
# starts with more than 128 registers a thread under ptxas 13.0, too many for four teams.
_MOST_WIDE, _MOST_WIDE_OF_FOUR = 256, 192
# Most copies of a thread for one stage: ptxas 13.0 spills the addresses of more.
_MOST_COPIES = 24
_BARRIER = 8
# Most bytes of separated lanes in the workspace; further rows follow in further launches, whose
# rows are a multiple of _ROWS.
_MOST_APART, _ROWS = 1 << 30, 512
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class _Call:
    """How a call is cut into launches, and its workspace.

    Attributes:
        parts: (rows, shares) of each launch of sums in order.
        at: where the workspace holds the separated lanes of X and of G, in bytes.
        end: bytes of the workspace.
    """

    parts: tuple[tuple[int, int], ...]
    at: tuple[int, int]
    end: int


@dataclass(frozen=True, slots=True)
class _Operand:
    """The place of X or G in memory. Strides are in elements; `matrix` has those of (lead, group,
    lane)."""

    pointer: int
    own: int
    row: int
    matrix: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProblem:
    """Rows to sum up.

    Attributes:
        x, g: their first row is the first of these.
        shares: how many parts the rows are divided into, each with its sums.
        partial: the address of the sums.
    """

    x: _Operand
    g: _Operand
    rows: int
    shares: int
    partial: int


@dataclass(frozen=True, kw_only=True)
class GradientGroup(GradientSums):
    """A block's tile of results and its stages.

    Attributes:
        teams: multiplying teams of four warps, each with its own indices p.
        team_p: indices p of a team, in units of 64.
        q: indices q of a block; all teams take all of them.
        k: rows of a stage.
        stages: stages of X and G in shared memory, being copied or in use.
        copiers: teams that copy X and G to shared memory.
    """

    lets_next_begin: ClassVar[bool] = True
    styles = ("1 teams", "2 teams", "3 teams", "along", "across", "moved")

    teams: int
    team_p: int
    q: int
    k: int
    stages: int
    copiers: int

    def style(self, target: Target) -> Iterator[str]:
        yield f"{self.teams} teams"
        yield "along" if self.work.by_rows else "across"
        if self.lanes > 1:
            yield "moved"

    def __str__(self) -> str:
        block = f"{self.p} x {self.q} x {self.k}, {self.stages} stages"
        return f"{block}, {self.teams} teams, {self.copiers} of copies"

    @property
    def label(self) -> str:
        work = self.work
        order = "last" if work.by_rows else "first"
        return f"gradient_group_{work.element.short}_{work.p}x{work.q}_{order}"

    @property
    def p(self) -> int:
        return TEAM_ROWS * self.team_p * self.teams

    @property
    def threads(self) -> int:
        return (self.teams + self.copiers) * TEAM

    @property
    def signature(self) -> KernelSignature:
        return _signature()

    @derived
    def products(self) -> int:
        """How many independent gradients of b x c there are."""
        a, _, _, d = self.work.pattern
        return self.work.lead * a * d

    @property
    def lanes(self) -> int:
        """How many lanes are separated first; 1 if operands are used in place."""
        return 1 if self.work.by_rows else self.work.pattern[3]

    @derived
    def stage_bytes(self) -> int:
        """Bytes of a stage, padded to whole lines, or to as many lines as all copiers take at
        once."""
        multiple = self.copiers * _TEAM_LINES if self.work.by_rows else LINE
        padded = sum(operands.round_up(size, multiple) for size in (self.p, self.q))
        return padded * self.k * self.work.element.bytes

    @property
    def shared_bytes(self) -> int:
        """Stages and barriers."""
        barriers = operands.round_up(2 * self.stages * _BARRIER, operands.VECTOR_BYTES)
        return self.stages * self.stage_bytes + barriers

    def status(self, target: Target) -> Status:
        if (self.teams, self.copiers) not in REGISTERS:
            return Status.reject(
                f"{self}: expected one of {sorted(REGISTERS)} teams that multiply and that copy"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"{self} wants {self.shared_bytes} bytes of shared memory, {target.shared_bytes}"
                " are there; use a smaller threadblock_shape or fewer stages"
            )
        copies = self.stage_bytes // (self.copiers * TEAM * operands.VECTOR_BYTES)
        if copies > _MOST_COPIES:
            return Status.reject(
                f"{self} has {copies} copies of a thread for a stage, more than it has registers"
                " for; use a smaller Tile_K"
            )
        sums = self.team_p * self.q // 2
        widest = _MOST_WIDE if self.threads < 512 else _MOST_WIDE_OF_FOUR
        most = min(_MOST_SUMS, REGISTERS[self.teams, self.copiers][1] - _OTHERS)
        if sums > most or self.q > widest:
            return Status.reject(
                f"{self} has {sums} sums of a thread and {self.q} columns, at most {most} and"
                f" {widest}; use a smaller threadblock_shape"
            )
        return Status.accept()

    def cycles(self, rows: int, target: Target) -> float:
        imported("kronop.families.ksparse.cuda.gradient_group_cost")
        from kronop.families.ksparse.cuda import gradient_group_cost

        return gradient_group_cost.cycles(self, rows, target)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="kronop/gradient_group.cuh",
            template="kronop::gradient_group",
            parameters="kronop::GradientGroupParameters",
            types=self.types,
            constants=self._constants(),
        )

    def _constants(self) -> tuple[tuple[str, Constant], ...]:
        copies, products = REGISTERS[self.teams, self.copiers]
        return (
            ("kThreads", self.threads),
            ("kBlocks", 1),
            ("kStages", self.stages),
            ("kTeams", self.teams),
            ("kTeamP", self.team_p),
            ("kP", self.work.p),
            ("kQ", self.work.q),
            ("kTileP", self.p),
            ("kTileQ", self.q),
            ("kTileK", self.k),
            ("kAlongSums", self.work.by_rows),
            ("kCopyThreads", self.copiers * TEAM),
            ("kCopyRegisters", copies),
            ("kProductRegisters", products),
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
        """How a call for `rows` rows is cut into launches."""
        imported("kronop.families.ksparse.cuda.gradient_group_cost")
        from kronop.families.ksparse.cuda import gradient_group_cost

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
            parts.append((here, gradient_group_cost.shares(self, here, target)))
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
    ) -> Iterator[tuple[int, LanesProblem | GroupProblem]]:
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
                        first=first, rows=rows, groups=a, apart=apart, together=sources[place]
                    ),
                )
            own = GroupProblem(x=x, g=g, rows=rows, shares=shares, partial=partial)
            yield len(self.movers), own
            first, partial = first + rows, partial + shares * self._results_bytes

    def _in_place(self, item: StridedMatrix, own: int) -> _Operand:
        """X or G where the caller has it."""
        d = self.work.pattern[3]
        lead = item.batch[0] if item.batch else 0
        matrix = (lead, own * d * item.column, item.column)
        return _Operand(item.pointer, d * item.column, item.row, matrix)

    def launches(self, problem: GroupProblem, target: Target) -> tuple[Launch, ...]:
        (a, b, c, d), x, g = self.work.pattern, problem.x, problem.g
        values: dict[str, int | tuple[int, ...]] = {
            "x": x.pointer,
            "g": g.pointer,
            "partial": problem.partial,
            "rows": problem.rows,
            "shares": problem.shares,
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
    """X or G with separated lanes."""
    return _Operand(item.pointer, 1, item.row, (0, item.group, item.lane))


@functools.cache
def _signature() -> KernelSignature:
    whole = Scalar.INT64
    return KernelSignature(
        "GradientGroupParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("x", "g", "partial")),
            *(Field(name, whole) for name in ("rows", "shares")),
            *(Field(name, whole) for name in ("x_own", "g_own", "x_row", "g_row")),
            *(Field(name, whole, 3) for name in ("matrix", "x_matrix", "g_matrix")),
        ),
    )
