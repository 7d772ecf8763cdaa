"""The modelled time of a tile of `contract_mma`.

The loads, products, shared memory accesses and instructions of a block overlap with those of other
blocks on the same multiprocessor.
"""

from __future__ import annotations

import math

from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction.mma_room import OUTPUTS, ROWS, SLAB, MmaRoom
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.machine import (
    PRODUCTS_OF_SPLIT,
    hertz,
    memory_rate,
    memory_share,
    warp_slowness,
)
from kronop.machine import MEASURED, QUARTERS, SHARED_BYTES_PER_CYCLE
from kronop.target import Target

# Cycles of a warp's MMA over 16 contracted indices, by the bytes of an operand's element.
_PRODUCT_OF_SLAB = {1: 1.6, 2: 1.6, 4: 3.4, 8: 17.0}
# Latencies in cycles that other warps don't hide: of a block's start and end, and of a stage.
_BLOCK, _STEP = 1900.0, 70.0


def of_mma(tile: MmaRoom, units: tuple[float, ...], rows: int, target: Target) -> float:
    """Seconds on tensor cores for `rows` rows: waves of blocks times the time of one; `units` are
    the tile's own."""
    work, used = tile.work, _on(units, target)
    busy = math.hypot(*used)
    resident = operands.resident_blocks(tile.threads, tile.registers, tile.shared_bytes, target)
    steps = operands.cover(work.contracted, tile.k)
    alone = _BLOCK + steps * max(_STEP, MEASURED.load / max(1, tile.stages - 1)) + busy
    outputs = operands.cover(work.produced, tile.n)
    lanes = operands.cover(work.lanes, tile.lanes)
    blocks = operands.cover(rows, tile.m) * outputs * lanes
    waves = operands.cover(blocks, target.cores)
    return waves * max(busy, alone / min(resident, waves)) / hertz(target)


def least_of_mma(tile: MmaRoom, rows: int, target: Target) -> float:
    """A lower bound of `of_mma`, much faster to compute: latencies, shared memory and instructions
    cost nothing."""
    work = tile.work
    blocks = (
        operands.cover(rows, tile.m)
        * operands.cover(work.produced, tile.n)
        * operands.cover(work.lanes, tile.lanes)
    )
    took = operands.cover(blocks, target.cores) * math.hypot(*_on(_streams(tile), target))
    return ROUNDED * took / hertz(target)


def bytes_of_element(work: Contraction, rows: int, seconds: float, target: Target) -> float:
    """The bytes that memory could move in the time of a call, for each element of X."""
    return seconds * memory_rate(target) / (rows * work.contracted * work.lanes)


def units(tile: MmaRoom) -> tuple[float, ...]:
    """Cycles of a block on memory, the level-2 cache, the tensor cores, shared memory, and issue,
    on an H200."""
    work = tile.work
    x, w, _ = _brought(tile)
    slabs = operands.round_up(work.contracted, tile.k) // SLAB
    products = _products(tile)
    warps = tile.warps[0] * tile.warps[1] * tile.warps[2]
    # A warp's fragments cover 16 contracted indices of its rows and outputs.
    wide = tile.warp_m * ROWS + tile.warp_n * OUTPUTS
    fragments = warps * slabs * tile.warp_lanes * wide * SLAB
    results = tile.lanes * tile.m * tile.n
    x_pitch, w_pitch, _ = tile.pitches
    cycles = tile.warp_m * ROWS * x_pitch.cycles + tile.warp_n * OUTPUTS * w_pitch.cycles
    loads = warps * slabs * tile.warp_lanes * SLAB * cycles
    shared = loads + (x + w + 2 * results * work.accumulator.bytes) / SHARED_BYTES_PER_CYCLE
    return (*_streams(tile), shared, _instructions(tile, fragments, products) / QUARTERS)


def _on(used: tuple[float, ...], target: Target) -> tuple[float, ...]:
    """`units`, scaled from an H200 to another GPU."""
    memory, level_2, products, *others = used
    return memory / memory_share(target), level_2, products * warp_slowness(target), *others


def _brought(tile: MmaRoom) -> tuple[int, int, int]:
    """Bytes of X and of W that a block reads, and of Y that it writes."""
    work = tile.work
    x = tile.lanes * tile.m * work.contracted * work.source.bytes
    w = tile.lanes * min(tile.n, work.produced) * work.contracted * work.source.bytes
    y = tile.lanes * tile.m * min(tile.n, work.produced) * work.output.bytes
    return x, w, y


def _products(tile: MmaRoom) -> int:
    work = tile.work
    slabs = operands.round_up(work.contracted, tile.k) // SLAB
    products = tile.lanes * tile.m // ROWS * tile.n // OUTPUTS * slabs
    return products * (PRODUCTS_OF_SPLIT if work.splits else 1)


def _streams(tile: MmaRoom) -> tuple[float, float, float]:
    """Cycles of a block on device memory, the level-2 cache and the tensor cores."""
    work = tile.work
    x, w, y = _brought(tile)
    return (
        (x / operands.cover(work.produced, tile.n) + y) / MEASURED.memory,
        (x + w + y) / MEASURED.level_2,
        _products(tile) * _PRODUCT_OF_SLAB[work.source.bytes],
    )


def _instructions(tile: MmaRoom, fragments: int, products: int) -> float:
    """Instructions of a block's warps for products, fragments, copies and results."""
    work, splits = tile.work, tile.work.splits
    words = work.source.bytes > 2
    x, w, y = tile.vectors
    depth = operands.round_up(work.contracted, tile.k)
    # Instructions for each piece: an address and an asynchronous copy; for a pair that is copied
    # through registers, two loads, a merge and a store.
    of_x, of_w = (
        12 / 2 if paired and vector == 1 else 5 / vector
        for vector, paired in zip((x, w), tile.pairs, strict=True)
    )
    copies = tile.lanes * depth * (tile.m * of_x + tile.n * of_w) / 32
    joins = Order.Lanes in (work.x_order, work.w_order)
    narrow = work.source.bytes == 1  # One instruction widens two elements to 16 bits.
    each = 3.5 if splits else 1.0 if joins or words or narrow else 0.15
    results = tile.lanes * tile.m * tile.n / 32
    sums = results * depth / SLAB if splits else 0
    return (
        products * (2 if words else 1)
        + fragments / 32 * each
        + sums
        + copies
        + results * (3 + 16 / y)
    )
