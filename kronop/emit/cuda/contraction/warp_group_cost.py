"""The cost of a tile of `contract_warp_group`, in cycles of a call."""

from __future__ import annotations

import math

from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import warp_group_chains as chains
from kronop.emit.cuda.contraction.warp_group_room import TEAM_ROWS, WarpGroupRoom
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT, memory_share
from kronop.machine import GPU_LINE, GPU_SECTOR, SHARED_BYTES_PER_CYCLE
from kronop.target import Target

# NOTE: fitted, then rounded, to 719 tiles of 204 problems with their layouts (float16 and float32,
# batch 25088, one H200); _COLLECTED and _HALVED to 42 tiles of ten problems in float32. _TORN and
# _PACK were set later, by 2600 tiles of 276 problems (36 of them of 1024 rows): the estimate is 6 %
# off in the median there, and the choice takes 3 % longer than the best in the mean, 48 % at worst.
# Bytes of one multiprocessor in a cycle: loaded from memory, written to shared memory, copied by
# threads, and results stored by threads.
_MEMORY, _BROUGHT, _COPIED, _STORED = 18.5, 40.0, 27.0, 15.0
# Latency of the copy of a stage in cycles, and how many stages are being multiplied, not loaded.
_LATENCY, _HELD = 3000.0, 1.0
# Requests to the level-2 cache in a cycle, and how many requests a partial write of a sector costs.
_REQUESTS, _PARTIAL = 0.57, 1.7
# Factors by which memory is slower: if blocks use the same cache lines at different times, and for
# X if stages copy parts of cache lines.
_APART, _TORN = 2.5, 1.4
# Multiply-adds of 2-byte operands in a cycle, and of split operands (where each of the three
# products, of 4 bytes, counts as two).
_RATE, _RATE_OF_SPLIT = 2500.0, 2300.0
# Cycles of a stage, of storing a part of the results, of a sum, of a tile, of an element of X that
# is copied through registers; of a call, and of the launch that packs weights before it.
_STEP, _PART, _SUM, _TILE, _FRAGMENT = 100.0, 2.4, 0.033, 380.0, 0.023
_CALL, _PACK = 4800.0, 1800.0
# Cycles to collect a sum of a chain of split products; and, if shared memory has room for half of
# the results, the share of the time to store a half that the multiplying teams wait for.
_COLLECTED, _HALVED = 0.018, 0.5
# Exponent of the norm that combines overlapping times: the larger, the closer the norm is to the
# maximum.
_SHARPNESS = 4.3
# Elements that a block packs in a cycle.
_PACKS = 0.93


def cycles(tile: WarpGroupRoom, all_rows: int, target: Target) -> float:
    """Cycles of a call: for each tile, the slowest of memory, copies, MMAs and stores dominates."""
    work, element = tile.work, tile.work.source.bytes
    depth = operands.round_up(work.contracted, tile.k)
    steps = depth // tile.k
    outputs = operands.cover(work.produced, tile.n)
    x = tile.lanes * tile.m * work.contracted * element
    weights = tile.lanes * tile.n * depth * element * work.terms
    w = 0 if tile.resident else weights
    y = tile.lanes * tile.m * min(tile.n, work.produced) * work.output.bytes
    parts = outputs * operands.cover(work.lanes, tile.lanes) * work.sections
    rows = operands.cover(operands.cover(all_rows, work.sections), tile.m)
    blocks = tile.blocks_of(parts, rows, target.cores)
    waves = operands.cover(parts * rows, blocks)
    torn = _TORN if _run(tile) < GPU_LINE and tile.k < work.contracted else 1.0
    memory = (x / outputs * torn + y) / (_MEMORY * memory_share(target))
    if tile.resident and blocks % parts:
        memory *= _APART
    asked = (x / _run(tile) + w / GPU_LINE + _asked_to_write(tile, y)) / _REQUESTS
    narrow = operands.VECTOR_BYTES / (element * tile.vectors[0])
    copied = x * narrow + (0 if tile.images else w)
    on_their_way = max(0.5, tile.stages - _HELD) * (x + w) / steps
    brought = max(copied / _COPIED, (x + w) / _BROUGHT, (x + w) * _LATENCY / on_their_way, asked)
    used = _used(tile, x, w)
    stored = tile.parts * _PART + y / _STORED
    # The first tile's copies and the last tile's MMAs and stores overlap with nothing.
    together = sum(math.pow(item, _SHARPNESS) for item in (memory, brought, used, stored))
    took = _CALL + (waves - 1) * math.pow(together, 1 / _SHARPNESS) + brought + used + stored
    if tile.resident:
        # A block that loads another part of W overlaps with nothing either.
        own = weights / _COPIED + _LATENCY
        if tile.packs:
            own = tile.lanes * tile.n * work.contracted / _PACKS
        took += own * (1 if blocks % parts == 0 else 1 + parts / blocks)
    return took + (_PACK if tile.packs_first else 0)


def _run(tile: WarpGroupRoom) -> int:
    """Bytes of X of one request to the level-2 cache: contiguous, at most a cache line."""
    work = tile.work
    lanes = tile.lanes * (tile.k if tile.lanes == work.lanes else 1)
    elements = {Order.Own: tile.k, Order.Rows: tile.m, Order.Lanes: lanes}[work.x_order]
    return min(GPU_LINE, elements * work.source.bytes)


def _asked_to_write(tile: WarpGroupRoom, y: int) -> float:
    """Requests to the level-2 cache that write `y` bytes of results; partial writes of sectors
    count as more."""
    work = tile.work
    if work.y_order is not Order.Lanes or tile.lanes == work.lanes:
        return y / GPU_LINE
    run = tile.lanes * work.output.bytes
    return y / run * (_PARTIAL if run < GPU_SECTOR else 1.0)


def _used(tile: WarpGroupRoom, x: int, w: int) -> float:
    """Cycles of the multiplying teams for one tile."""
    work, splits = tile.work, tile.work.splits
    element = work.source.bytes
    depth = operands.round_up(work.contracted, tile.k)
    sums = tile.lanes * tile.m * tile.n
    times = PRODUCTS_OF_SPLIT if splits else 1
    products = sums * depth * times * element / 2 / (_RATE_OF_SPLIT if splits else _RATE)
    right = sums * depth * element * (times if splits else 1) / TEAM_ROWS
    shared = (2 * x + w + right + 3 * sums * work.output.bytes) / SHARED_BYTES_PER_CYCLE
    took = max(products, shared) + depth // tile.k * _STEP
    if not tile.direct:
        took += x / element * _FRAGMENT
    if splits and tile.team_lanes == 1:
        took += sums * depth / chains.steps(tile) * _COLLECTED
    if tile.halves:
        took += _HALVED * sums * work.output.bytes / 2 / _STORED
    return took + sums * _SUM + _TILE
