"""The step of a contraction, on ordinary or on tensor cores, and its launch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, pow, prod

from kronop.artifacts import KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import (
    contract,
    contract_cost,
    contract_group,
    contract_group_choice,
    contract_group_cost,
    contract_group_step,
    contract_mma,
    operands,
)
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contract import Contraction, ContractTile, Order
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.cuda.contract_mma import ContractMmaTile
from kronop.emit.cuda.operands import splits_of
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Step
from kronop.target import Target

ROW_AXES, GROUP_AXES = 3, 4

# Sizes from which on the tensor cores' products are full enough to win for sure.
LEAST_OF_MMA = 16

# NOTE: 34 Kronecker-sparse problems, batch 25088, both layouts, on one H200: `contract_mma` takes
# 1.25 times its model in the median (0.9 to 3.2, once 12: small ones of 16 bits are at the
# upper end), where memory has runs of 16 bytes 1.6 to 5.3 times. The model of `contract_group` was
# fitted to the same problems.
_OVER_MODEL, _WHOLE_RUN = {2: 2.0, 4: 1.35, 8: 1.35}, 64
# Cycles of a call that their models lack, and rows from which on that was measured.
_CALL_OVER_MODEL, _MANY_ROWS = 6000.0, 8192

# Tiles that do not fit of which it is told.
MOST_REFUSED = 8

Tile = ContractTile | ContractMmaTile
# Those of rows that are one stride apart, too.
EvenTile = Tile | GroupTile


def splits(math: MathInstruction) -> bool | None:
    """Whether operands are taken as two each, as in `splits_of`; None where no tensor core does."""
    shape, accumulator = math.instruction_shape, math.element_accumulator
    if accumulator.kind == "int":
        return None
    # 8-bit floats, the only ones of depth 32, are multiplied as 16-bit ones.
    if shape in ((16, 8, 16), (16, 8, 32)) and accumulator is float32:
        return False
    return splits_of(math)


def _as_modelled(tile: Tile, cost: float) -> float:
    return cost


def candidates(
    work: Contraction,
    math: MathInstruction,
    target: Target,
    given: TileDescription | None,
    most: int,
    price: Callable[[Tile, float], float] = _as_modelled,
    limit: float = inf,
) -> tuple[list[tuple[float, Tile]], list[tuple[str, str]]]:
    """The `most` cheapest tiles that fit, cheapest first, and some that do not, with the reason.

    A given tile names its instruction: tiles of other cores do not stand in for it. `price` is what
    a modelled cost counts as; no less for a higher one. Tiles of more than `limit` may be left out.
    """
    accepted: list[tuple[float, Tile]] = []
    rejected: list[tuple[str, str]] = []
    accumulator, split = math.element_accumulator, splits(math)
    if split is not None:
        offered = list(contract_mma.proposed(work, given))
        accepted += _of_mma(work, split, accumulator, target, offered, most, price, limit)
        rejected += _refused(work, split, accumulator, target, offered)
        if given is not None:
            if not accepted and not rejected:
                rejected.append(("threadblock_shape", _undivided(given)))
            return accepted, rejected
        may = any(contract_mma.fits(work, it, split, accumulator, target) for it in offered)
        if may and min(work.contracted, work.produced) >= LEAST_OF_MMA:
            return accepted, rejected
    simt, refused = contract.candidates(work, accumulator, target, given)
    if simt:
        # Their own costs tell them from each other alone.
        best = contract_cost.of_simt(work, simt[0][1], accumulator)
        accepted += [(price(item, best * cost / simt[0][0]), item) for cost, item in simt]
    return _ranked(accepted)[:most], rejected + refused


def _of_mma(
    work: Contraction,
    split: bool,
    accumulator: DataType,
    target: Target,
    offered: Sequence[ContractMmaTile],
    most: int,
    price: Callable[[Tile, float], float],
    limit: float,
) -> list[tuple[float, Tile]]:
    def floor(item: ContractMmaTile) -> float:
        return price(item, contract_cost.least_of_mma(work, item, split, target))

    def judge(item: ContractMmaTile) -> float | None:
        if not contract_mma.fits(work, item, split, accumulator, target):
            return None
        return price(item, contract_cost.of_mma(work, item, split, accumulator, target))

    return [*cheapest(offered, floor, judge, most=most, limit=limit)[:most]]


def _refused(
    work: Contraction,
    split: bool,
    accumulator: DataType,
    target: Target,
    offered: Sequence[ContractMmaTile],
) -> list[tuple[str, str]]:
    """The first tiles that do not fit, with the reason."""
    refused = (
        (str(item), status.reason)
        for item in offered
        if not (status := contract_mma.fits(work, item, split, accumulator, target))
    )
    return list(itertools.islice(refused, MOST_REFUSED))


def even_candidates(
    work: Contraction,
    math: MathInstruction,
    target: Target,
    given: TileDescription | None,
    most: int,
) -> tuple[list[tuple[float, EvenTile]], list[tuple[str, str]]]:
    """The same where rows are one stride apart: the tiles of `contract_group` are among them."""
    split = splits(math)
    if split is None:
        simt, rejected = candidates(work, math, target, given, most)
        return [*simt], rejected
    grouped: list[tuple[float, EvenTile]] = []
    refused: list[tuple[str, str]] = []
    small = given is None and min(work.contracted, work.produced) < LEAST_OF_MMA
    for item in () if small else contract_group_choice.proposed(work, split, target, given):
        status = contract_group.fits(work, item, split, target)
        if status:
            grouped.append((_of_group(work, item, split, target), item))
        else:
            refused.append((str(item), status.reason))
    costs = sorted(cost for cost, _ in grouped)
    limit = costs[most - 1] if len(costs) >= most else inf

    def price(item: Tile, cost: float) -> float:
        return _measured(work, item, cost, target)

    others, rejected = candidates(work, math, target, given, most, price, limit)
    accepted = sorted([*others, *grouped], key=lambda item: item[0])
    return accepted[:most], [*refused, *rejected]


def _measured(work: Contraction, tile: Tile, cost: float, target: Target) -> float:
    """What a modelled cost comes to on the scale of `contract_group`."""
    many = operands.cover(work.rows, work.groups) >= _MANY_ROWS
    call = _CALL_OVER_MODEL if many else 0.0
    return _over_model(work, tile) * cost + contract_cost.of_cycles(work, call, target)


def _over_model(work: Contraction, tile: Tile) -> float:
    """Measured over modelled time; lanes that are a part of theirs are short runs."""
    over = _OVER_MODEL.get(work.source.bytes, 1.0)
    if isinstance(tile, ContractTile):
        return over
    short = Order.Lanes in (work.x_order, work.y_order) and tile.lanes < work.lanes
    run = tile.lanes * work.source.bytes if short else _WHOLE_RUN
    return over * pow(max(1.0, _WHOLE_RUN / run), 0.75)


def _of_group(work: Contraction, tile: GroupTile, split: bool, target: Target) -> float:
    packs = contract_group.packs_before(work, tile)
    took = contract_group_cost.cycles(work, tile, split, packs, target)
    return contract_cost.of_cycles(work, took, target)


def cost(work: Contraction, math: MathInstruction, tile: EvenTile, target: Target) -> float:
    """Bytes of memory traffic for each element of X that a tile's time stands for."""
    accumulator = math.element_accumulator
    if isinstance(tile, GroupTile):
        return _of_group(work, tile, bool(splits(math)), target)
    if isinstance(tile, ContractMmaTile):
        return contract_cost.of_mma(work, tile, bool(splits(math)), accumulator, target)
    return contract_cost.of_simt(work, tile, accumulator)


