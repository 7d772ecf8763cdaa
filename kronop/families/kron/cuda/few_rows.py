"""What a pass over few rows takes: multiprocessors without a tile, and tiles that nothing hides."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import MEMORY_BYTES_PER_CYCLE
from kronop.frozen import dataclass
from kronop.target import Target

# NOTE: measured on one H200 inside CUDA graphs, in cycles of 1.755 GHz: the launch, and X and Y
# once through memory.
CYCLES_OF_CALL = 3740
# Cycles of one multiprocessor for 128 elements, for each byte of memory traffic an element.
CYCLES_OF_A_BYTE = 128 / MEMORY_BYTES_PER_CYCLE
# So many turns of all blocks even out.
_MANY_TURNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTimes:
    """How a kernel goes about its tiles, in cycles of a multiprocessor.

    Attributes:
        start: before the first tile.
        alone: of one tile in a block for itself.
        steady: of one tile where there are many.
    """

    start: float
    alone: float
    steady: float


def cycles(tiles: int, times: TileTimes, target: Target) -> float:
    """Cycles of a call with so many tiles."""
    each = operands.cover(tiles, target.cores)
    return CYCLES_OF_CALL + times.start + times.alone + (each - 1) * times.steady


def is_many(tiles: int, blocks: int, target: Target) -> bool:
    """Whether so many tiles take as long as if there were no end of them, by the cost of each."""
    return tiles >= _MANY_TURNS * blocks * target.cores
