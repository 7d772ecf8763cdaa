"""The time of a pass over few rows: some multiprocessors have no tile, and nothing hides the
latency of a lone tile."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_bytes_per_cycle
from kronop.frozen import dataclass
from kronop.target import Target

# NOTE: measured on one H200 inside CUDA graphs, in cycles of 1.755 GHz: one launch, with the
# latency of reading X and writing Y once.
CYCLES_OF_CALL = 3740
# From so many waves on, the partly empty last wave no longer matters.
_MANY_WAVES = 8


def cycles_of_a_byte(target: Target) -> float:
    """Cycles of one multiprocessor to move one byte for each of 128 elements."""
    return 128 / memory_bytes_per_cycle(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTimes:
    """Times of a kernel, in cycles of a multiprocessor.

    Attributes:
        start: until the first tile begins.
        alone: for a tile whose latency no other tile hides.
        steady: for each further tile, when tiles overlap.
    """

    start: float
    alone: float
    steady: float


def cycles(tiles: int, times: TileTimes, target: Target) -> float:
    """Cycles of a call with `tiles` tiles."""
    each = operands.cover(tiles, target.cores)
    return CYCLES_OF_CALL + times.start + times.alone + (each - 1) * times.steady


def is_many(tiles: int, blocks: int, target: Target) -> bool:
    """Whether there are so many tiles that the time is `tiles` times the steady time of one."""
    return tiles >= _MANY_WAVES * blocks * target.cores
