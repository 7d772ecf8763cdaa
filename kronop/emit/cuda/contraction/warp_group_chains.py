"""Chains of MMAs for float32 that is split in parts, in `contract_warp_group`.

The tensor cores accumulate a short chain; ordinary float32 additions add up the chains' sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.emit.cuda import operands

if TYPE_CHECKING:
    from kronop.emit.cuda.contraction.warp_group_room import WarpGroupRoom

# Contracted indices of an MMA, and most MMA steps of a chain.
_SLAB, _CHAIN = 8, 4
# Most outputs of a chain; a team with more outputs has two chains side by side.
_MOST_CHAINED = 64
# Most stages that are multiplied together, and most outputs of a team for which that is done.
_TOGETHER, _MOST_TOGETHER = 3, 96


def outputs(tile: WarpGroupRoom) -> int:
    """Outputs of a chain."""
    halves = tile.team_lanes == 1 and tile.team_n > _MOST_CHAINED
    return tile.team_n // 2 if halves else tile.team_n


def slabs(tile: WarpGroupRoom) -> int:
    """MMA steps of a chain: after so many, its sum is added to the accumulators."""
    return min(_CHAIN, tile.k // _SLAB) if tile.team_lanes == 1 else 1


def steps(tile: WarpGroupRoom) -> int:
    """Contracted indices of a chain."""
    return _SLAB * slabs(tile)


def together(tile: WarpGroupRoom) -> int:
    """How many stages are multiplied without waiting for the last MMAs of each.

    That unrolls the code. Measured, it pays only if a stage is one chain for each half of the
    outputs, and if registers remain for the next chain.
    """
    one = tile.team_m * tile.k == _SLAB * _CHAIN and tile.team_lanes == 1
    if not (tile.work.splits and one) or not _MOST_CHAINED < tile.team_n <= _MOST_TOGETHER:
        return 1
    stages = operands.cover(tile.work.contracted, tile.k)
    return max(count for count in range(1, _TOGETHER + 1) if stages % count == 0)
