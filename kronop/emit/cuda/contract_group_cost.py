"""What a tile of `contract_group` costs: cycles of a call."""

from __future__ import annotations

import math

from kronop.emit.cuda import contract_group, contract_mma, operands
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.cuda.contract_group import GroupTile
from kronop.target import Target

# NOTE: fitted, then rounded; of 394 tiles of 65 problems with their layouts (float16 and float32,
# batch 25088, one H200) the choice takes 3 % longer than the best in the mean, 16 % at worst; of 46
# problems with several lanes batch first, some of them moved apart, 5 % and 48 %.
# Bytes of memory, of what copies bring, of results that threads store and of shared memory, a cycle
# of one multiprocessor.
_MEMORY, _BROUGHT, _STORED, _SHARED = 19.5, 32.0, 13.0, 128.0
# Cycles from the copy of a stage to its arrival, and stages that are not on their way.
_LATENCY, _HELD = 3600.0, 1.2
# A run of memory, in bytes, that keeps memory and copies at their rate; how much shorter ones slow
# what is read and written.
_RUN, _SHORT_READ, _SHORT_WRITTEN = 64, 0.9, 1.3
# How much slower memory is where neighbours in it are used at different times.
_APART = 1.8
# Multiply-adds of 2-byte operands a cycle, and where three products stand for one those of half the
# size.
_RATE, _RATE_OF_SPLIT = 2600.0, 2000.0
_PRODUCTS_OF_SPLIT = 3
# Cycles of a step, of a part of the results and of a sum of it, of a tile, of an element of X that
# goes through registers; of a call, and of weights that are packed before it.
_STEP, _PART, _SUM, _TILE, _FRAGMENT = 165.0, 4.0, 0.066, 130.0, 0.055
_CALL, _PACK = 5100.0, 3300.0
# Elements that a block packs in a cycle.
_PACKS = 2.2


def cycles(work: Contraction, tile: GroupTile, splits: bool, packs: bool, target: Target) -> float:
    """Cycles of a call: what is slowest of memory, copies and products, tile after tile."""
    element = work.source.bytes
    depth = operands.round_up(work.contracted, tile.k)
    steps = depth // tile.k
    outputs = operands.cover(work.produced, tile.n)
    x = tile.lanes * tile.m * work.contracted * element
    weights = tile.lanes * tile.n * depth * element * contract_group.planes(splits)
    w = 0 if tile.resident else weights
    y = tile.lanes * tile.m * min(tile.n, work.produced) * work.output.bytes
    parts = outputs * operands.cover(work.lanes, tile.lanes) * work.groups
    rows = operands.cover(operands.cover(work.rows, work.groups), tile.m)
    blocks = contract_group.blocks(parts, rows, tile.resident, target.cores)
    turns = operands.cover(parts * rows, blocks)
    short = max(1.0, _RUN / _run(work, tile))
    slow, slow_y = math.pow(short, _SHORT_READ), math.pow(short, _SHORT_WRITTEN)
    memory = (x / outputs * slow + y * slow_y) / _MEMORY
    if tile.resident and blocks % parts:
        memory *= _APART
    rate = min(_BROUGHT, max(0.5, tile.stages - _HELD) * (x + w) / steps / _LATENCY)
    narrow = operands.VECTOR_BYTES / (element * contract_mma.vectors(work, tile)[0])
    brought = (x * slow * narrow + w) / rate
    used = _used(work, tile, splits, x, w)
    parts = tile.team_m * tile.team_n // contract_group.part_outputs(work, tile)
    stored = parts * _PART + y / _STORED
    # Nothing goes on beside the first copies and the last results.
    took = _CALL + (turns - 1) * max(memory, brought, used, stored) + brought + used + stored
    if tile.resident:
        # Nothing goes on while a block takes another part of W, either.
        own = weights / rate + _LATENCY
        if contract_group.packs(work, tile):
            own = tile.lanes * tile.n * work.contracted / _PACKS
        took += own * (1 if blocks % parts == 0 else 1 + parts / blocks)
    return took + (_PACK if packs else 0)


def _run(work: Contraction, tile: GroupTile) -> int:
    """Bytes of X that lie together in memory and in a stage."""
    lanes = tile.lanes * (tile.k if tile.lanes == work.lanes else 1)
    elements = {Order.Own: tile.k, Order.Rows: tile.m, Order.Lanes: lanes}[work.x_order]
    return elements * work.source.bytes


def _used(work: Contraction, tile: GroupTile, splits: bool, x: int, w: int) -> float:
    """Cycles of the teams that multiply."""
    element = work.source.bytes
    depth = operands.round_up(work.contracted, tile.k)
    sums = tile.lanes * tile.m * tile.n
    times = _PRODUCTS_OF_SPLIT if splits else 1
    products = sums * depth * times * element / 2 / (_RATE_OF_SPLIT if splits else _RATE)
    right = sums * depth * element * (times if splits else 1) / contract_group.TEAM_ROWS
    shared = (2 * x + w + right + 3 * sums * work.output.bytes) / _SHARED
    took = max(products, shared) + depth // tile.k * _STEP
    if not contract_group.direct(work, tile):
        took += x / element * _FRAGMENT
    return took + sums * _SUM + _TILE
