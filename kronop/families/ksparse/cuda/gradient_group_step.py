"""Steps and launches of `gradient_group`: lanes apart where there are some, then sums."""

from __future__ import annotations

from dataclasses import dataclass

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Flat
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.cuda import gradient_group, gradient_group_cost, lanes
from kronop.families.ksparse.cuda.gradient_group import GradientGroupTile, GroupSums
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.target import Target

TEMPLATE = "kronop::gradient_group"
# Bytes of lanes that are apart at once; further rows follow in further launches, of so many rows
# or a multiple.
_MOST_APART, _ROWS = 1 << 30, 512
_ALIGNMENT = 256


def sum_step(
    description: KSparseGradientDescription,
    work: GroupSums,
    tile: GradientGroupTile,
    target: Target,
) -> Step:
    """The step that sums up."""
    (a, b, c, d), element = description.pattern, description.X.element
    columns = a * (b + c) * d
    order = "last" if work.along_sums else "first"
    whole = Scalar.INT64
    return Step(
        entry=f"gradient_group_{element.short}_{b}x{c}_{order}_{target.arch}",
        bytes_per_row=columns * element.bytes,
        operations_per_row=2 * a * b * c * d,
        note=f"sums over rows of {columns} elements, tiles of {tile}",
        design=Flat(
            header="kronop/gradient_group.cuh",
            template=TEMPLATE,
            parameters="kronop::GradientGroupParameters",
            types=operands.element_types(description.math, element, description.Y.element, None),
            constants=gradient_group.constants(work, tile),
            signature=KernelSignature(
                "GradientGroupParameters",
                (
                    *(Field(name, Scalar.POINTER) for name in ("x", "g", "partial")),
                    *(Field(name, whole) for name in ("rows", "shares")),
                    *(Field(name, whole) for name in ("x_own", "g_own", "x_row", "g_row")),
                    *(Field(name, whole, 3) for name in ("matrix", "x_matrix", "g_matrix")),
                ),
            ),
            epilogue=None,
            threads=tile.threads,
            shared_bytes=gradient_group.shared_bytes(work, tile),
            launch=(
                ("pattern", (a, b, c, d)),
                ("lead", description.products or 1),
                ("lanes", work.lanes),
            ),
        ),
    )


def _place(plan: Plan) -> int:
    return next(at for at, step in enumerate(plan.steps) if step.template == TEMPLATE)


def is_grouped(plan: Plan) -> bool:
    """Whether this is a plan of these steps."""
    return any(step.template == TEMPLATE for step in plan.steps)


def _planned(step: Step) -> tuple[GroupSums, GradientGroupTile]:
    """What the step was made of."""
    a, _, _, d = operands.integers(step, "pattern")
    whole = {name: operands.integer(step, name) for name, _ in step.constants}
    work = GroupSums(
        p=whole["kP"],
        q=whole["kQ"],
        products=operands.integer(step, "lead") * a * d,
        lanes=operands.integer(step, "lanes"),
        along_sums=bool(step.constant("kAlongSums")),
        element=operands.element_of(step, "Input"),
    )
    tile = GradientGroupTile(
        teams=whole["kTeams"],
        team_p=whole["kTeamP"],
        q=whole["kTileQ"],
        k=whole["kTileK"],
        stages=whole["kStages"],
        copiers=whole["kCopyThreads"] // gradient_group.TEAM,
    )
    return work, tile


