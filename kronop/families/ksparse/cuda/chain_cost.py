"""What a fused pair costs, in cycles of a call; see contract_cost for the units."""

from __future__ import annotations

from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import contract_cost, contract_group, operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction.work import Order
from kronop.families.ksparse.cuda import chain_tile
from kronop.families.ksparse.cuda.chain_pair import Pair
from kronop.families.ksparse.cuda.chain_tile import ChainTile
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


def of_pair(
    pair: Pair, tile: ChainTile, splits: bool, instruction: MathInstruction, target: Target
) -> float:
    """Cycles of a call: its blocks' tiles of rows fill so many turns of the multiprocessors."""
    resident = chain_tile.blocks(pair, tile, splits, instruction, target)
    waits = _waits(pair, tile) / min(resident, _turns(pair, tile, target))
    return _cycles(pair, tile, splits, instruction, target, waits)


def least_of_pair(
    pair: Pair, tile: ChainTile, splits: bool, instruction: MathInstruction, target: Target
) -> float:
    """What `of_pair` is no less than, told in a fraction of the time: blocks want no shared
    memory."""
    held = chain_tile.registers(pair, tile, splits)
    resident = operands.resident_blocks(tile.threads, held, 1, target)
    waits = _waits(pair, tile) / min(resident, _turns(pair, tile, target))
    return ROUNDED * _cycles(pair, tile, splits, instruction, target, waits)


def _turns(pair: Pair, tile: ChainTile, target: Target) -> float:
    tiles = operands.cover(pair.rows, tile.m) * pair.parts
    # Which share of the last turn is empty differs from batch to batch: half of it is.
    return max(1.0, tiles / target.cores + 0.5)


def _cycles(
    pair: Pair,
    tile: ChainTile,
    splits: bool,
    instruction: MathInstruction,
    target: Target,
    waits: float,
) -> float:
    memory, brought = _traffic(pair, tile)
    weights = sum(pair.weights(index) for index in (0, 1)) * pair.first.source.bytes
    brought += 0 if tile.resident else weights
    products, instructions = _used(pair, tile, splits, instruction)
    both = (memory / contract_cost.MEMORY, brought / _LEVEL_2, products + instructions)
    busy = float(sum(item**_SHARPNESS for item in both) ** (1 / _SHARPNESS))
    took = _turns(pair, tile, target) * (busy + waits)
    took += tile.resident * (weights / _LEVEL_2 + contract_cost.LOAD)
    grouped = pair.first.source.bytes == 2 and contract_group.serves(pair.first, target)
    return took * (_OVER_MODEL if grouped else 1.0)


def _waits(pair: Pair, tile: ChainTile) -> float:
    """Cycles of a block's tile that nothing of its own hides."""
    first, second = (
        chain_tile.units(pair, tile, index)
        * chain_tile.steps(pair.products[index], tile.tiles[index])
        for index in (0, 1)
    )
    parts = tile.second.warp_n if pair.second.y_order is Order.Rows else tile.second.warp_m
    steps = first + (0 if tile.resident else second)
    return steps * _STEP + chain_tile.units(pair, tile, 1) * parts * _PART + _TILE


def of_product(
    pair: Pair, tile: ChainTile, index: int, splits: bool, instruction: MathInstruction
) -> float:
    """What tells tiles of one of both products from each other, for so many rows of a block."""
    return sum(_of_units(pair, tile, index, splits, instruction))


def _traffic(pair: Pair, tile: ChainTile) -> tuple[float, float]:
    """Bytes of a block's X and Y: through memory, and through the level-2 cache."""
    x, y = (
        tile.m * pair.groups[index] * pair.all_lanes[index] * size
        for index, size in (
            (0, pair.first.contracted * pair.first.source.bytes),
            (1, pair.second.produced * pair.second.output.bytes),
        )
    )
    again = operands.cover(pair.first.produced, tile.first.n)
    return x + y, x * again + y


def _used(
    pair: Pair, tile: ChainTile, splits: bool, instruction: MathInstruction
) -> tuple[float, float]:
    """Cycles of the tensor cores and of issue, for a block's rows."""
    (a, b), (c, d) = (_of_units(pair, tile, index, splits, instruction) for index in (0, 1))
    return a + c, b + d


def _of_units(
    pair: Pair, tile: ChainTile, index: int, splits: bool, instruction: MathInstruction
) -> tuple[float, float]:
    work, own = pair.products[index], tile.tiles[index]
    each = contract_cost.units(work, own, splits, instruction.element_accumulator)
    count = chain_tile.units(pair, tile, index)
    return count * each[2], count * each[4]
