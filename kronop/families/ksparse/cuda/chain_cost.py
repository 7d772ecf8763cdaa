"""The cost of a fused pair, in cycles of a call."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction.warp_group import serves
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.cuda.machine import memory_bytes_per_cycle, warp_slowness
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.machine import MEASURED
from kronop.target import Target

# Cycles between a launch and the next, dependent one, while the GPU drains and fills.
OF_A_LAUNCH = 4000.0
# NOTE: fitted to 148 tiles on one H200 (25088 rows of ViT-S patterns in float16 and float32, 10 %
# off in the mean). A multiprocessor has few warps here, so the times of tensor cores and of other
# instructions add up; only memory overlaps with them.
# Cycles to wait in each stage for a barrier and copies, for each part of the results that is
# stored, and for each tile of rows (other blocks of the multiprocessor hide these); bytes that a
# multiprocessor then appears to get from the level-2 cache in a cycle.
_STEP, _PART, _TILE, _LEVEL_2 = 200.0, 150.0, 3600.0, 48.0
_SHARPNESS = 1.5
# NOTE: on targets with warp groups, fused pairs of 16 bits took 1.5 to 1.9 times the modelled time,
# and two single products 1.1 to 1.4 times theirs: this factor makes the two comparable.
_OVER_MODEL = 1.4


def of_pair(design: ChainMma, rows: int | None, target: Target) -> float:
    """Cycles of a call, from the number of waves of row tiles."""
    return _cycles(design, rows, target, design.blocks(target))


def least_of_pair(design: ChainMma, rows: int | None, target: Target) -> float:
    """A lower bound of `of_pair`, much faster to compute: it assumes the occupancy of blocks that
    need no shared memory."""
    resident = operands.resident_blocks(design.threads, design.registers, 1, target)
    return ROUNDED * _cycles(design, rows, target, resident)


def _cycles(design: ChainMma, rows: int | None, target: Target, resident: int) -> float:
    first, second, work = design.first, design.second, design.first.work
    tiles = operands.cover(rows or operands.MANY_ROWS, design.m) * design.parts
    # How full the last wave is depends on the number of rows: half is assumed.
    waves = max(1.0, tiles / target.cores + 0.5)
    waits = _waits(design) / min(resident, waves)
    memory, brought = _traffic(design)
    weights = (first.weights + second.weights) * work.source.bytes
    brought += 0 if design.resident else weights
    products = (first.cycles_of_block[0] + second.cycles_of_block[0]) * warp_slowness(target)
    instructions = first.cycles_of_block[1] + second.cycles_of_block[1]
    both = (memory / memory_bytes_per_cycle(target), brought / _LEVEL_2, products + instructions)
    busy = float(sum(item**_SHARPNESS for item in both) ** (1 / _SHARPNESS))
    took = waves * (busy + waits)
    took += design.resident * (weights / _LEVEL_2 + MEASURED.load)
    by_warp_groups = work.source.bytes == 2 and serves(work, target)
    return took * (_OVER_MODEL if by_warp_groups else 1.0)


def _waits(design: ChainMma) -> float:
    """Cycles for which a block waits during a tile, unless other blocks hide them."""
    first, second, tile = design.first, design.second, design.second.tile
    parts = tile.warp_n if second.work.y_order is Order.Rows else tile.warp_m
    steps = first.units * first.steps + (0 if design.resident else second.units * second.steps)
    return steps * _STEP + second.units * parts * _PART + _TILE


def _traffic(design: ChainMma) -> tuple[float, float]:
    """Bytes of a block's X and Y from memory, and from the level-2 cache, from which X is read
    again for each tile of results."""
    first, second = design.first, design.second
    of_x = first.work.contracted * first.work.source.bytes
    of_y = second.work.produced * second.work.output.bytes
    x = design.m * first.sections * first.lanes * of_x
    y = design.m * second.sections * second.lanes * of_y
    again = operands.cover(first.work.produced, first.tile.n)
    return x + y, x * again + y