def even_cost(work: Contraction, math: MathInstruction, tile: EvenTile, target: Target) -> float:
    """The same on the scale of `even_candidates`."""
    took = cost(work, math, tile, target)
    return took if isinstance(tile, GroupTile) else _measured(work, tile, took, target)


def cycles(work: Contraction, cost: float, target: Target) -> float:
    """The cycles that such a cost stands for."""
    return contract_cost.cycles(work, cost, target)


def _ranked(accepted: list[tuple[float, Tile]]) -> list[tuple[float, Tile]]:
    return sorted(accepted, key=lambda item: item[0])


def _undivided(given: TileDescription) -> str:
    m, n, k = given.threadblock_shape
    return (
        f"{given.warps} warps do not share {m} x {n} results in {k} steps: expected 16, 32 or 64"
        " rows and 16, 32 or 64 outputs for each, and steps in multiples of 16; change"
        " threadblock_shape or warp_count"
    )


def contract_step(
    math: MathInstruction,
    work: Contraction,
    tile: EvenTile,
    epilogue: Epilogue | None,
    target: Target,
    *,
    entry: str,
    note: str,
    launch: Sequence[tuple[str, Constant]],
    traffic: tuple[int, int],
) -> Step:
    """The step; `traffic` is (bytes, operations) per row of X."""
    scalar, accumulator = operands.scalar_kind(epilogue), math.element_accumulator
    cores: tuple[tuple[str, Constant], ...] = ()
    if isinstance(tile, GroupTile):
        name, header = "contract_group", "contract_group"
        constants = contract_group.constants(work, tile, bool(splits(math)), epilogue)
        shared_bytes = contract_group.shared_bytes(work, tile, bool(splits(math)))
        joins, cores = contract_mma.joined(work, tile), (("cores", target.cores),)
    elif isinstance(tile, ContractMmaTile):
        name, header = "contract_mma", "contract_mma"
        constants = contract_mma.constants(math, bool(splits(math)), work, tile, epilogue, target)
        shared_bytes = contract_mma.shared_bytes(work, tile, accumulator)
        joins = contract_mma.joined(work, tile)
    else:
        name, header, joins = "contract_tiles", "contract", False
        constants = contract.constants(work, tile, accumulator, epilogue, target)
        shared_bytes = contract.shared_bytes(tile, accumulator)
    return Step(
        entry=entry,
        bytes_per_row=traffic[0],
        operations_per_row=traffic[1],
        note=note,
        design=Flat(
            header=f"kronop/{header}.cuh",
            template=f"kronop::{name}",
            parameters=f"kronop::ContractParameters<{scalar.cxx}>",
            types=operands.element_types(math, work.source, work.output, epilogue),
            constants=constants,
            signature=_signature(scalar),
            epilogue=epilogue,
            threads=tile.threads,
            shared_bytes=shared_bytes,
            launch=(*launch, *cores, ("joins", joins), ("mma", name != "contract_tiles")),
        ),
    )


