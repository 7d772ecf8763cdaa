"""Designs of a contraction, the cheapest first: on the ordinary cores (SIMT), or on the tensor
cores by single warps (`contract_mma`) or by warp groups (`contract_warp_group`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, pow

from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contraction import cost, mma_choice, simt_choice, warp_group_choice
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.contraction.simt import SimtContract
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.machine import hertz
from kronop.target import Target

# From these sizes on, the tiles of tensor cores are full enough that they always win.
LEAST_OF_MMA = 16

# Factors on `contract_mma`'s modelled time, by element size, that make it comparable with
# `contract_warp_group`'s; below so many contiguous bytes it is slower still. NOTE: for 34
# Kronecker-sparse problems (batch 25088, both layouts, one H200), `contract_mma` took 1.25 times
# its model in the median (0.9 to 3.2, once 12; small problems of 16 bits are at the upper end), and
# 1.6 to 5.3 times where only 16 bytes are contiguous. The model of `contract_warp_group` was fitted
# to the same problems.
_OVER_MODEL, _WHOLE_RUN = {2: 2.0, 4: 1.35, 8: 1.35}, 64
# Cycles of a call that the model of `contract_mma` omits, and the number of rows from which on they
# were measured.
_CALL_OVER_MODEL, _MANY_ROWS = 6000.0, 8192

# How many tiles that don't fit are reported.
MOST_REFUSED = 8

Timed = list[tuple[float, ContractDesign]]  # Seconds of a call.
Refused = list[tuple[str, str]]
# (design, modelled time) -> the time to rank it by; monotonic in the modelled time.
Price = Callable[[ContractDesign, float], float]


def _as_modelled(design: ContractDesign, took: float) -> float:
    return took


def candidates(
    work: Contraction,
    rows: int,
    target: Target,
    given: TileDescription | None,
    most: int,
    price: Price = _as_modelled,
    limit: float = inf,
) -> tuple[Timed, Refused]:
    """The `most` cheapest designs that fit, cheapest first, and some that do not, with the reason.

    The user's tile names its instruction, so designs without that instruction are left out. Designs
    that cost more than `limit` may be left out.
    """
    accepted: Timed = []
    rejected: Refused = []
    if work.splits is not None:
        offered = list(mma_choice.proposed(work, given))
        accepted += _of_mma(offered, rows, target, most, price, limit, rejected)
        if given is not None:
            if not accepted and not rejected:
                rejected.append(("threadblock_shape", _undivided(given)))
            return accepted, rejected
        full = min(work.contracted, work.produced) >= LEAST_OF_MMA
        if full and (accepted or any(item.status(target) for item in offered)):
            return accepted, rejected
    simt, refused = simt_choice.candidates(work, target, given)
    if simt:
        # The scores of SIMT tiles only rank them among each other: scale the best one's to its
        # time.
        best = simt[0][1].seconds(rows, target)
        accepted += [(price(item, best * took / simt[0][0]), item) for took, item in simt]
    return sorted(accepted, key=lambda item: item[0])[:most], rejected + refused


def _of_mma(
    offered: Sequence[MmaContract],
    rows: int,
    target: Target,
    most: int,
    price: Price,
    limit: float,
    refused: Refused,
) -> Timed:
    """The cheapest tiles of `contract_mma`; appends to `refused` some that might have been cheaper
    but don't fit."""

    def floor(item: MmaContract) -> float:
        return price(item, cost.least_of_mma(item, rows, target))

    def judge(item: MmaContract) -> float | None:
        status = item.status(target)
        if status:
            return price(item, item.seconds(rows, target))
        if len(refused) < MOST_REFUSED:
            refused.append((str(item), status.reason))
        return None

    return [*cheapest(offered, floor, judge, most=most, limit=limit)[:most]]


def even_candidates(
    work: Contraction, rows: int, target: Target, given: TileDescription | None, most: int
) -> tuple[Timed, Refused]:
    """`candidates` for rows at one constant stride, which `contract_warp_group` needs: it is
    included."""
    if work.splits is None:
        return candidates(work, rows, target, given, most)
    of_warp_groups: Timed = []
    refused: Refused = []
    small = given is None and min(work.contracted, work.produced) < LEAST_OF_MMA
    for item in () if small else warp_group_choice.proposed(work, target, given):
        status = item.status(target)
        if status:
            of_warp_groups.append((item.seconds(rows, target), item))
        else:
            refused.append((str(item), status.reason))
    costs = sorted(took for took, _ in of_warp_groups)
    limit = costs[most - 1] if len(costs) >= most else inf

    def price(item: ContractDesign, took: float) -> float:
        return _measured(item, rows, took, target)

    others, rejected = candidates(work, rows, target, given, most, price, limit)
    accepted = sorted([*others, *of_warp_groups], key=lambda item: item[0])
    return accepted[:most], [*refused, *rejected]


def even_seconds(design: ContractDesign, rows: int, target: Target) -> float:
    """The time of a design on the scale of `even_candidates`."""
    took = design.seconds(rows, target)
    return took if design.counts_call else _measured(design, rows, took, target)


def _measured(design: ContractDesign, rows: int, took: float, target: Target) -> float:
    """A modelled time, converted to the scale of `contract_warp_group`'s model."""
    many = operands.cover(rows, design.work.sections) >= _MANY_ROWS
    call = _CALL_OVER_MODEL / hertz(target) if many else 0.0
    return _over_model(design) * took + call


def _over_model(design: ContractDesign) -> float:
    """The ratio of measured to modelled time; a block that takes only some of the lanes reads few
    contiguous bytes."""
    work = design.work
    over = _OVER_MODEL.get(work.source.bytes, 1.0)
    if isinstance(design, SimtContract):
        return over
    short = Order.Lanes in (work.x_order, work.y_order) and design.lanes < work.lanes
    run = design.lanes * work.source.bytes if short else _WHOLE_RUN
    return over * pow(max(1.0, _WHOLE_RUN / run), 0.75)


def _undivided(given: TileDescription) -> str:
    m, n, k = given.threadblock_shape
    warps = "warps" if given.warps is None else f"{given.warps} warps"
    return (
        f"{warps} do not share {m} x {n} results in {k} steps: expected 16, 32 or 64"
        " rows and 16, 32 or 64 outputs for each, and steps in multiples of 16; change"
        " threadblock_shape or warp_count"
    )
