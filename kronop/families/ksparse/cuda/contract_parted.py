"""A contraction whose lanes are brought apart first and together again after.

Where many lanes lie side by side in memory, every access to a few of them brings little. Moving all
of them is two more passes through memory, in whole lines; between them are products of one lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import (
    contract_group,
    contract_group_choice,
    contract_group_cost,
    contract_group_step,
    operands,
)
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.cuda.contract_cost import of_cycles
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.cuda.contract_step import contract_launch, contract_step
from kronop.emit.design import Constant
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.cuda import lanes
from kronop.target import Target

# Bytes of lanes that are apart at once; further rows follow in further launches.
_MOST_WORKSPACE = 256 << 20
# Rows of a launch are multiples of all tiles.
_ROWS = 512
# Places of the steps, from the end of all.
_PART, _PART_Z, _PRODUCT, _JOIN = -4, -3, -2, -1
# A pass through memory, in bytes a cycle of one multiprocessor (3.7 TB/s), and cycles of a launch.
_MEMORY, _CALL = 16.0, 3500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedTile:
    """Lanes apart, products in such tiles, lanes together.

    Attributes:
        product: what a block of the products takes.
    """

    product: GroupTile

    @property
    def threads(self) -> int:
        return self.product.threads

    def __str__(self) -> str:
        return f"lanes apart, {self.product}"


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


def serves(work: Contraction, target: Target) -> bool:
    """Whether lanes are side by side, and there is such a kernel for them."""
    return (
        contract_group.serves(work, target)
        and (work.x_order, work.y_order) == (Order.Lanes, Order.Lanes)
        and work.output.bytes in (2, 4)
        and work.contracted % operands.vector_of(work.source) == 0
        and work.produced % operands.vector_of(work.output) == 0
        and work.lanes <= lanes.MOST_LANES
    )


def cost(work: Contraction, tile: PartedTile, splits: bool, target: Target) -> float:
    """As in contract_cost: bytes of memory traffic for each element of X."""
    inner = product_of(work)
    packs = contract_group.packs_before(inner, tile.product)
    took = contract_group_cost.cycles(inner, tile.product, splits, packs, target)
    moved = 2 * (work.contracted * work.source.bytes + work.produced * work.output.bytes)
    took += moved * work.rows * work.lanes / (target.cores * _MEMORY) + 2 * _CALL
    return of_cycles(work, took, target)


def candidates(
    work: Contraction, splits: bool, target: Target, given: TileDescription | None
) -> list[tuple[float, PartedTile]]:
    """Tiles that fit with their costs, in no order; none where this does not serve."""
    if not serves(work, target):
        return []
    inner = product_of(work)
    found = []
    for product in contract_group_choice.proposed(inner, splits, target, given):
        if contract_group.fits(inner, product, splits, target):
            tile = PartedTile(product=product)
            found.append((cost(work, tile, splits, target), tile))
    return found


def steps(
    math: MathInstruction,
    work: Contraction,
    tile: PartedTile,
    splits: bool,
    epilogue: Epilogue,
    target: Target,
    *,
    entry: str,
    note: str,
    launch: tuple[tuple[str, Constant], ...],
    traffic: tuple[int, int],
    groups: int,
) -> tuple[Step, ...]:
    """Weights packed; X apart, Z apart where there is one, products, results together."""

    def move(element: DataType, own: int, name: str) -> Step:
        # There is seldom a Z.
        moved = 0 if name == "part_z" else 2 * groups * own * work.lanes * element.bytes
        return lanes.step(
            math,
            element,
            own,
            work.lanes,
            join=name == "join",
            entry=f"{name}_{entry}",
            traffic=moved,
        )

    product = contract_step(
        math,
        product_of(work),
        tile.product,
        epilogue,
        target,
        entry=entry,
        note=note,
        launch=(*launch, ("workspace", _MOST_WORKSPACE)),
        traffic=traffic,
    )
    pack = contract_group_step.pack_step(math, work, tile.product, splits, target, entry)
    return (
        *(() if contract_group.packs(product_of(work), tile.product) else (pack,)),
        move(work.source, work.contracted, "part"),
        move(work.output, work.produced, "part_z"),
        product,
        move(work.output, work.produced, "join"),
    )


def is_parted(plan: Plan) -> bool:
    """Whether this is a plan of these steps."""
    return plan.steps[-1].template == "kronop::move_lanes"


@dataclass(frozen=True, slots=True)
class _Room:
    """Rows of a launch, and where they are apart: addresses from the end of the weights on."""

    rows: int
    x: lanes.Apart
    y: lanes.Apart
    end: int


def _room(plan: Plan, rows: int, groups: int) -> _Room:
    part, _, product, join = plan.steps[_PART:]
    of_lanes = operands.integer(part, "kLanes")
    sizes = [
        (operands.integer(step, "kOwn"), operands.element_of(step, "Input").bytes)
        for step in (part, join)
    ]
    of_row = sum(groups * of_lanes * own * size for own, size in sizes)
    most = max(1, operands.integer(product, "workspace") // (of_row * _ROWS)) * _ROWS
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
    for first in range(0, rows, room.rows):
        count = min(room.rows, rows - first)
        here = {**extents, "row": (count, 1, 1)}
        moves = [
            lanes.launch(at + step, plan.steps[step], first, count, groups, apart, matrix)
            for step, name, apart in ((_PART, "x", x), (_PART_Z, "z", y), (_JOIN, "y", y))
            if (matrix := matrices[name]) is not None
        ]
        product = contract_launch(at + _PRODUCT, plan.steps[_PRODUCT], views, here, scalars)
        found += (*moves[:-1], product, moves[-1])
    return tuple(found)


def _view(apart: lanes.Apart, own: str) -> operands.View:
    strides = {
        "row": (apart.row, 0, 0),
        own: (1,),
        "lane": (apart.lane,),
        "group": (apart.group, 0, 0, 0),
    }
    return operands.View(pointer=apart.pointer, strides=strides)
