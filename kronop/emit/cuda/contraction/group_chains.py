"""Chains of products of split float32 in `contract_group`: how long, how wide, which together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.emit.cuda import operands

if TYPE_CHECKING:
    from kronop.emit.cuda.contraction.group_room import GroupRoom

# Contracted steps of a product, and how many products a chain has at most.
_SLAB, _CHAIN = 8, 4
# Outputs of a chain; a team of more of them has two side by side.
_MOST_CHAINED = 64
# Stages that are multiplied together, and outputs of a team up to which they are.
_TOGETHER, _MOST_TOGETHER = 3, 96


def outputs(tile: GroupRoom) -> int:
    """Outputs of a chain."""
    halves = tile.team_lanes == 1 and tile.team_n > _MOST_CHAINED
    return tile.team_n // 2 if halves else tile.team_n


def slabs(tile: GroupRoom) -> int:
    """Products that follow each other before their sum is collected."""
    return min(_CHAIN, tile.k // _SLAB) if tile.team_lanes == 1 else 1


def steps(tile: GroupRoom) -> int:
    """Contracted steps of a chain."""
    return _SLAB * slabs(tile)


def together(tile: GroupRoom) -> int:
    """Stages that are multiplied without a wait for the last products of each.

    Their code is longer: measured, that pays where a stage is one chain of each half of the
    outputs, and registers for the next one are left.
    """
    one = tile.team_m * tile.k == _SLAB * _CHAIN and tile.team_lanes == 1
    if not (tile.work.splits and one) or not _MOST_CHAINED < tile.team_n <= _MOST_TOGETHER:
        return 1
    stages = operands.cover(tile.work.contracted, tile.k)
    return max(count for count in range(1, _TOGETHER + 1) if stages % count == 0)
