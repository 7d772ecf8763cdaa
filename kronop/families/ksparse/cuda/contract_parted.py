"""A contraction whose lanes are brought apart first and together again after.

Where many lanes lie side by side in memory, every access to a few of them brings little. Moving all
of them is two more passes through memory, in whole lines; between them are products of one lane.
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
from kronop.emit.cuda.machine import MEMORY_BYTES_PER_CYCLE
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.cuda import lanes
from kronop.families.ksparse.cuda.lanes import MoveLanes
from kronop.frozen import dataclass
from kronop.target import Target

# Bytes of lanes that are apart at once; further rows follow in further launches.
_MOST_WORKSPACE = 256 << 20
# Rows of a launch are multiples of all tiles.
_ROWS = 512
# Places of the steps, from the end of all.
_PART, _PART_Z, _PRODUCT, _JOIN = -4, -3, -2, -1
# Cycles of a launch of a pass through memory.
_CALL = 3500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Lanes apart, products, lanes together.

    Attributes:
        work: with its lanes side by side.
        product: what multiplies lanes that are apart.
    """

    work: Contraction
    product: GroupContract

    def __str__(self) -> str:
        return f"lanes apart, {self.product}"

    def cost(self, rows: int, target: Target) -> float:
        """As that of a contraction."""
        from kronop.emit.cuda.contraction import cost, group_cost

        work, took = self.work, group_cost.cycles(self.product, rows, target)
        moved = 2 * (work.contracted * work.source.bytes + work.produced * work.output.bytes)
        took += moved * rows * work.lanes / (target.cores * MEMORY_BYTES_PER_CYCLE) + 2 * _CALL
        return cost.of_cycles(work, rows, took, target)

    def moves(self) -> dict[str, MoveLanes]:
        """X apart, Z apart where there is one, results together."""
        work = self.work

        def move(element: DataType, own: int, join: bool) -> MoveLanes:
            return MoveLanes(math=work.math, element=element, own=own, lanes=work.lanes, join=join)

        return {
            "part": move(work.source, work.contracted, False),
            "part_z": move(work.output, work.produced, False),
            "join": move(work.output, work.produced, True),
        }

    def steps(self, step: Step) -> tuple[Step, ...]:
        """All steps.

        Args:
            step: that of the products.
        """

        def move(name: str, design: MoveLanes) -> Step:
            # There is seldom a Z.
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
    """The products between: one lane after the other."""
    return replace(
        work,
        x_order=Order.Own,
        w_order=Order.Own,
        y_order=Order.Own,
        x_alignment=operands.vector_of(work.source),
        y_alignment=operands.vector_of(work.output),
    )


def _serves(work: Contraction, target: Target) -> bool:
    """Whether lanes are side by side, and there is such a kernel for them."""
    return (
        serves(work, target)
        and (work.x_order, work.y_order) == (Order.Lanes, Order.Lanes)
        and work.output.bytes in (2, 4)
        and work.contracted % operands.vector_of(work.source) == 0
        and work.produced % operands.vector_of(work.output) == 0
        and work.lanes <= lanes.MOST_LANES
    )


def proposed(work: Contraction, target: Target, given: TileDescription | None) -> list[Parted]:
    """Those that fit, in no order; none where lanes are not worth moving."""
    from kronop.emit.cuda.contraction import group_choice

    if work.splits is None or not _serves(work, target):
        return []
    return [
        Parted(work=work, product=product)
        for product in group_choice.proposed(product_of(work), target, given)
        if product.status(target)
    ]


def is_parted(plan: Plan) -> bool:
    """Whether this is a plan of these steps."""
    return isinstance(plan.steps[-1].design, MoveLanes)


def _moves(plan: Plan) -> Sequence[MoveLanes]:
    """Those of X, of Z and of results."""
    found = [plan.steps[place].design for place in (_PART, _PART_Z, _JOIN)]
    return [item for item in found if isinstance(item, MoveLanes)]


@dataclass(frozen=True, slots=True)
class _Room:
    """Rows of a launch, and where they are apart: addresses from the end of the weights on."""

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
    """Bytes of X and Y with lanes apart; none of other plans."""
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
    """Launches for X, Z and Y (`matrices` x, z, y) with weights that are in order (`views` w)."""
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
