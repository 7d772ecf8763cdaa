"""Shared-memory padding of a tile: counts the bank conflicts of the kernel's accesses.

NOTE: shared memory has 32 banks of 4 bytes; a warp's 8-byte accesses are served as two half warps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kronop.families.kron.cuda.tile import KronTile, Phase
from kronop.machine import SHARED_BYTES_PER_CYCLE

_SHIFTS = (0, 5, 6, 7, 4, 8)


def padded(tile: KronTile) -> KronTile:
    """The tile with the padding that has the fewest conflicts.

    If every extent is a power of two, adding indices has no carries that change the padding, so
    padded addresses are compile-time offsets from one base.
    """
    layout, accumulator = tile.layout, tile.work.accumulator
    powers = all(size & (size - 1) == 0 for size in (*layout.slots, tile.columns))
    lanes = SHARED_BYTES_PER_CYCLE // accumulator.bytes
    patterns: list[tuple[int, list[int]]] = [
        (2 * phase.block, [_fiber(phase, lane) for lane in range(min(lanes, phase.fibers))])
        for phase in tile.phases
    ]
    wide = layout.elements // tile.rows
    patterns += [
        (2 * vector, [lane * vector % max(wide, 1) for lane in range(lanes)])
        for vector in tile.vectors
    ]

    def conflicts(shift: int) -> float:
        ways = sum(
            weight * _ways([_place(at, shift) for at in row], lanes) for weight, row in patterns
        )
        # Padding with carries costs two more instructions an access.
        return ways * (1.0 if powers or shift == 0 else 1.3)

    shift = min(_SHIFTS, key=conflicts)
    return replace(tile, pad_shift=shift, pad_adds=powers or shift == 0)


def _fiber(phase: Phase, index: int) -> int:
    offset = 0
    for extent, stride in reversed(phase.axes[1:]):
        offset += index % extent * stride
        index //= extent
    return offset + index * phase.axes[0][1]


def _place(index: int, shift: int) -> int:
    return index + (index >> shift if shift else 0)


def _ways(places: Sequence[int], lanes: int) -> int:
    """Accesses that the busiest bank serves in turn; equal addresses count as one access."""
    return max(Counter(place % lanes for place in set(places)).values())
