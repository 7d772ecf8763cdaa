"""The cost of a `kron_mma` pass: the planner's model of one multiprocessor.

Memory traffic, tensor cores, shared memory, instruction issue and the latency of a tile overlap:
the time is that of the longest of them, plus a little for the others. The model's constants were
fitted together and are therefore in one file.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT, memory_bytes_per_cycle, warp_slowness
from kronop.families.kron.cuda import bytewise, half
from kronop.families.kron.cuda.bytewise import ByteStyle
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.mma import MmaPhase, MmaTile
from kronop.families.kron.cuda.mma_style import HELD_FACTOR_BYTES, MmaStyle, parts_of, remembered
from kronop.machine import SHARED_BYTES_PER_CYCLE
from kronop.target import Target

# NOTE: fitted to 450 tiles of 29 passes on one H200; the tile that the model chooses is 2 % slower
# than the fastest of them in the mean. Values marked (set) were set by hand, because the fit does
# not determine them.
# Cycles of an MMA of one warp (by the bytes of an accumulator element), and of wgmma per warp;
# below, both for 16-bit operands (set).
_CYCLES_OF_PRODUCT, _CYCLES_OF_WGMMA = {4: 3.18, 8: 14.1}, 1.86
_CYCLES_OF_HALF_PRODUCT, _CYCLES_OF_HALF_WGMMA = 3.0, 1.5
# Cycles to issue an instruction of a warp; the fraction of the instructions that 16-bit tiles need;
# and the factor for tiles whose sizes are not all powers of two, since their index arithmetic has
# carries.
_CYCLES_OF_INSTRUCTION, _HALF_INSTRUCTIONS, _CARRIED_INSTRUCTIONS = 0.212, 0.14, 2.64
# Instructions for each access of a phase of one digit that reads X or writes Y without staging.
_INSTRUCTIONS_OF_END = 10.4
# Instructions to stage an element in each thread of a warp: without carries, and with them (set:
# they are 20 to 30 % of the time of 5^5 and of 48 x 20).
_INSTRUCTIONS_OF_PIECE, _CARRIED_INSTRUCTIONS_OF_PIECE = 2, 8
# Latency of a tile, of each phase, and of a cluster's barriers.
_CYCLES_OF_TILE, _CYCLES_OF_PHASE, _CYCLES_OF_CLUSTER = 74, 70, 8680
# The fraction of a staged tile's memory time that its own phases do not hide; other blocks and
# tiles of the multiprocessor hide it.
_STAGED = 0.63
# Latency between two instructions of a warp.
_CYCLES_BETWEEN = 2.8
# Exponent of the norm in `_overlapped`: the larger, the less the shorter times add to the longest.
_OVERLAP = 3.5
# The factor of latency hiding if a tile exchanges chunks with the next one.
_EXCHANGED = 1.05
# The factor on the cycles of shared memory in a phase that accesses few contiguous bytes of global
# memory, by the bytes of an element.
_SHORT_RUNS = {4: 2.0, 8: 1.0}
# NOTE: fitted to 143 calls with one tile a block inside a CUDA graph, 7 % off in the mean of these.
# Cycles of a thread to prepare one element of the factors.
_CYCLES_OF_FACTOR = 22.0
# Cycles of a lone tile: of a phase, of an instruction, and of one with carries in its indices.
_CYCLES_OF_LONE_PHASE, _CYCLES_OF_LONE, _CYCLES_OF_CARRIED = 313, 2.1, 6.7
# The fraction of the tensor cores' cycles that a lone tile adds to its instructions.
_LONE_PRODUCTS = 0.22
_CYCLES_OF_LONE_CLUSTER = 2000
# The fraction of the instructions that 16-bit tiles need (set: 7 x 31 bounds it on one side, 86 x
# 128 on the other).
_HALF_LONE = 0.4
# A single digit beyond 64 takes twice as long: its factor is loaded in several rounds, and with few
# fibers the MMAs are one dependency chain.
_LONG_LONE = 2.0


@dataclass(slots=True, kw_only=True)
class _Work:
    """The load of some elements of X on a multiprocessor: cycles of its tensor cores and shared
    memory, and instructions."""

    tensor: float = 0.0
    shared: float = 0.0
    instructions: float = 0.0


@dataclass(frozen=True, slots=True)
class _Figures:
    """The sums over all phases of a tile, for 128 elements of X.

    Attributes:
        phases: the number of phases.
        tensor, shared: cycles of the tensor cores and of shared memory.
        instructions: instructions of all warps together, without `ends`.
        ends: instructions of the phases that read X or write Y without staging.
        carries: whether index arithmetic has carries: some size is no power of two.
        hidden: how many tiles of a multiprocessor hide each other's latency.
    """

    phases: int
    tensor: float
    shared: float
    instructions: float
    ends: float
    carries: bool
    hidden: float


def cycles(design: KronMma, target: Target, partial: float) -> float:
    """Cycles of one multiprocessor for 128 elements of X.

    `partial` is the factor by which memory is slower than with full bandwidth.
    """
    figures = _figures(design.tile, design.work.ends.source, target)
    return _cycles(design, target, partial, figures)


def least_cycles(design: KronMma, target: Target, partial: float) -> float:
    """A lower bound of `cycles`: each phase keeps all warps busy, and reading the factors is free.

    It is much faster to compute, because the work of a phase is then the same in all tiles of a
    style, and is cached.
    """
    tile = design.tile
    work, works = _least_work(tile.style, tile.unit, design.work.ends.source)
    hidden = tile.blocks(target) * tile.style.buffers * _EXCHANGED
    return _cycles(
        design, target, partial, _summed(tile.style, not tile.powers, work, works, hidden)
    )


def least_of_style(
    style: MmaStyle, source: DataType, bytes_per_element: float, target: Target
) -> float:
    """A lower bound of `cycles` of every tile of a style: without latency and short runs."""
    work, works = _least_work(style, False, source)
    figures = _summed(style, not style.powers, work, works, 1.0)
    memory = 128 * bytes_per_element / memory_bytes_per_cycle(target)
    issue = _instructions_of(style, figures) * _CYCLES_OF_INSTRUCTION
    return _overlapped(memory, figures.tensor * warp_slowness(target), figures.shared, issue)


@remembered
def _least_work(
    style: MmaStyle, unit: bool, source: DataType
) -> tuple[_Work, tuple[_PhaseWork, ...]]:
    works = _works(style, unit, source)
    work = _Work(
        tensor=sum(item.products * item.rate for item in works),
        shared=sum(item.taken + item.given for item in works),
        instructions=sum(item.instructions for item in works),
    )
    return work, works


def _cycles(design: KronMma, target: Target, partial: float, figures: _Figures) -> float:
    style = design.tile.style
    memory = 128 * design.work.bytes_per_element * partial / memory_bytes_per_cycle(target)
    instructions = _instructions_of(style, figures)
    of_tile = _CYCLES_OF_TILE + _CYCLES_OF_PHASE * figures.phases
    of_tile += _CYCLES_OF_CLUSTER * (style.cluster > 1)
    latency = of_tile * 128 / _held(design)
    latency += instructions * _CYCLES_BETWEEN / (design.threads / 32)
    latency += _STAGED * (style.staged_in + style.staged_out) / 2 * memory
    latency /= figures.hidden
    issue = instructions * _CYCLES_OF_INSTRUCTION
    return _overlapped(
        memory, figures.tensor * warp_slowness(target), figures.shared, issue, latency
    )


def _instructions_of(style: MmaStyle, figures: _Figures) -> float:
    """Instructions of warps for 128 elements of X."""
    instructions = figures.instructions + figures.ends
    if figures.carries:
        instructions *= _CARRIED_INSTRUCTIONS
    return instructions * (_HALF_INSTRUCTIONS if isinstance(style, HalfStyle) else 1)


def lone(design: KronMma, target: Target) -> tuple[float, float]:
    """Cycles to prepare a block's factors, and of a tile whose latency no other one hides."""
    style, threads = design.tile.style, design.threads
    figures = _figures(design.tile, design.work.ends.source, target)
    elements = sum(style.factors_bytes()) / 4 / threads
    each = _CYCLES_OF_CARRIED if figures.carries else _CYCLES_OF_LONE
    each *= _HALF_LONE if isinstance(style, HalfStyle) else 1
    of_warp = figures.instructions / (threads / 32) * each + figures.tensor * _LONE_PRODUCTS
    held = _held(design)
    of_tile = of_warp * held / 128 + figures.phases * _CYCLES_OF_LONE_PHASE
    of_tile += _CYCLES_OF_LONE_CLUSTER * (style.cluster > 1)
    if len(style.digits) == 1 and style.digits[0][0] > 64:
        elements, of_tile = elements * _LONG_LONE, of_tile * _LONG_LONE
    memory = design.work.bytes_per_element * held / memory_bytes_per_cycle(target)
    return elements * _CYCLES_OF_FACTOR, max(of_tile, memory)


