"""What a tile of `contract_group` costs, in cycles of a call and on the scale of contract_cost."""

from __future__ import annotations

from kronop.emit.cuda import contract_group, operands
from kronop.emit.cuda.contract import Contraction
from kronop.emit.cuda.contract_group import GroupTile
from kronop.target import Target

# Bytes of memory, of the level-2 cache and of shared memory a cycle of one multiprocessor.
_MEMORY, _LEVEL_2, _SHARED = 18.0, {1: 19.0, 2: 27.0}, 128.0
# Multiply-adds of 2-byte operands a cycle; those of 4 bytes take twice as long.
_RATE = 2048 * 0.8
_PRODUCTS_OF_SPLIT = 3
# Cycles of a step, of a part of the results, of a tile, and of a call with what it waits for first.
_STEP, _PART, _TILE, _CALL, _PACK = 70.0, 350.0, 500.0, 5000.0, 3500.0


def cycles(
    work: Contraction, tile: GroupTile, splits: bool, packs: bool, target: Target
) -> float:
    """Cycles of a call: what is slowest of memory, caches and products, tile after tile."""
    depth = operands.round_up(work.contracted, tile.k)
    outputs = operands.cover(work.produced, tile.n)
    lanes = operands.cover(work.lanes, tile.lanes)
    x = tile.lanes * tile.m * work.contracted * work.source.bytes
    w = tile.lanes * tile.n * depth * work.source.bytes * contract_group.planes(splits)
    y = tile.lanes * tile.m * min(tile.n, work.produced) * work.output.bytes
    sums = tile.lanes * tile.m * tile.n
    products = sums * depth * (_PRODUCTS_OF_SPLIT if splits else 1) * work.source.bytes / 2
    right = tile.m / contract_group.TEAM_ROWS * w * (1.5 if splits else 1)
    left = x if contract_group.direct(work, tile) else 1.5 * x
    shared = (x + left + right + 8 * sums + (0 if tile.resident else w)) / _SHARED
    parts = tile.team_m * tile.n // tile.part_n
    used = max(products / _RATE, shared) + depth / tile.k * _STEP + parts * _PART + _TILE
    memory = (x / outputs + y) / _MEMORY
    brought = (x + (0 if tile.resident else w)) / _LEVEL_2[tile.copiers]
    tiles = operands.cover(work.rows, tile.m) * outputs * lanes
    turns = tiles / target.cores if tiles > 8 * target.cores else operands.cover(tiles, target.cores)
    return turns * max(memory, brought, used) + _CALL + (_PACK if packs else 0)
