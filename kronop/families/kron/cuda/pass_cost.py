"""The cost of a pass of a Kronecker matmul with a given tile, and lower bounds of it."""

from __future__ import annotations

import math

from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import ROUNDED
from kronop.emit.cuda.contraction.simt import SIMT_OVERHEAD
from kronop.emit.cuda.machine import bytes_of_multiply_adds, hertz_of_copies
from kronop.emit.cuda.operands import splits_of
from kronop.families.kron.cuda import contract_choice, few_rows, mma_cost, mma_style, tiles
from kronop.families.kron.cuda.contract_pass import ContractPass
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.pass_design import KronPass, TiledPass
from kronop.families.kron.cuda.shapes import (
    Ends,
    PassShape,
    PassWork,
    Shape,
    multiply_adds,
    shrinking,
)
from kronop.families.kron.cuda.tile import KronTile
from kronop.machine import GPU_LINE, GPU_SECTOR
from kronop.target import Target

# The fraction of the shorter one of memory and arithmetic time that is not hidden, if several
# blocks of a multiprocessor overlap.
_LEAST_EXPOSED = 0.4
_GOOD_RUN_BYTES = 64


def of_element(design: KronPass, target: Target) -> float:
    """The time for many rows, in bytes that memory could move meanwhile for each element of X:
    comparable for any number of rows and columns."""
    if isinstance(design, KronMma):
        each = mma_cost.cycles(design, target, _partial(design))
        return each / few_rows.cycles_of_a_byte(target)
    if isinstance(design, KronTile):
        return _tile_cost(design, target)
    if isinstance(design, ContractPass):
        return contract_choice.of_element(design, target)
    raise TypeError(f"no cost of {design!r}")


def seconds(design: KronPass, rows: int, target: Target) -> float:
    """Modelled time of the pass for `rows` rows of the product's X."""
    return cycles(design, rows, target) / hertz_of_copies(target)


def cycles(design: KronPass, rows: int, target: Target) -> float:
    """Cycles of the pass for `rows` rows."""
    if isinstance(design, ContractPass):
        return contract_choice.cycles(design, rows, target)
    assert isinstance(design, KronTile | KronMma)
    steady = _steady(design, of_element(design, target), target) / design.cluster
    start, alone = 0.0, steady * design.blocks(target)
    if isinstance(design, KronMma):
        start, alone = mma_cost.lone(design, target)
    times = few_rows.TileTimes(start=start, alone=alone, steady=steady)
    return few_rows.cycles(design.tiles(rows) * design.cluster, times, target)


def least(design: KronTile | KronMma, target: Target, rows: int | None) -> float:
    """A lower bound of `of_element`, or of `cycles` for `rows` rows, which is much faster to
    compute."""
    if isinstance(design, KronMma):
        cost = mma_cost.least_cycles(design, target, _partial(design))
        cost /= few_rows.cycles_of_a_byte(target)
    else:
        work = design.work
        arithmetic = _arithmetic(work.shape, work.accumulator, target) * _ragged(design)
        cost = _least_overlapped(work.bytes_per_element, arithmetic)
    cost *= ROUNDED
    if rows is None:
        return cost
    times = few_rows.TileTimes(
        start=0.0, alone=0.0, steady=_steady(design, cost, target) / design.cluster
    )
    return few_rows.cycles(design.tiles(rows) * design.cluster, times, target)


def _steady(design: TiledPass, cost: float, target: Target) -> float:
    """Cycles of one of many tiles, from the cost of an element."""
    elements = design.rows * design.columns * design.work.shape.size_in
    return cost * few_rows.cycles_of_a_byte(target) * elements / 128


def _least_overlapped(memory: float, arithmetic: float) -> float:
    """A lower bound of the cost on the ordinary cores, from memory and arithmetic alone."""
    slow, fast = max(memory, arithmetic), min(memory, arithmetic)
    return (slow + _LEAST_EXPOSED * fast) * SIMT_OVERHEAD


