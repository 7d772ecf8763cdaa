"""The tiles of `contract_mma` that a planner chooses from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.contraction.mma_room import OUTPUTS, SLAB
from kronop.emit.cuda.contraction.work import Contraction, Order

_MOST_SUMS, _MOST_STAGES = 128, 4
_MOST_DEPTH = 128
# The fewest and the most warps of a block.
_WARPS = 4, 8
_DEPTHS = (16, 32, 64, 128, 256, 512)
# Bytes of a sector of memory: what a stage reads contiguously should fill whole sectors.
_SECTOR_BYTES = 32
# Most MMA tiles of a warp's results for which more than two warps may split the contracted index
# (split-K within a block).
_FEW_PRODUCTS = 4


def proposed(work: Contraction, tile: TileDescription | None) -> Iterator[MmaContract]:
    """Tiles to consider: all that the user's tile permits, or a few sizes without one."""
    for lanes, along in lanes_of(work):
        for warp_m, warp_n, (m, n, k), depth, stages in _warps(work, lanes // along, along, tile):
            candidate = MmaContract(
                work=work,
                lanes=lanes,
                warp_m=warp_m,
                warp_n=warp_n,
                warps=(along, m, n, k),
                k=depth,
                stages=stages,
            )
            if tile is None or (candidate.m, candidate.n) == tile.threadblock_shape[:2]:
                yield candidate


def lanes_of(work: Contraction) -> list[tuple[int, int]]:
    """(lanes of a block, warps along them); contiguous lanes are loaded as whole vectors."""
    if Order.Lanes not in (work.x_order, work.w_order, work.y_order):
        return [(1, 1)]
    access = operands.vector_of(work.source)
    sizes = {access, 2 * access} if work.lanes > 2 * access else {work.lanes}
    return [
        (lanes, along)
        for lanes in sorted(sizes)
        for along in range(1, lanes + 1)
        if lanes % along == 0 and lanes // along <= access
    ]


_Shape = tuple[int, int, tuple[int, int, int], int, int]


def _warps(
    work: Contraction, lanes: int, along: int, tile: TileDescription | None
) -> Iterator[_Shape]:
    """Tile shapes of `lanes` lanes with `along` warps along them: MMA tiles of a warp, warps along
    rows, outputs and k, then k and stages."""
    warps = range(_WARPS[0], _WARPS[1] + 1)
    if tile is not None and tile.warps is not None:
        warps = range(tile.warps, tile.warps + 1)
    words = max(1, work.source.bytes // 4)
    depth = operands.round_up(work.contracted, SLAB)
    stages: Iterable[int] = range(1, _MOST_STAGES + 1)
    least = 0
    if Order.Own in (work.x_order, work.w_order):
        least = min(_SECTOR_BYTES // work.source.bytes, depth)
    if tile is not None:
        stages = tile.stages_among(stages)
    outputs = operands.round_up(work.produced, 2 * OUTPUTS)
    for warp_m, warp_n in itertools.product((1, 2, 4), (2, 4, 8)):
        if lanes * warp_m * warp_n * 4 * words > _MOST_SUMS:
            continue
        shared = (1, 2, 4, 8) if lanes * warp_m * warp_n <= _FEW_PRODUCTS else (1, 2)
        for m, n, k in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), shared):
            if along * m * n * k not in warps:
                continue
            wide = warp_n * OUTPUTS * n
            if tile is None and wide > max(2 * OUTPUTS, 2 * outputs):
                continue
            if tile is None:
                most = min(_MOST_DEPTH // work.source.bytes * k, depth)
                depths = [size for size in _DEPTHS if max(SLAB * k, least) <= size <= most]
            else:
                depths = [tile.threadblock_shape[2]]
            for size, count in itertools.product(depths, stages):
                steps = operands.cover(work.contracted, size)
                if tile is not None or (count <= steps and (count > 1 or steps == 1)):
                    yield warp_m, warp_n, (m, n, k), size, count
