"""What a fused pair costs, in cycles of a call; see contraction/cost for the units."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction import cost
from kronop.emit.cuda.contraction.group import serves
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.cuda.machine import MEMORY_BYTES_PER_CYCLE
from kronop.families.ksparse.cuda.chain_design import ChainMma, PairProduct
from kronop.target import Target

# Cycles between a launch and the next one that waits for it: the chip drains and fills.
OF_A_LAUNCH = 4000.0
# NOTE: fitted to 148 tiles on one H200 (25088 rows of ViT-S patterns in float16 and float32, 10 %
# off in the mean). Few warps share a multiprocessor: products and instructions wait for each other
# and add up, while memory goes on. Cycles of a step's barrier and copies, of a part of the results
# and of a tile of rows, shared by the blocks of a multiprocessor; bytes a cycle of level-2 cache.
_STEP, _PART, _TILE, _LEVEL_2 = 200.0, 150.0, 3600.0, 48.0
_SHARPNESS = 1.5
# Where single products have warp groups, pairs of 16 bits took 1.5 to 1.9 times their model, the
# two products 1.1 to 1.4 times theirs.
_OVER_MODEL = 1.4


def of_pair(design: ChainMma, rows: int | None, target: Target) -> float:
    """Cycles of a call: its blocks' tiles of rows fill so many turns of the multiprocessors."""
    return _cycles(design, rows, target, design.blocks(target))


def least_of_pair(design: ChainMma, rows: int | None, target: Target) -> float:
    """What `of_pair` is no less than, told in a fraction of the time: blocks want no shared
    memory."""
    resident = operands.resident_blocks(design.threads, design.registers, 1, target)
    return ROUNDED * _cycles(design, rows, target, resident)


def of_product(product: PairProduct) -> tuple[float, float]:
    """Cycles of the tensor cores and of issue, for a block's rows."""
    _, _, products, _, instructions = cost.units(product.tile)
    return product.units * products, product.units * instructions


def _cycles(design: ChainMma, rows: int | None, target: Target, resident: int) -> float:
    first, second, work = design.first, design.second, design.first.work
    tiles = operands.cover(rows or operands.MANY_ROWS, design.m) * design.parts
    # Which share of the last turn is empty differs from batch to batch: half of it is.
    turns = max(1.0, tiles / target.cores + 0.5)
    waits = _waits(design) / min(resident, turns)
    memory, brought = _traffic(design)
    weights = (first.weights + second.weights) * work.source.bytes
    brought += 0 if design.resident else weights
    products = first.cycles[0] + second.cycles[0]
    instructions = first.cycles[1] + second.cycles[1]
    both = (memory / MEMORY_BYTES_PER_CYCLE, brought / _LEVEL_2, products + instructions)
    busy = float(sum(item**_SHARPNESS for item in both) ** (1 / _SHARPNESS))
    took = turns * (busy + waits)
    took += design.resident * (weights / _LEVEL_2 + cost.LOAD)
    grouped = work.source.bytes == 2 and serves(work, target)
    return took * (_OVER_MODEL if grouped else 1.0)


def _waits(design: ChainMma) -> float:
    """Cycles of a block's tile that nothing of its own hides."""
    first, second, tile = design.first, design.second, design.second.tile
    parts = tile.warp_n if second.work.y_order is Order.Rows else tile.warp_m
    steps = first.units * first.steps + (0 if design.resident else second.units * second.steps)
    return steps * _STEP + second.units * parts * _PART + _TILE


def _traffic(design: ChainMma) -> tuple[float, float]:
    """Bytes of a block's X and Y: through memory, and through the level-2 cache."""
    first, second = design.first, design.second
    of_x = first.work.contracted * first.work.source.bytes
    of_y = second.work.produced * second.work.output.bytes
    x = design.m * first.groups * first.lanes * of_x
    y = design.m * second.groups * second.lanes * of_y
    again = operands.cover(first.work.produced, first.tile.n)
    return x + y, x * again + y