def _held(design: KronMma) -> float:
    """Elements of X in a block."""
    tile = design.tile
    return tile.rows * tile.columns * design.work.shape.size_in / tile.style.cluster


@functools.lru_cache(maxsize=1 << 16)
def _figures(tile: MmaTile, source: DataType, target: Target) -> _Figures:
    style, unit = tile.style, tile.unit
    works = _works(style, unit, source)
    work = _Work()
    for item, phase in zip(works, tile.phases, strict=True):
        digit = style.digits[phase.digit]
        in_rows = isinstance(style, HalfStyle)
        last = unit and phase.digit == len(style.digits) - 1
        idle = _idle(phase, tile.threads // 32, in_rows and not last)
        if in_rows:
            read = half.factor_bytes_read(digit, phase.wgmma, phase.fiber_tiles)
            factor = read * item.elements / digit[0] / SHARED_BYTES_PER_CYCLE
        else:
            factor = _factor_cycles(style, phase, item.elements)
        work.instructions += item.instructions * idle
        work.tensor += item.products * idle * item.rate
        work.shared += factor * idle + item.taken
        work.shared += item.given
    exchanged = _EXCHANGED if tile.exchanged else 1.0
    hidden = tile.blocks(target) * style.buffers * exchanged
    return _summed(style, not tile.powers, work, works, hidden)


def _summed(
    style: MmaStyle, carries: bool, work: _Work, works: tuple[_PhaseWork, ...], hidden: float
) -> _Figures:
    """The figures of a tile from the sums (`work`) and the work of each phase (`works`)."""
    staged = style.staged_in + style.staged_out
    width = style.element_bytes / SHARED_BYTES_PER_CYCLE
    piece = _CARRIED_INSTRUCTIONS_OF_PIECE if carries else _INSTRUCTIONS_OF_PIECE
    direct = 128 / 32 * _INSTRUCTIONS_OF_END * (2 - staged)
    elements = works[-1].produced
    return _Figures(
        phases=len(works),
        tensor=work.tensor,
        shared=work.shared + elements * width * staged,
        instructions=work.instructions + elements / 32 * piece * staged,
        ends=0.0 if works[0].paired else direct,
        carries=carries,
        hidden=hidden,
    )


class _PhaseWork(NamedTuple):
    """The work of one phase for 128 elements of X, if no warp is idle.

    Attributes:
        elements, produced: the elements that the phase reads and writes.
        products, rate: MMAs, and the cycles of one.
        taken, given: cycles of shared memory to read `elements` and to write `produced`.
        paired: whether the phase contracts two digits.
    """

    elements: float
    produced: float
    instructions: float
    products: float
    rate: float
    taken: float
    given: float
    paired: bool


@remembered
def _works(style: MmaStyle, unit: bool, source: DataType) -> tuple[_PhaseWork, ...]:
    """The work of each phase in the order of execution.

    `unit`: whether the last digit is contiguous in the tile.
    """
    found: list[_PhaseWork] = []
    elements, order = 128.0, style.order()
    in_rows, last = isinstance(style, HalfStyle), len(style.digits) - 1
    width = style.element_bytes / SHARED_BYTES_PER_CYCLE
    runs = _SHORT_RUNS[style.accumulator.bytes]
    for index, (digit, other) in enumerate(order):
        p, q = style.digits[digit]
        wgmma = other is None and style.uses_wgmma((p, q))
        # Without staging, a warp accesses few contiguous bytes of the contiguous digit.
        short = unit and digit == last and not in_rows
        reads = short and index == 0 and not style.staged_in
        writes = short and index == len(order) - 1 and not style.staged_out
        planes = bytewise.planes(index, source) if isinstance(style, ByteStyle) else 0
        products = _products(style, digit, other, elements, planes)
        instructions = _instructions(p, 1 if other is None else 2, style.splits, elements)
        instructions += products * (not wgmma)
        instructions += elements / 32 * planes  # Gathers the bytes of a plane, shifts its sums.
        produced = elements
        for each in (digit,) if other is None else (digit, other):
            produced *= style.digits[each][1] / style.digits[each][0]
        found.append(
            _PhaseWork(
                elements=elements,
                produced=produced,
                instructions=instructions,
                products=products,
                rate=_cycles_of_product(style, wgmma),
                taken=elements * width * (runs if reads and p > 8 else 1),
                given=produced * width * (runs if writes and q > 8 else 1),
                paired=other is not None,
            )
        )
        elements = produced
    return tuple(found)


def _overlapped(*cycles: float) -> float:
    """Cycles of activities that overlap: those of the longest, and a little for the others."""
    return float(sum(item**_OVERLAP for item in cycles) ** (1 / _OVERLAP))


def _cycles_of_product(style: MmaStyle, wgmma: bool) -> float:
    if isinstance(style, HalfStyle):
        return _CYCLES_OF_HALF_WGMMA if wgmma else _CYCLES_OF_HALF_PRODUCT
    return _CYCLES_OF_WGMMA if wgmma else _CYCLES_OF_PRODUCT[style.accumulator.bytes]


def _instructions(contracted: int, digits: int, splits: bool, elements: float) -> float:
    """Instructions of warps to split, sum up and move `elements` elements of a phase."""
    # A digit beyond 64 produces its results in two halves, and splits its elements for each.
    split = (3 if splits else 1) * digits * (1 if contracted <= 64 else 2)
    sums = 1 + parts_of(contracted) / 2 if splits else 1
    return elements / 32 * (split + 4 + sums)


def _products(
    style: MmaStyle, digit: int, other: int | None, elements: float, planes: int
) -> float:
    """Products of the tensor cores for `elements` elements of a phase."""
    p, q = style.digits[digit]
    if isinstance(style, HalfStyle):
        return half.products((p, q)) * elements / p
    if planes:
        return bytewise.steps(p) * parts_of(q) * elements / (16 * p) * planes
    each = PRODUCTS_OF_SPLIT if style.splits else 1
    if other is None:
        return parts_of(p) * parts_of(q) * elements / (16 * p) * each
    p2, q2 = style.digits[other]
    rows = operands.cover(q, 16)
    first = 2 if q <= 8 and style.splits else each
    left = parts_of(p) * parts_of(p2) * rows * first
    right = (0.5 if q <= 8 else rows) * parts_of(p2) * parts_of(q2) * each
    return (left + right) * elements / (p * p2)


def _factor_cycles(style: MmaStyle, phase: MmaPhase, elements: float) -> float:
    """Cycles of shared memory to read the factors that a phase can't keep in registers."""
    if phase.wgmma:
        return 0.0
    p, q = style.digits[phase.digit]
    parts = parts_of(p) * parts_of(q)
    if phase.other is None:
        whole = style.factor_bytes((p, q))
        cycles = whole / SHARED_BYTES_PER_CYCLE * elements / (16 * p) / phase.fiber_tiles
        return 0 if whole <= 32 * HELD_FACTOR_BYTES else cycles
    fragment = style.factor_bytes((8, 8)) / SHARED_BYTES_PER_CYCLE
    p2, q2 = style.digits[phase.other]
    parts += parts_of(p2) * parts_of(q2)
    return 0 if parts <= 2 else parts * elements / (p * p2) * fragment


def _idle(phase: MmaPhase, warps: int, rows: bool) -> float:
    """The factor by which a phase takes longer because its fibers (in 16-bit tiles: rows of them)
    leave warps idle in the last round."""
    at_once = (2 if rows else 16) * phase.fiber_tiles if phase.other is None else phase.lanes
    pieces = operands.cover(phase.fibers, at_once)
    return operands.cover(pieces, warps) * warps / pieces