def _signature(scalar: Scalar) -> KernelSignature:
    return operands.signature(
        "ContractParameters",
        scalar,
        [(name, 1) for name in ("x", "w", "y", "z", "bias")],
        [
            ("x_vector", 1),
            ("w_vector", 1),
            ("y_vector", 1),
            *((f"row_{name}", ROW_AXES) for name in ("extent", "x", "y", "z")),
            ("contracted_x", 1),
            ("contracted_w", 1),
            *((f"produced_{name}", 1) for name in ("w", "y", "z", "bias")),
            *((f"lane_{name}", 1) for name in ("extent", "x", "w", "y", "z", "bias")),
            *((f"group_{name}", GROUP_AXES) for name in ("extent", "x", "w", "y", "z", "bias")),
        ],
    )


def contract_launch(
    index: int,
    step: Step,
    views: Mapping[str, operands.View],
    extents: Mapping[str, tuple[int, ...]],
    scalars: tuple[float, ...],
) -> Launch:
    """The launch for the operands x, w, y, z and bias; a pointer of 0 where z or bias is absent.

    `extents` are those of row, contracted, produced, lane and group.
    """
    views, extents = merged_rows(views, extents)
    own = {"x": "contracted", "w": "contracted", "y": "produced"}
    rows = {"x": "row", "w": "produced", "y": "row"}

    grouped = "cores" in dict(step.launch)

    def flag(name: str, view: operands.View, element: DataType) -> int:
        if grouped and name == "w":
            width = operands.integer(step, "kWLanes")
            packs = bool(step.constant("kPacks"))
            allows = contract_group_step.allows_vectors
            return allows(view, extents, width, element) if packs else 1
        order = Order(operands.integer(step, f"k{name.upper()}Order"))
        width = operands.integer(step, f"k{name.upper()}Vector")
        if step.constant("mma"):
            joins = bool(step.constant("joins"))
            return contract_mma.allows_vectors(
                view, extents, order, own[name], rows[name], width, element, joins
            )
        along = {Order.Own: own[name], Order.Rows: rows[name], Order.Lanes: "lane"}[order]
        return operands.allows_vectors(view, extents, along, width, element)

    source, output = operands.element_of(step, "Input"), operands.element_of(step, "Output")
    values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
        "x_vector": flag("x", views["x"], source),
        "w_vector": flag("w", views["w"], operands.element_of(step, "Factor")),
        "y_vector": flag("y", views["y"], output)
        and (views["z"].pointer == 0 or flag("y", views["z"], output)),
        "scalars": scalars,
    }
    for name, view in views.items():
        values |= view.field(name)
    values |= {f"{name}_extent": extents[name] for name in ("row", "lane", "group")}
    if grouped:
        return operands.make_launch(index, step, contract_group_step.grid(step, extents), values)
    blocks = (
        operands.cover(extents["produced"][0], operands.integer(step, "kTileN"))
        * operands.cover(prod(extents["row"]), operands.integer(step, "kTileM"))
        * operands.cover(extents["lane"][0], operands.integer(step, "kLanes"))
        * prod(extents["group"])
    )
    return operands.make_launch(index, step, blocks, values)


def merged_rows(
    views: Mapping[str, operands.View], extents: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, operands.View], dict[str, tuple[int, ...]]]:
    """Row axes that all operands walk in steps of one size become one: the first, if it is all."""
    names = [name for name in ("x", "y", "z") if name != "z" or views[name].pointer]
    merged: list[tuple[int, dict[str, int]]] = []
    for axis, size in enumerate(extents["row"]):
        strides = {name: views[name].strides["row"][axis] for name in names}
        if size == 1:
            continue
        if merged and all(merged[-1][1][name] == size * strides[name] for name in names):
            size *= merged.pop()[0]
        merged.append((size, strides))
    merged += [(1, dict.fromkeys(names, 0))] * (ROW_AXES - len(merged))
    changed = {
        name: replace(
            views[name],
            strides={**views[name].strides, "row": tuple(strides[name] for _, strides in merged)},
        )
        for name in names
    }
    absent = {"z": replace(views["z"], strides={**views["z"].strides, "row": (0,) * ROW_AXES})}
    return {**views, **absent, **changed}, {**extents, "row": tuple(size for size, _ in merged)}
