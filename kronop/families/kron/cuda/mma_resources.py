"""What a tile of a `kron_mma` pass takes of a multiprocessor, and whether it fits."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, float32
from kronop.emit.cuda import operands
from kronop.families.kron.cuda import bytewise, half
from kronop.families.kron.cuda.mma import (
    MOST_CONTRACTED,
    MOST_DIGITS,
    MmaPhase,
    MmaTile,
    Style,
    digits_of_phases,
    is_grouped,
    lanes_of,
    parts_of,
    powers,
    row_stride,
    strides_of,
    tile_bytes,
)
from kronop.families.kron.cuda.shapes import PassShape, Shape
from kronop.target import Target

HELD_FACTOR_BYTES = 64
_OFFSETS_OF_A_ROW = 3 * 8
# Measured with ptxas 13.4: what addresses and loops take besides; and how much of all this it gets
# by with where it has to, without a spill.
_REGISTERS_PLAIN, _REGISTERS_OTHERS, _REGISTERS_LONG = 56, 80, 32
_REGISTERS_SHARE = 0.72


def registers(shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType) -> int:
    """An estimate of the registers of a thread: fibers, factor parts, sums, addresses."""
    return _registers(shape.group, tile.style, tile.columns > 1, splits, accumulator)


@functools.lru_cache(maxsize=4096)
def _registers(
    group: tuple[Shape, ...], style: Style, columns: bool, splits: bool, accumulator: DataType
) -> int:
    if style.half:
        together = [is_grouped(digit, style) for digit in group]
        return half.registers(group, style.staged_out, together)
    wanted = max(
        _registers_of_digit(group, digit, splits, accumulator)
        if other is None
        else _registers_of_pair(group, digit, other, splits, accumulator)
        for digit, other in digits_of_phases(group, style)
    )
    # Odd sizes are walked with more index arithmetic.
    plain = all(size & (size - 1) == 0 for digit in group for size in digit)
    other = _REGISTERS_PLAIN if plain else _REGISTERS_OTHERS
    # NOTE: at P = 64 three blocks of 168 registers spilled a little and took 0.85 ms where two of
    # 240 took 0.74.
    long = max(parts_of(p) for p, _ in group) >= 8
    most = max(p for p, _ in group)
    share = _REGISTERS_SHARE if most <= (64 if style.grouped else 32) else 1.0
    spare = _spare_registers(group, style, columns, accumulator, plain)
    return min(255, round(share * (wanted + other + _REGISTERS_LONG * long)) + spare)


def _spare_registers(
    group: tuple[Shape, ...], style: Style, columns: bool, accumulator: DataType, plain: bool
) -> int:
    """NOTE: NVRTC 13.0 spilled 4 to 130 bytes without these."""
    spare = 4 * columns + 24 * (accumulator.bytes == 8)
    if style.pairs and not plain:
        spare += 32 if any(q > p for p, q in group) else 24
    if style.grouped and len(set(group)) > 1:
        spare += 4 if plain else 16
    alone = not (style.staged_in or style.pairs or style.grouped or style.half)
    if alone and len(group) > 3 and min(p for p, _ in group) > 8:
        spare += 56
    return spare


def _registers_of_digit(
    group: tuple[Shape, ...], index: int, splits: bool, accumulator: DataType
) -> int:
    words, digit = accumulator.bytes // 4, group[index]
    groups = lanes_of(group, index, None, accumulator, False) // 2
    parts = parts_of(digit[0]) * parts_of(digit[1])
    fragment = 2 * words * (1 + splits)
    at_once = min(parts_of(digit[1]), (2 if parts_of(digit[0]) > 8 else 4) // groups)
    if bytewise.takes(accumulator):
        return bytewise.registers(digit, groups, at_once)
    held = (parts_of(digit[0]) + 1 + splits) * 4 * groups * words
    sums = at_once * groups * 4 * words * (1 + splits)
    factor = fragment * (parts if parts * fragment * 4 <= HELD_FACTOR_BYTES else at_once)
    return held + sums + factor


def _registers_of_pair(
    group: tuple[Shape, ...], digit: int, other: int, splits: bool, accumulator: DataType
) -> int:
    words = accumulator.bytes // 4
    (p1, q1), (p2, q2) = group[digit], group[other]
    lanes = lanes_of(group, digit, other, accumulator, True)
    sets = lanes // 2 if q1 <= 8 else lanes
    held = lanes * parts_of(p1) * parts_of(p2) * 2
    sums = sets * parts_of(q2) * 4 + parts_of(p2) * 8 * (1 + splits)
    return (held + sums + 8 * (1 + splits)) * words


def factor_bytes(digit: tuple[int, int], splits: bool, accumulator: DataType) -> int:
    """Bytes of one factor as its phase's threads take it."""
    if bytewise.takes(accumulator):
        return bytewise.factor_bytes(digit)
    return parts_of(digit[0]) * parts_of(digit[1]) * 32 * 2 * (1 + splits) * accumulator.bytes


