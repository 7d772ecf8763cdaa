"""Padding of a tile in shared memory, chosen by counting the kernel's bank conflicts.

NOTE: shared memory has 32 banks of 4 bytes; a warp's 8-byte accesses are served as two half warps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kronop.descriptions.datatype import DataType
from kronop.machine import SHARED_BYTES_PER_CYCLE

_SHIFTS = (0, 5, 6, 7, 4, 8)


class Phase(NamedTuple):
    """Digits [first, end) of the pass, contracted between two barriers.

    They are one large digit, of which a thread has `together` fibers at once, or a run of small
    ones (`together` is 0). `axes` are (extent, stride) of the free indices, last one fastest.
    """

    first: int
    end: int
    together: int
    block: int
    axes: tuple[tuple[int, int], ...] = ()

    @property
    def fibers(self) -> int:
        return math.prod(extent for extent, _ in self.axes)


class TileLayout(NamedTuple):
    """Offsets in a block's shared memory, in elements of the accumulator."""

    slots: tuple[int, ...]
    strides: tuple[int, ...]
    pitches: tuple[int, ...]
    factor_elements: int
    row_stride: int
    elements: int


def padding(
    layout: TileLayout,
    phases: Sequence[Phase],
    vectors: tuple[int, int],
    columns: int,
    accumulator: DataType,
) -> tuple[int, bool]:
    """The `pad_shift` of a `KronTile` that has the fewest conflicts, and its `pad_adds`.

    If every extent is a power of two, adding indices has no carries that change the padding, so
    padded addresses are compile-time offsets from one base address.
    """
    powers = all(size & (size - 1) == 0 for size in (*layout.slots, columns))
    lanes = SHARED_BYTES_PER_CYCLE // accumulator.bytes
    patterns: list[tuple[int, list[int]]] = [
        (2 * phase.block, [_fiber(phase, lane) for lane in range(min(lanes, phase.fibers))])
        for phase in phases
    ]
    patterns += [
        (2 * vector, [lane * vector % max(layout.row_stride, 1) for lane in range(lanes)])
        for vector in vectors
    ]

    def conflicts(shift: int) -> float:
        ways = sum(
            weight * _ways([_place(at, shift) for at in row], lanes) for weight, row in patterns
        )
        # Padding with carries costs two more instructions an access.
        return ways * (1.0 if powers or shift == 0 else 1.3)

    shift = min(_SHIFTS, key=conflicts)
    return shift, powers or shift == 0


def _fiber(phase: Phase, index: int) -> int:
    offset = 0
    for extent, stride in reversed(phase.axes[1:]):
        offset += index % extent * stride
        index //= extent
    return offset + index * phase.axes[0][1]


def _place(index: int, shift: int) -> int:
    return index + (index >> shift if shift else 0)


def _ways(places: Sequence[int], lanes: int) -> int:
    """Accesses that the busiest bank serves (bank conflicts); equal addresses count once."""
    return max(Counter(place % lanes for place in set(places)).values())