def _partial(design: KronMma) -> float:
    """The factor by which memory takes longer, for short runs and for the tiles' padding."""
    columns, element_bytes = design.columns, design.work.ends.source.bytes
    run = columns if columns > 1 else design.work.shape.size_in
    partial = math.pow(max(1.0, GPU_LINE / (run * element_bytes)), 0.4)
    if columns > 1:
        bytes_of_run = columns * element_bytes
        partial *= 1.15 if bytes_of_run % GPU_SECTOR else 1.05 if bytes_of_run <= GPU_LINE else 1.0
    return partial * _ragged(design)


def _ragged(design: TiledPass) -> float:
    """The factor by which the tiles' rows and columns exceed the free indices."""
    shape, ends = design.work.shape, design.work.ends
    if ends.source_by_rows:
        exist, size = shape.left * shape.right, design.rows
        if exist == 1 and ends.source_alignment > 1:
            return 1.0  # Batches or pieces of X fill the rows: see `TiledPass._cut`.
    else:
        exist, size = shape.right, design.columns
    return operands.cover(exist, size) * size / exist


def _tile_cost(tile: KronTile, target: Target) -> float:
    """Time in bytes per element of X: memory traffic and arithmetic, unless they overlap."""
    shape, accumulator, source = tile.work.shape, tile.work.accumulator, tile.work.ends.source
    run = tile.columns if tile.columns > 1 else shape.size_in
    partial = math.sqrt(max(1.0, _GOOD_RUN_BYTES / (run * source.bytes)))
    if tile.columns > 1 and tile.columns * source.bytes % 32:
        partial *= 1.15
    narrow = 1 + 0.02 * sum(operands.VECTOR_BYTES / (4 * size) for size in tile.vectors)
    memory = tile.work.bytes_per_element * partial * narrow
    elements = shape.size_in * tile.columns * tile.rows
    factors = tile.layout.factor_elements * 0.5 * accumulator.bytes / elements
    arithmetic = _arithmetic(shape, accumulator, target) * _ragged(tile)
    phases = len(tile.phases) * 0.6 * accumulator.bytes / 4
    blocks = tile.blocks(target)
    resident = min(blocks * tile.threads, 512) / 512
    # With two or more resident blocks, one computes while another waits for memory.
    exposed = 1.0 if blocks < 2 else _LEAST_EXPOSED
    slow, fast = max(memory, arithmetic + phases), min(memory, arithmetic + phases)
    return (slow + exposed * fast + factors) * (1 + 0.15 * (1 - resident)) * SIMT_OVERHEAD


def _arithmetic(shape: PassShape, sums: DataType, target: Target) -> float:
    """Multiply-adds of ordinary cores, in bytes per element of X."""
    work = multiply_adds(sorted(shape.factors, key=shrinking), 1, 1) / shape.size_in
    return work * bytes_of_multiply_adds(target, sums)


@mma_style.remembered
def _least_of_mma(
    factors: tuple[Shape, ...], instruction: MathInstruction, ends: Ends, target: Target
) -> float:
    """A lower bound of the cost of all tiles on the tensor cores, wherever the digits stand."""
    work = PassWork(
        math=instruction,
        shape=PassShape(factors=factors, left=1, right=1),
        ends=ends,
        by_columns=True,
        factor_alignment=1,
    )
    least = min(
        mma_cost.least_of_style(style, work.ends.source, work.bytes_per_element, target)
        for style in tiles.every_style(work)
    )
    return least / few_rows.cycles_of_a_byte(target)


def least_of_pass(work: PassWork, target: Target, rows: int | None) -> float:
    """A lower bound for all tiles of a pass, from its traffic and arithmetic."""
    least = work.bytes_per_element
    ordinary = _least_overlapped(least, _arithmetic(work.shape, work.accumulator, target))
    if splits_of(work.math) is None:
        least = ordinary
    elif rows is None and len(work.shape.factors) > 1:
        # The bound of the tensor cores' tiles doesn't hold for a single digit, which may be a
        # contraction, nor for few rows, which have another model.
        least = min(ordinary, _least_of_mma(work.shape.factors, work.math, work.ends, target))
    least *= ROUNDED
    if rows is None:
        return least
    elements = rows * work.shape.columns_in / target.cores
    return few_rows.CYCLES_OF_CALL + least * few_rows.cycles_of_a_byte(target) * elements / 128
