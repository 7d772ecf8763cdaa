"""What a fused pair costs, in cycles of a call; see contract_cost for the units."""

from __future__ import annotations

import math

from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import chain_tile, contract_cost, operands
from kronop.emit.cuda.chain_pair import Pair
from kronop.emit.cuda.chain_tile import ChainTile
from kronop.target import Target

# Cycles between a launch and the next one that waits for it: the chip drains and fills.
OF_A_LAUNCH = 4000.0


def of_pair(
    pair: Pair, tile: ChainTile, splits: bool, instruction: MathInstruction, target: Target
) -> float:
    """Cycles of a call: its blocks' tiles of rows fill so many turns of the multiprocessors."""
    traffic = _traffic(pair, tile)
    used = _used(pair, tile, splits, instruction)
    weights = sum(pair.weights(index) for index in (0, 1)) * pair.first.source.bytes
    first, second = (
        chain_tile.units(pair, tile, index)
        * chain_tile.steps(pair.products[index], tile.tiles[index])
        for index in (0, 1)
    )
    level_2 = traffic[1] + (0 if tile.resident else weights)
    busy = math.hypot(traffic[0] / contract_cost.MEMORY, level_2 / contract_cost.LEVEL_2, *used)
    waits = max(contract_cost.STEP, contract_cost.LOAD / max(1, tile.stages - 1))
    alone = contract_cost.BLOCK + (first + (0 if tile.resident else second)) * waits + busy
    resident = chain_tile.blocks(pair, tile, splits, instruction, target)
    turns = operands.cover(operands.cover(pair.rows, tile.m) * pair.parts, target.cores)
    took = turns * max(busy, alone / min(resident, turns))
    return took + tile.resident * (weights / contract_cost.LEVEL_2 + contract_cost.LOAD)


def of_product(
    pair: Pair, tile: ChainTile, index: int, splits: bool, instruction: MathInstruction
) -> float:
    """What tells tiles of one of both products from each other, for so many rows of a block."""
    return math.hypot(*_of_units(pair, tile, index, splits, instruction))


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
) -> tuple[float, ...]:
    """Cycles of the tensor cores, of shared memory, of issue, for a block's rows."""
    both = [_of_units(pair, tile, index, splits, instruction) for index in (0, 1)]
    return tuple(map(sum, zip(*both, strict=True)))


def _of_units(
    pair: Pair, tile: ChainTile, index: int, splits: bool, instruction: MathInstruction
) -> tuple[float, ...]:
    work, own = pair.products[index], tile.tiles[index]
    each = contract_cost.units(work, own, splits, instruction.element_accumulator)
    count = chain_tile.units(pair, tile, index)
    return tuple(count * item for item in each[2:])
