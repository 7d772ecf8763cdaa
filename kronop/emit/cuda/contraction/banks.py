"""Pitches of `contract_mma`'s tiles in shared memory, chosen by counting bank conflicts.

NOTE: shared memory has 32 banks of 4 bytes; accesses of 8 and 16 bytes are served by half and by
quarter warps. Asynchronous copies request sectors of 32 bytes from the level-2 cache; a sector
whose halves go to different sectors of shared memory is requested twice.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.work import Order
from kronop.machine import BANK_BYTES, BANKS, GPU_SECTOR, SHARED_BYTES_PER_CYCLE, WARP

_MATRIX_ROWS = 8


class Pitch(NamedTuple):
    """`stride`: elements from one run to the next. `cycles`: shared memory cycles per element."""

    stride: int
    cycles: float


@functools.cache
def pitch(
    run: int, order: Order, lanes: int, warp_lanes: int, element: DataType, spread: bool
) -> Pitch:
    """The pitch of an operand with the fewest conflicts of its fragments.

    Args:
        run: elements of a contiguous run: [k], [wide] or [k][lanes], depending on the order.
        lanes, warp_lanes: lanes of a block and of a warp.
        spread: whether neighbouring contracted indices go to the four threads of a quad; otherwise
            each thread has two neighbours.
    """
    if element.bytes == 1:
        return _of_bytes(run, order, lanes, warp_lanes)
    # The two contracted indices of a thread are one run if its warp has all lanes.
    joined = element.bytes == 2 and not spread and lanes == warp_lanes
    together = 2 * lanes if joined else warp_lanes
    vector = min(operands.vector_of(element), together & -together)

    def place(lane: int, stride: int) -> int:
        g, t = divmod(lane, 4)
        step = t if spread else 2 * t
        # The swizzle of `Crossed` in warp_group_tiles.cuh.
        crossed = g // 4 * 4 if spread else 0
        return {
            Order.Own: g * stride + (step ^ crossed),
            Order.Rows: step * stride + g,
            Order.Lanes: g * stride + step * lanes,
        }[order]

    if element.bytes == 2 and order is not Order.Lanes:
        # Matrices of rows of 16 bytes, eight at a time.
        return _best(run, element.bytes, _MATRIX_ROWS, lambda lane, stride: lane % 8 * stride)
    width = {Order.Own: 1 if spread else 2, Order.Rows: 1, Order.Lanes: vector}[order]
    return _best(run, element.bytes, width, place, GPU_SECTOR)


def _of_bytes(run: int, order: Order, lanes: int, warp_lanes: int) -> Pitch:
    """The pitch for 8-bit elements: a thread has four neighbours, in one run if its warp has all
    lanes.

    If rows are contiguous, two 8 x 8 matrices are loaded at a time; see contract_bytes.cuh.
    """
    if order is Order.Rows:
        return _best(run, 1, 16, lambda row, stride: (row % 8 // 2 * 4 + row % 2) * stride)
    together = 4 * warp_lanes if lanes == warp_lanes else warp_lanes
    width = min(operands.VECTOR_BYTES, together & -together)
    return _best(run, 1, width, lambda lane, stride: lane // 4 * stride + lane % 4 * 4 * lanes)


@functools.cache
def results_pitch(run: int, order: Order, lanes: int, accumulator: DataType, pairs: bool) -> Pitch:
    """The pitch of the results, of which a thread has rows g, g + 8 and outputs 2 t, 2 t + 1.

    Args:
        pairs: whether the rows are 2 g and 2 g + 1 instead.
    """
    row = 2 if pairs else 1

    def place(lane: int, stride: int) -> int:
        g, t = divmod(lane, 4)
        return {
            Order.Own: row * g * stride + 2 * t,
            Order.Rows: 2 * t * stride + row * g,
            Order.Lanes: row * g * stride + 2 * t * lanes,
        }[order]

    joined = order is Order.Own or (order is Order.Rows and pairs)
    return _best(run, accumulator.bytes, 2 if joined else 1, place)


@functools.cache
def deposit_pitch(run: int, order: Order, lanes: int, team_lanes: int, output: DataType) -> int:
    """The pitch of a team's finished results, which threads store with vectorised accesses."""
    if output.bytes == 2 and lanes == 1:
        return _best(run, 2, _MATRIX_ROWS, lambda lane, stride: lane % 8 * stride).stride
    together = {
        Order.Own: 2,
        Order.Rows: 1,
        Order.Lanes: 2 * lanes if lanes == team_lanes else team_lanes,
    }[order]
    width = min(operands.vector_of(output), together & -together)

    def place(lane: int, stride: int) -> int:
        g, t = divmod(lane, 4)
        return {
            Order.Own: g * stride + 2 * t,
            Order.Rows: 2 * t * stride + g,
            Order.Lanes: g * stride + 2 * t * lanes,
        }[order]

    return _best(run, output.bytes, width, place).stride


def _best(
    run: int,
    size: int,
    width: int,
    place: Callable[[int, int], int],
    whole: int = operands.VECTOR_BYTES,
) -> Pitch:
    """The smallest pitch, a multiple of `whole` bytes, among those with the fewest conflicts."""
    piece = whole // size
    first = operands.round_up(run, piece)
    together = min(WARP, SHARED_BYTES_PER_CYCLE // max(BANK_BYTES, size * width))
    ways, stride = min(
        (_ways(stride, size, width, together, place), stride)
        for stride in range(first, first + SHARED_BYTES_PER_CYCLE // size, piece)
    )
    return Pitch(stride, ways / (width * together))


def _ways(
    stride: int, size: int, width: int, together: int, place: Callable[[int, int], int]
) -> int:
    """Shared memory cycles (bank conflicts included) for the threads that are served together."""
    words = {
        (place(lane, stride) * size + byte) // BANK_BYTES
        for lane in range(together)
        for byte in range(0, size * width, min(BANK_BYTES, size * width))
    }
    return max(Counter(word % BANKS for word in words).values())
