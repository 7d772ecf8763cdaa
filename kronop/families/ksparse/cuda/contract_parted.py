"""A contraction whose lanes are separated first, and joined again afterwards.

If neighbours in memory belong to different lanes, a product that takes a few lanes uses a small
part of every line it reads. Separating and joining the lanes reads and writes X and Y once more,
in whole lines; in between, each product has one lane, whose elements are contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.group import GroupContract, serves
from kronop.emit.cuda.contraction.pack import pack_step
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.machine import memory_bytes_per_cycle
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.cuda import lanes
from kronop.families.ksparse.cuda.lanes import MoveLanes
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target

# Most bytes of separated lanes in the workspace; further rows follow in further launches.
_MOST_WORKSPACE = 256 << 20
# Rows of a launch are a multiple of this, and so of every tile's rows.
_ROWS = 512
# Places of these steps in a plan, counted from its end.
_PART, _PART_Z, _PRODUCT, _JOIN = -4, -3, -2, -1
# Cycles of a launch that moves lanes, besides its memory traffic.
_CALL = 3500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Three kinds of steps: separate lanes, multiply, join lanes.

    Attributes:
        work: the contraction of the whole operation, with interleaved lanes.
        product: the design that multiplies separated lanes.
    """

    work: Contraction
    product: GroupContract

    def __str__(self) -> str:
        return f"lanes apart, {self.product}"

    def cost(self, rows: int, target: Target) -> float:
        """The cost, in the unit of a contraction's."""
        imported("kronop.emit.cuda.contraction.cost")
        imported("kronop.emit.cuda.contraction.group_cost")
        from kronop.emit.cuda.contraction import cost, group_cost

        work, took = self.work, group_cost.cycles(self.product, rows, target)
        moved = 2 * (work.contracted * work.source.bytes + work.produced * work.output.bytes)
        took += (
            moved * rows * work.lanes / (target.cores * memory_bytes_per_cycle(target)) + 2 * _CALL
        )
        return cost.of_cycles(work, rows, took, target)

    def moves(self) -> dict[str, MoveLanes]:
        """The steps that separate X, separate Z (if there is one), and join the results."""
        work = self.work

        def move(element: DataType, own: int, join: bool) -> MoveLanes:
            return MoveLanes(math=work.math, element=element, own=own, lanes=work.lanes, join=join)

        return {
            "part": move(work.source, work.contracted, False),
            "part_z": move(work.output, work.produced, False),
            "join": move(work.output, work.produced, True),
        }

    def steps(self, step: Step) -> tuple[Step, ...]:
        """All steps in order.

        Args:
            step: the step of the products.
        """

        def move(name: str, design: MoveLanes) -> Step:
            # The bytes leave out moving Z, because most calls have none.
            of_row = 2 * self.work.groups * design.own * design.lanes * design.element.bytes
            return Step(
                entry=f"{name}_{step.entry}",
                design=design,
                bytes_per_row=0 if name == "part_z" else of_row,
                operations_per_row=0,
                note=str(design),
            )

        *before, join = (move(name, design) for name, design in self.moves().items())
        pack = (pack_step(self.product, step.entry),) if self.product.takes_packed else ()
        return *pack, *before, step, join


def product_of(work: Contraction) -> Contraction:
    """The contraction between, in which each lane is a product of its own."""
    return replace(
        work,
        x_order=Order.Own,
        w_order=Order.Own,
        y_order=Order.Own,
        x_alignment=operands.vector_of(work.source),
        y_alignment=operands.vector_of(work.output),
    )


def _serves(work: Contraction, target: Target) -> bool:
    """Whether lanes are interleaved in memory, and the kernel that moves them serves them."""
    return (
        serves(work, target)
        and (work.x_order, work.y_order) == (Order.Lanes, Order.Lanes)
        and work.output.bytes in (2, 4)
        and work.contracted % operands.vector_of(work.source) == 0
        and work.produced % operands.vector_of(work.output) == 0
        and work.lanes <= lanes.MOST_LANES
    )


