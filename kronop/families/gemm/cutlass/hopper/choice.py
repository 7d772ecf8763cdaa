"""Matrix products by CUTLASS 3.x: the designs of the user's tile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kronop.descriptions.tile import TileDescription
from kronop.families.gemm.cutlass.hopper.design import CutlassHopper
from kronop.families.gemm.description import GemmDescription

# Warps and stages that a user's tile may leave open; of equally fast ones, the first is chosen.
_WARPS, _STAGES = ((8, 1, 1), (4, 1, 1)), range(8, 1, -1)


def designs(what: GemmDescription) -> Iterator[CutlassHopper]:
    """The designs of the user's tile, whose cluster or schedules ask for warp groups."""
    tile = what.tile
    if tile is None or (tile.cluster_shape is None and not tile.has_schedules):
        return
    if what.visitor or what.interleaved:
        return
    for warps, stages in itertools.product(
        tile.warp_counts_among(_WARPS), tile.stages_among(_STAGES)
    ):
        yield _design(what, tile, warps, stages)


def _design(
    what: GemmDescription, tile: TileDescription, warps: tuple[int, int, int], stages: int
) -> CutlassHopper:
    m, n, k = tile.threadblock_shape
    return CutlassHopper(
        math=what.math,
        source=what.A.element,
        output=what.Y.element,
        epilogue=what.epilogue,
        layout_a=what.A.layout,
        layout_b=what.B.layout,
        alignment_a=what.A.alignment,
        alignment_b=what.B.alignment,
        tile_m=m,
        tile_n=n,
        tile_k=k,
        stages=stages,
        warps=warps,
        cluster_shape=tile.cluster_shape or (1, 1, 1),
        kernel_schedule=tile.kernel_schedule,
        epilogue_schedule=tile.epilogue_schedule,
        tile_scheduler=tile.tile_scheduler,
    )