def _left_factor_bytes(digit: tuple[int, int], splits: bool, accumulator: DataType) -> int:
    """The same for the digit that a pair contracts first: 16 produced indices at a time."""
    stacked = digit[1] <= 8
    elements = 4 * (1 + (splits and not stacked))
    return parts_of(digit[0]) * operands.cover(digit[1], 16) * 32 * elements * accumulator.bytes


def factors_bytes(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType
) -> tuple[int, ...]:
    """Bytes of each digit's factor in shared memory."""
    return _factors_bytes(shape.group, tile.style, splits, accumulator)


@functools.lru_cache(maxsize=4096)
def _factors_bytes(
    group: tuple[Shape, ...], style: Style, splits: bool, accumulator: DataType
) -> tuple[int, ...]:
    first = {d for d, other in digits_of_phases(group, style) if other is not None}

    def size(index: int, digit: Shape) -> int:
        if style.half:
            return half.factor_bytes(digit, is_grouped(digit, style))
        if index in first:
            return _left_factor_bytes(digit, splits, accumulator)
        if is_grouped(digit, style):
            digit = (digit[0], operands.round_up(digit[1], 64 if digit[1] > 32 else 32))
        return factor_bytes(digit, splits, accumulator)

    return tuple(size(index, digit) for index, digit in enumerate(group))


def offset_bytes(tile: MmaTile) -> int:
    """Bytes of the row offsets of one of the tiles that are in flight."""
    return operands.round_up(_OFFSETS_OF_A_ROW * tile.rows, operands.VECTOR_BYTES)


def offset_tiles(tile: MmaTile) -> int:
    """So many tiles are in flight: the one at work and the next; and, where these two may be
    exchanged, the one after, which memory is asked for."""
    return 3 if _may_exchange(tile) else 2


def _may_exchange(tile: MmaTile) -> bool:
    staged = tile.staged_in or tile.staged_out
    # Phases of 16-bit tiles have a loop of their own, which is not cut into chunks.
    return tile.rows == tile.columns == tile.cluster == 1 and not (staged or tile.half)


def exchanged(shape: PassShape, tile: MmaTile, phases: Sequence[MmaPhase]) -> int:
    """Fibers of the first phase in each chunk that it exchanges with the last one; 0 if it cannot.

    A chunk is all indices of both phases' digits, at one of those between: the last phase of a tile
    reads where the first one of the next writes, without a barrier between.
    """
    first, last = phases[0], phases[-1]
    if not (_may_exchange(tile) and len(phases) > 2 and powers(shape.group, tile)):
        return 0
    square = all(p == q for p, q in shape.group)
    if not square or max(last.digits) > min(first.digits) or first.grouped != last.grouped:
        return 0
    each = math.prod(shape.group[digit][0] for digit in last.digits)
    # Each turn of a warp is some whole chunks, and of the first phase all that it takes at once.
    tasks, crews = first.fibers // first.at_once, tile.threads // (128 if first.grouped else 32)
    if not tasks or first.at_once % each or last.fibers % (tasks * last.at_once):
        return 0
    return each if tasks % max(crews, 1) == 0 else 0