def move_steps(
    description: KSparseGradientDescription, work: GroupSums, target: Target
) -> tuple[Step, ...]:
    """The steps that bring lanes of X and of G apart."""
    if work.lanes == 1:
        return ()
    a, b, c, d = description.pattern
    element = work.element
    return tuple(
        lanes.step(
            description.math,
            element,
            own,
            d,
            join=False,
            entry=f"part_{name}_gradient_{element.short}_{own}x{d}_{target.arch}",
            traffic=2 * a * own * d * element.bytes,
        )
        for name, own in (("x", c), ("g", b))
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """What a call is made of.

    Attributes:
        parts: (rows, shares) of each launch of sums, in their order.
        at: bytes of the workspace before lanes that are apart, and of those of X.
        end: bytes of the workspace.
    """

    parts: tuple[tuple[int, int], ...]
    at: tuple[int, int]
    end: int

    @property
    def count(self) -> int:
        """Shares of all launches."""
        return sum(count for _, count in self.parts)


def shares_of(plan: Plan, rows: int) -> Shares:
    """How a call for so many rows is cut."""
    work, tile = _planned(plan.steps[_place(plan)])
    sizes = [work.products * own * work.element.bytes for own in (work.q, work.p)]
    together = rows
    if work.lanes > 1:
        most = max(1, _MOST_APART // (sum(sizes) * _ROWS)) * _ROWS
        calls = operands.cover(max(1, rows), most)
        together = min(rows, operands.round_up(operands.cover(rows, calls), _ROWS))
    parts = []
    for first in range(0, rows, max(1, together)):
        here = min(together, rows - first)
        count = gradient_group_cost.shares(work, tile, here, plan.target.cores)
        parts.append((here, count))
    results = max(1, sum(count for _, count in parts)) * _results_bytes(work)
    partial = operands.round_up(results, _ALIGNMENT)
    if work.lanes == 1:
        return Shares(tuple(parts), (partial, partial), partial)
    x, g = (operands.round_up(together * size, _ALIGNMENT) for size in sizes)
    return Shares(tuple(parts), (partial, partial + x), partial + x + g)


def _results_bytes(work: GroupSums) -> int:
    return 4 * work.products * work.p * work.q


def launches(plan: Plan, problem: KSparseGradientProblem, cut: Shares) -> tuple[Launch, ...]:
    """Lanes apart and sums, part after part of the rows."""
    at = _place(plan)
    step = plan.steps[at]
    work, _ = _planned(step)
    found: list[Launch] = []
    first = done = 0
    for rows, count in cut.parts:
        if work.lanes > 1:
            moved = [
                _move(plan.steps[index], index, first, rows, step, matrix, problem.workspace + room)
                for index, (matrix, room) in enumerate(
                    zip((problem.x, problem.g), cut.at, strict=True)
                )
            ]
            found += [launch for launch, _ in moved]
            x, g = (operand for _, operand in moved)
        else:
            x, g = _Operand.of(problem.x, step, work.q), _Operand.of(problem.g, step, work.p)
        partial = problem.workspace + done * _results_bytes(work)
        found.append(_sum_launch(step, at, (x, g), rows, count, partial, plan.target))
        first, done = first + rows, done + count
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Operand:
    """Where X or G is, strides in elements; `matrix` those of (lead, group, lane)."""

    pointer: int
    own: int
    row: int
    matrix: tuple[int, int, int]

    @classmethod
    def of(cls, item: StridedMatrix, step: Step, own: int) -> _Operand:
        """As it is in memory."""
        _, _, _, d = operands.integers(step, "pattern")
        lead = item.batch[0] if item.batch else 0
        matrix = (lead, own * d * item.column, item.column)
        return cls(item.pointer, d * item.column, item.row, matrix)


def _move(
    step: Step, index: int, first: int, rows: int, sums: Step, matrix: StridedMatrix, to: int
) -> tuple[Launch, _Operand]:
    """The launch that brings lanes of some rows apart, and where they are then."""
    a, _, _, d = operands.integers(sums, "pattern")
    own = operands.integer(step, "kOwn")
    apart = lanes.Apart(to, a * d * own, d * own, own)
    launch = lanes.launch(index, step, first, rows, a, apart, matrix)
    return launch, _Operand(to, 1, apart.row, (0, apart.group, apart.lane))


def _sum_launch(
    step: Step,
    index: int,
    operands_of: tuple[_Operand, _Operand],
    rows: int,
    shares: int,
    partial: int,
    target: Target,
) -> Launch:
    a, b, c, d = operands.integers(step, "pattern")
    lead = operands.integer(step, "lead")
    x, g = operands_of
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
        "matrix": (lead, a, d),
        "x_matrix": x.matrix,
        "g_matrix": g.matrix,
    }
    tiles = operands.cover(b, operands.integer(step, "kTileP"))
    tiles *= operands.cover(c, operands.integer(step, "kTileQ"))
    blocks = min(target.cores, tiles * shares * lead * a * d)
    return operands.make_launch(index, step, blocks, values)
