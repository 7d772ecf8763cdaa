"""What a pass of a Kronecker matmul costs in a tile, and what it costs at least."""

from __future__ import annotations

import math

from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction.cost import SIMT_OVERHEAD
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.operands import splits_of
from kronop.families.kron.cuda import contract_pass, few_rows, mma, mma_cost, mma_resources, tile
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.shapes import Ends, PassShape, multiply_adds, shrinking
from kronop.families.kron.cuda.tile import TileShape
from kronop.families.kron.cuda.tiles import Key
from kronop.target import Target

# NOTE: one H200 copies 4.28 TB/s and does about 25 T multiply-adds/s in float32: 0.17 bytes each.
_BYTES_OF_MULTIPLY_ADD = 0.17
# What of the shorter one of memory and arithmetic is not hidden by the other, where blocks overlap.
_LEAST_EXPOSED = 0.4
_GOOD_RUN_BYTES = 64
_WHOLE_LINES = 128


def cost(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape | ContractDesign,
    target: Target,
    rows: int | None,
) -> float:
    """Of many rows in bytes per element of X, of `rows` rows in cycles."""
    accumulator = key.math.element_accumulator
    if isinstance(candidate, ContractDesign):
        return contract_pass.cost(shape, candidate, target, rows)
    if isinstance(candidate, MmaTile):
        partial = _partial(shape, ends, candidate)
        splits, digits = bool(splits_of(key.math)), mma.merge(shape, candidate.merged)
        cost = mma_cost.cycles(digits, ends, candidate, splits, accumulator, target, partial)
        cost /= few_rows.CYCLES_OF_A_BYTE
    else:
        cost = _tile_cost(shape, ends, candidate, accumulator, target)
    if rows is None:
        return cost
    elements = candidate.rows * candidate.columns * shape.group_in
    steady = cost * few_rows.CYCLES_OF_A_BYTE * elements / 128
    count = few_rows.tiles_of(rows, shape, ends, candidate)
    if isinstance(candidate, MmaTile):
        start, alone = mma_cost.lone(digits, ends, candidate, splits, accumulator, target)
        count, steady = count * candidate.cluster, steady / candidate.cluster
    else:
        start, alone = 0.0, steady * blocks(key, shape, candidate, target)
    times = few_rows.TileTimes(start=start, alone=alone, steady=steady)
    return few_rows.cycles(count, times, target)


def least(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape,
    splits: bool,
    target: Target,
    rows: int | None,
) -> float:
    """What `_cost` of a tile of digits is no less than, told in a fraction of the time."""
    accumulator, blocks = key.math.element_accumulator, 1
    if isinstance(candidate, MmaTile):
        partial, blocks = _partial(shape, ends, candidate), candidate.cluster
        digits = mma.merge(shape, candidate.merged)
        cost = mma_cost.least_cycles(digits, ends, candidate, splits, accumulator, target, partial)
        cost /= few_rows.CYCLES_OF_A_BYTE
    else:
        arithmetic = _arithmetic(shape, accumulator.bytes) * _ragged(shape, ends, candidate)
        cost = _least_overlapped(_traffic(shape, ends), arithmetic)
    cost *= ROUNDED
    if rows is None:
        return cost
    elements = candidate.rows * candidate.columns * shape.group_in
    steady = cost * few_rows.CYCLES_OF_A_BYTE * elements / 128
    count = few_rows.tiles_of(rows, shape, ends, candidate) * blocks
    times = few_rows.TileTimes(start=0.0, alone=0.0, steady=steady / blocks)
    return few_rows.cycles(count, times, target)


def _traffic(shape: PassShape, ends: Ends) -> float:
    """Bytes of memory for an element of X, and for what it produces."""
    return ends.source.bytes + ends.output.bytes * shape.group_out / shape.group_in


def _least_overlapped(memory: float, arithmetic: float) -> float:
    """What of both ordinary cores take at least, where all else is free."""
    slow, fast = max(memory, arithmetic), min(memory, arithmetic)
    return (slow + _LEAST_EXPOSED * fast) * SIMT_OVERHEAD