def shared_bytes(shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType) -> int:
    """Row offsets, factors, and the tile where more than one phase meets in it."""
    factors = sum(factors_bytes(shape, tile, splits, accumulator))
    elements = row_stride(shape, tile, strides_of(shape, tile, accumulator)) * tile.rows
    meets = tile.staged_in or tile.staged_out or len(shape.group) - tile.pairs > 1
    spare = half.SPARE_BYTES * tile.half
    offsets = offset_tiles(tile) * offset_bytes(tile)
    return (
        offsets + factors + spare + elements * tile_bytes(tile, accumulator) * meets * tile.buffers
    )


def blocks_of(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType, target: Target
) -> int:
    """Blocks that a multiprocessor holds."""
    wanted = shared_bytes(shape, tile, splits, accumulator)
    return operands.resident_blocks(
        tile.threads, registers(shape, tile, splits, accumulator), wanted, target
    )


@functools.lru_cache(maxsize=1 << 16)
def fits(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType, target: Target
) -> Status:
    """Whether `kron_mma` can run this pass with this tile: the one rule."""
    status = serves(shape, tile, accumulator, target)
    if not status:
        return status
    largest = max(p for p, _ in shape.group)
    if largest > MOST_CONTRACTED:
        return Status.reject(
            f"a digit of {largest} does not fit a thread's registers, at most {MOST_CONTRACTED}"
        )
    if not 32 <= tile.threads <= 1024 or tile.threads % 32:
        return Status.reject(
            f"{tile.threads} threads of a block, expected 32 to 1024; change warp_count"
        )
    wanted = shared_bytes(shape, tile, splits, accumulator)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile.rows} x {shape.group_in} x {tile.columns} wants {wanted} bytes"
            f" of shared memory, {target.shared_bytes} are there; use a smaller tile"
        )
    most = operands.REGISTERS // operands.round_up(registers(shape, tile, splits, accumulator), 8)
    if tile.threads > most:
        return Status.reject(
            f"{tile.threads} threads leave too few registers, at most {most // 32 * 32} fit;"
            " change warp_count"
        )
    return Status.accept()


def serves(shape: PassShape, tile: MmaTile, accumulator: DataType, target: Target) -> Status:
    """The part of it that asks for no sizes: whether there is such a kernel."""
    if len(shape.group) > MOST_DIGITS:
        return Status.reject(f"{len(shape.group)} factors in one pass, at most {MOST_DIGITS}")
    status = _fits_cluster(shape, tile, target) and _fits_groups(tile, accumulator, target)
    return status and half.fits(shape, tile, target) if tile.half else status


def _fits_groups(tile: MmaTile, accumulator: DataType, target: Target) -> Status:
    if not tile.grouped:
        return Status.accept()
    if target.arch != "sm_90a" or accumulator is not float32:
        return Status.reject(f"{target} has no products of warp groups for {accumulator}")
    if tile.threads % 128:
        return Status.reject(f"{tile.threads} threads are no groups of four warps")
    return Status.accept()


def _fits_cluster(shape: PassShape, tile: MmaTile, target: Target) -> Status:
    if tile.cluster == 1:
        return Status.accept()
    if target.generation < 9:
        return Status.reject(f"{target} has no clusters of blocks; use a cluster of 1")
    if tile.staged_in or tile.staged_out or len(shape.group) <= max(1, 2 * tile.pairs):
        return Status.reject("the first digit of a cluster's tile goes from memory to memory alone")
    if shape.group[0][0] % tile.cluster:
        return Status.reject(
            f"{tile.cluster} blocks do not share a digit of {shape.group[0][0]} evenly"
        )
    return Status.accept()