def proposed(work: Contraction, target: Target, given: TileDescription | None) -> list[Parted]:
    """The designs that fit, in no order; none if lanes are not worth moving."""
    imported("kronop.emit.cuda.contraction.group_choice")
    from kronop.emit.cuda.contraction import group_choice

    if work.splits is None or not _serves(work, target):
        return []
    return [
        Parted(work=work, product=product)
        for product in group_choice.proposed(product_of(work), target, given)
        if product.status(target)
    ]


def is_parted(plan: Plan) -> bool:
    """Whether a plan separates and joins lanes."""
    return isinstance(plan.steps[-1].design, MoveLanes)


def _moves(plan: Plan) -> Sequence[MoveLanes]:
    """The designs that move X, Z and the results."""
    found = [plan.steps[place].design for place in (_PART, _PART_Z, _JOIN)]
    return [item for item in found if isinstance(item, MoveLanes)]


@dataclass(frozen=True, slots=True)
class _Room:
    """The rows of a launch, and where the workspace holds their separated lanes: addresses count
    from the end of the packed weights."""

    rows: int
    x: lanes.Apart
    y: lanes.Apart
    end: int


def _room(plan: Plan, rows: int, groups: int) -> _Room:
    part, _, join = _moves(plan)
    sizes = [(item.own, item.element.bytes) for item in (part, join)]
    of_lanes = part.lanes
    of_row = sum(groups * of_lanes * own * size for own, size in sizes)
    most = max(1, _MOST_WORKSPACE // (of_row * _ROWS)) * _ROWS
    launches = operands.cover(rows, most)
    together = min(rows, operands.round_up(operands.cover(rows, launches), _ROWS))
    at, places = 0, []
    for own, size in sizes:
        places.append(lanes.Apart(at, groups * of_lanes * own, of_lanes * own, own))
        at += operands.round_up(together * groups * of_lanes * own * size, 256)
    return _Room(together, places[0], places[1], at)


def workspace_bytes(plan: Plan, rows: int, groups: int) -> int:
    """Bytes of the separated lanes of X and Y; 0 for plans that don't move lanes."""
    return _room(plan, rows, groups).end if rows and is_parted(plan) else 0


def launches(
    plan: Plan,
    matrices: Mapping[str, StridedMatrix | None],
    rows: int,
    views: Mapping[str, operands.View],
    extents: Mapping[str, tuple[int, ...]],
    scalars: tuple[float, ...],
    workspace: int,
) -> tuple[Launch, ...]:
    """The launches for X, Z and Y (`matrices` x, z, y) and packed weights (`views` w)."""
    groups = extents["group"][0]
    room = _room(plan, rows, groups)
    x = replace(room.x, pointer=room.x.pointer + workspace)
    y = replace(room.y, pointer=room.y.pointer + workspace)
    views = {**views, "x": _view(x, "contracted"), "y": _view(y, "produced")}
    views["z"] = _view(y if matrices["z"] else lanes.Apart(0, 0, 0, 0), "produced")
    found: list[Launch] = []
    at = len(plan.steps)
    product = plan.steps[_PRODUCT].design
    assert isinstance(product, GroupContract)
    to_move = [
        (at + place, design, matrices[name], apart)
        for place, design, name, apart in zip(
            (_PART, _PART_Z, _JOIN), _moves(plan), ("x", "z", "y"), (x, y, y), strict=True
        )
    ]
    for first in range(0, rows, room.rows):
        count = min(room.rows, rows - first)
        here = {**extents, "row": (count, 1, 1)}
        moves = [
            design.launch(index, first, count, groups, apart, matrix)
            for index, design, matrix, apart in to_move
            if matrix is not None
        ]
        launch = product.launch(at + _PRODUCT, plan.target, views, here, scalars)
        found += (*moves[:-1], launch, moves[-1])
    return tuple(found)


def _view(apart: lanes.Apart, own: str) -> operands.View:
    strides = {
        "row": (apart.row, 0, 0),
        own: (1,),
        "lane": (apart.lane,),
        "group": (apart.group, 0, 0, 0),
    }
    return operands.View(pointer=apart.pointer, strides=strides)
