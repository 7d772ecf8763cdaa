"""The tiles of `contract_warp_group` that a planner chooses from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract, serves
from kronop.emit.cuda.contraction.warp_group_room import TEAMS, Weights, wants_packing
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.target import Target

_MOST_SUMS, _STAGES = 128, range(2, 9)
# Rows of a team, in units of 64. The model chose 4 units in float16, but they were slow: (128, 64,
# 64, 1), batch last, took 0.30 ms, and 0.21 ms with blocks of 128 rows.
_ROWS = (1, 2)
_OUTPUTS = (16, 32, 48, 64, 96, 128, 192, 256)
# Outputs of a team.
_OUTPUTS_OF_TEAM = (16, 24, *_OUTPUTS[1:])
_DEPTHS = (16, 32, 64, 128)
# Bytes of results above which shared memory may hold only one half of them at a time.
_LEAST_HALVED = 32768
# From so many outputs and contracted indices on, packed images may pay even for weights that the
# kernel could read without packing.
_LEAST_OF_IMAGES = 64


def proposed(
    work: Contraction, target: Target, given: TileDescription | None
) -> Iterator[WarpGroupContract]:
    """Tiles to consider: all that the user's tile permits, or a few sizes without one."""
    if not serves(work, target):
        return
    outputs = operands.round_up(work.produced, 16)
    times = _ROWS if given is None else (*_ROWS, 4)
    for (lanes, *along), team_m, n in itertools.product(_lanes(work), times, _OUTPUTS):
        sums = lanes * team_m * n // (2 * prod(along))
        if sums > _MOST_SUMS or n > max(16, outputs + 15) or n // along[1] not in _OUTPUTS_OF_TEAM:
            continue
        for k, halves in itertools.product(_depths(work), (False, True)):
            least = WarpGroupContract(
                work=work,
                lanes=lanes,
                team_m=team_m,
                n=n,
                along_lanes=along[0],
                along_outputs=along[1],
                k=k,
                stages=_STAGES[0],
                weights=Weights.Staged,
                halves=halves,
            )
            if not halves or _has_halves(least):
                yield from _filled(least, target, given)


def _filled(
    least: WarpGroupContract, target: Target, given: TileDescription | None
) -> Iterator[WarpGroupContract]:
    """The tile with as many stages as fit in shared memory, for each way of loading the weights."""
    for weights in _ways_of_weights(least):
        tile = replace(least, weights=weights)
        if given is not None:
            shape = (tile.m, tile.n, tile.k)
            if shape != given.threadblock_shape or not given.allows_threads(tile.threads):
                continue
            if given.stages is not None:
                yield replace(tile, stages=given.stages)
                continue
        for count in range(tile.most_stages(_STAGES, target.shared_bytes), _STAGES[0] - 1, -1):
            filled = replace(tile, stages=count)
            if filled.shared_bytes <= target.shared_bytes:
                if filled.status(target):
                    yield filled
                break


def _has_halves(tile: WarpGroupContract) -> bool:
    """Whether halving the results' memory frees a further stage, and their parts can be halved."""
    results = tile.lanes * tile.m * tile.n * tile.work.output.bytes
    return results > _LEAST_HALVED and tile.parts % 2 == 0


def _ways_of_weights(tile: WarpGroupContract) -> list[Weights]:
    """The ways to load the weights; threads can't copy weights that have to be packed first."""
    if wants_packing(tile.work):
        return [Weights.Stay, Weights.Images]
    large = tile.n >= _LEAST_OF_IMAGES <= tile.work.contracted
    return [Weights.Stay, Weights.Staged, *([Weights.Images] if large else [])]


def _depths(work: Contraction) -> list[int]:
    depth = operands.round_up(work.contracted, 16)
    return [k for k in _DEPTHS if k <= min(depth, 256 // work.source.bytes)]


def _lanes(work: Contraction) -> list[tuple[int, int, int]]:
    """(lanes of a block, teams along lanes, teams along outputs); contiguous lanes are loaded as
    whole vectors."""
    if Order.Lanes not in (work.x_order, work.y_order):
        return [(1, 1, 1)]
    access = operands.vector_of(work.source)
    sizes = {access, 2 * access} if work.lanes > 2 * access else {work.lanes}
    ways = ((1, 1), (TEAMS, 1), (1, TEAMS))
    return [(lanes, *way) for lanes in sorted(sizes) for way in ways if lanes % way[0] == 0]