def _partial(shape: PassShape, ends: Ends, candidate: TileShape) -> float:
    """How much longer memory takes for short runs and for columns that do not exist."""
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = _ragged(shape, ends, candidate)
    partial = math.pow(max(1.0, _WHOLE_LINES / (run * ends.source.bytes)), 0.4)
    if candidate.columns > 1:
        bytes_of_run = candidate.columns * ends.source.bytes
        partial *= 1.15 if bytes_of_run % 32 else 1.05 if bytes_of_run <= _WHOLE_LINES else 1.0
    return partial * ragged


def _ragged(shape: PassShape, ends: Ends, candidate: TileShape) -> float:
    """How much more tiles hold than there is, across the digits around the group."""
    if ends.source_by_rows:
        exist, size = shape.left * shape.right, candidate.rows
    else:
        exist, size = shape.right, candidate.columns
    return operands.cover(exist, size) * size / exist


def _tile_cost(
    shape: PassShape, ends: Ends, candidate: TileShape, accumulator: DataType, target: Target
) -> float:
    """Time in bytes per element of X: traffic, arithmetic, and what does not overlap."""
    x, y = ends.source.bytes, ends.output.bytes * shape.group_out / shape.group_in
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = _ragged(shape, ends, candidate)
    partial = math.sqrt(max(1.0, _GOOD_RUN_BYTES / (run * ends.source.bytes)))
    if candidate.columns > 1 and candidate.columns * ends.source.bytes % 32:
        partial *= 1.15
    vectors = tile.vectors(shape, ends, candidate)
    narrow = 1 + 0.02 * sum(operands.VECTOR_BYTES / (4 * size) for size in vectors)
    memory = (x + y) * partial * narrow
    layout = tile.layout_of(shape, candidate, accumulator)
    elements = shape.group_in * candidate.columns * candidate.rows
    factors = layout.factor_elements * 0.5 * accumulator.bytes / elements
    arithmetic = _arithmetic(shape, accumulator.bytes) * ragged
    phases = len(tile.phases_of(shape, candidate, accumulator)) * 0.6 * accumulator.bytes / 4
    blocks = _simt_blocks(shape, candidate, accumulator, target)
    resident = min(blocks * candidate.threads, 512) / 512
    # Two or more resident blocks overlap one's memory with another's arithmetic.
    exposed = 1.0 if blocks < 2 else _LEAST_EXPOSED
    slow, fast = max(memory, arithmetic + phases), min(memory, arithmetic + phases)
    return (slow + exposed * fast + factors) * (1 + 0.15 * (1 - resident)) * SIMT_OVERHEAD


def _arithmetic(shape: PassShape, accumulator_bytes: int) -> float:
    """Multiply-adds of ordinary cores, in bytes per element of X."""
    work = multiply_adds(sorted(shape.group, key=shrinking), 1, 1) / shape.group_in
    return work * _BYTES_OF_MULTIPLY_ADD * accumulator_bytes / 4


def blocks(key: Key, shape: PassShape, candidate: TileShape, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    accumulator = key.math.element_accumulator
    if isinstance(candidate, MmaTile):
        splits, digits = bool(splits_of(key.math)), mma.merge(shape, candidate.merged)
        return mma_resources.blocks_of(digits, candidate, splits, accumulator, target)
    return _simt_blocks(shape, candidate, accumulator, target)


def _simt_blocks(
    shape: PassShape, candidate: TileShape, accumulator: DataType, target: Target
) -> int:
    wanted = tile.shared_bytes(
        tile.layout_of(shape, candidate, accumulator), candidate, accumulator
    )
    registers = tile.registers(shape, accumulator)
    return operands.resident_blocks(candidate.threads, registers, wanted, target)


def least_of_pass(
    instruction: MathInstruction, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> float:
    """What no tile of a pass costs less than, in the unit of `cost`: its traffic, and where there
    are no tensor cores its arithmetic."""
    least = _traffic(shape, ends)
    if splits_of(instruction) is None:
        least = _least_overlapped(least, _arithmetic(shape, instruction.element_accumulator.bytes))
    least *= ROUNDED
    if rows is None:
        return least
    elements = rows * shape.columns_in / target.cores
    return few_rows.CYCLES_OF_CALL + least * few_rows.CYCLES_OF_A_BYTE * elements / 128
