"""Sums by `gradient_group`: many rows on sm_90a, in 16 bits; lanes come apart first."""

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
from kronop.families.ksparse.cuda.lanes import Apart, MoveLanes
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass, derived
from kronop.target import Target

TEAM, TEAM_ROWS = 128, 64
# Elements of a line of 128 bytes, and lines that a team copies at once.
LINE, _TEAM_LINES = 64, 16
# Registers of a thread that copies, and of one that multiplies, by (teams that multiply, that
# copy): 65536 in all. One team has what ptxas gives it.
# NOTE: measured: a second team of copies never costs time, and three teams have no room for one.
REGISTERS = {(1, 2): (0, 168), (2, 2): (64, 192), (3, 1): (104, 136)}
# What addresses and loops take besides sums; sums of a thread.
_OTHERS, _MOST_SUMS = 40, 128
# NOTE: ptxas 13.0 wants more than 128 registers at the start of a kernel with products of 256.
_MOST_WIDE, _MOST_WIDE_OF_FOUR = 256, 192
# Measured with ptxas 13.0: addresses of more copies of a thread for a stage are spilled.
_MOST_COPIES = 24
_BARRIER = 8
# Bytes of lanes that are apart at once; further rows follow in further launches, of so many rows
# or a multiple.
_MOST_APART, _ROWS = 1 << 30, 512
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class _Call:
    """How a call is cut.

    Attributes:
        parts: (rows, shares) of each launch of sums, in their order.
        at: bytes of the workspace before lanes that are apart, of X and of G.
        end: bytes of the workspace.
    """

    parts: tuple[tuple[int, int], ...]
    at: tuple[int, int]
    end: int


@dataclass(frozen=True, slots=True)
class _Operand:
    """Where X or G is, strides in elements; `matrix` those of (lead, group, lane)."""

    pointer: int
    own: int
    row: int
    matrix: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class GradientGroup(GradientSums):
    """What a block takes at once.

    Attributes:
        teams: teams of four warps that multiply, each with its own indices p.
        team_p: how many times 64 indices p a team has.
        q: indices q, of all teams.
        k: rows of a stage.
        stages: those that are on their way or in use.
        copiers: teams that copy.
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
        """Gradients that have nothing in common."""
        a, _, _, d = self.work.pattern
        return self.work.lead * a * d

    @property
    def lanes(self) -> int:
        """Those that are brought apart first; 1 where none are."""
        return 1 if self.work.by_rows else self.work.pattern[3]

    @derived
    def stage_bytes(self) -> int:
        """Bytes of a stage, with what is empty: whole lines, or whole passes of copies."""
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
        """Those that bring lanes of X and of G apart, where there are several; then the sums."""
        found = GradientSums.steps(self, target)
        if self.lanes == 1:
            return found
        (a, b, c, d), element = self.work.pattern, self.work.element
        moves = (
            Step(
                entry=f"part_{name}_gradient_{element.short}_{own}x{d}_{target.arch}",
                bytes_per_row=2 * a * own * d * element.bytes,
                operations_per_row=0,
                note=str(move),
                design=move,
            )
            for name, own, move in (("x", c, self._mover(c)), ("g", b, self._mover(b)))
        )
        return *moves, *found

    def _mover(self, own: int) -> MoveLanes:
        """What brings lanes of an operand apart."""
        work = self.work
        return MoveLanes(
            math=work.math, element=work.element, own=own, lanes=self.lanes, join=False
        )

    def workspace_bytes(self, rows: int, target: Target) -> int:
        return self._call(rows, target).end

    def _call(self, rows: int, target: Target) -> _Call:
        """How a call for so many rows is cut."""
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
        """Of one share."""
        return 4 * self.products * self.work.p * self.work.q

    def launches(
        self, problem: KSparseGradientProblem, target: Target
    ) -> tuple[tuple[Launch, ...], int]:
        """Lanes apart and sums, part after part of the rows."""
        call, sources = self._call(problem.rows, target), (problem.x, problem.g)
        sizes = (self.work.q, self.work.p)
        found: list[Launch] = []
        first = done = 0
        for rows, count in call.parts:
            if self.lanes > 1:
                moved = [
                    self._move(index, (first, rows), own, source, to)
                    for index, (own, source, to) in enumerate(
                        zip(sizes, sources, (problem.workspace + at for at in call.at), strict=True)
                    )
                ]
                found += [launch for launch, _ in moved]
                x, g = (operand for _, operand in moved)
            else:
                x, g = map(self._in_place, sources, sizes)
            partial = problem.workspace + done * self._results_bytes
            at = 2 if self.lanes > 1 else 0
            found.append(self._launch(at, (x, g), rows, count, partial, target))
            first, done = first + rows, done + count
        return tuple(found), done

    def _in_place(self, item: StridedMatrix, own: int) -> _Operand:
        """X or G as it is in memory."""
        d = self.work.pattern[3]
        lead = item.batch[0] if item.batch else 0
        matrix = (lead, own * d * item.column, item.column)
        return _Operand(item.pointer, d * item.column, item.row, matrix)

    def _move(
        self, index: int, rows: tuple[int, int], own: int, source: StridedMatrix, to: int
    ) -> tuple[Launch, _Operand]:
        """The launch that brings lanes of (first, rows) apart, and where they are then."""
        a, _, _, d = self.work.pattern
        apart = Apart(to, a * d * own, d * own, own)
        launch = self._mover(own).launch(index, *rows, a, apart, source)
        return launch, _Operand(to, 1, apart.row, (0, apart.group, apart.lane))

    def _launch(
        self,
        index: int,
        sources: tuple[_Operand, _Operand],
        rows: int,
        shares: int,
        partial: int,
        target: Target,
    ) -> Launch:
        a, b, c, d = self.work.pattern
        x, g = sources
        values: dict[str, int | tuple[int, ...]] = {
            "x": x.pointer,
            "g": g.pointer,
            "partial": partial,
            "rows": rows,
            "shares": shares,
            "x_own": x.own,
            "g_own": g.own,
            "x_row": x.row,
            "g_row": g.row,
            "matrix": (self.work.lead, a, d),
            "x_matrix": x.matrix,
            "g_matrix": g.matrix,
        }
        tiles = operands.cover(b, self.p) * operands.cover(c, self.q)
        blocks = min(target.cores, tiles * shares * self.products)
        return operands.make_launch(index, self, blocks, values)


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
