"""Plans of kernels of pairs of points on GPUs: the candidate with the least modelled time."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Status
from kronop.emit.choice import cheapest_plans
from kronop.emit.plan import Plan, Step
from kronop.families.distance.cuda import warp_group_choice
from kronop.families.distance.cuda.design import DistanceTile
from kronop.families.distance.cuda.warp_group_pipeline import PackedDistances
from kronop.families.distance.description import DistanceDescription
from kronop.families.distance.size import USUAL, DistanceSize
from kronop.families.distance.steps import fields_of, matrix_step
from kronop.target import Target

# Rows, columns and features of a tile, then rows and columns of a thread.
_TILES = (
    (128, 128, 16, 8, 8),
    (128, 128, 8, 8, 8),
    (128, 64, 16, 8, 4),
    (128, 64, 8, 8, 4),
    (64, 128, 8, 4, 8),
    (64, 64, 32, 4, 4),
    (64, 64, 16, 4, 4),
    (64, 64, 8, 4, 4),
    (32, 32, 32, 4, 4),
    (32, 32, 8, 4, 4),
)
# For kernels with so many sums in float64 that those of any other tile exceed the registers.
_LAST_TILE = (32, 32, 8, 2, 2)


def supports(description: DistanceDescription, target: Target) -> Status:
    """Whether any tile can run the kernel; else why the last one can't."""
    status = Status.reject("the tile's shape is not one of those that distances have")
    for item in _candidates(description, target):
        status = item.status(target)
        if status:
            return status
    return status


def plans(
    description: DistanceDescription, target: Target, count: int, size: DistanceSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`."""
    size = size or USUAL[target.backend]
    return cheapest_plans(
        _candidates(description, target),
        lambda item: _steps(description, target, item),
        target=target,
        size=size,
        count=count,
    )


def _candidates(
    what: DistanceDescription, target: Target
) -> Iterator[PackedDistances | DistanceTile]:
    yield from warp_group_choice.pipelines(what, target)
    tiles = list(_tiles(what, _TILES))
    yield from tiles
    if not any(item.status(target) for item in tiles):
        yield from _tiles(what, (_LAST_TILE,))


def _tiles(
    what: DistanceDescription, tiles: tuple[tuple[int, int, int, int, int], ...]
) -> Iterator[DistanceTile]:
    for symmetric in [False, True][: 1 + what.symmetric]:
        for tile_m, tile_n, tile_k, thread_m, thread_n in tiles:
            if what.tile and what.tile.threadblock_shape != (tile_m, tile_n, tile_k):
                continue
            yield DistanceTile(
                **fields_of(what),
                tile_m=tile_m,
                tile_n=tile_n,
                tile_k=tile_k,
                thread_m=thread_m,
                thread_n=thread_n,
                symmetric=symmetric,
            )


def _steps(
    what: DistanceDescription, target: Target, item: PackedDistances | DistanceTile
) -> tuple[Step, ...]:
    if isinstance(item, PackedDistances):
        return warp_group_choice.steps(what, target, item)
    return (matrix_step(what, target, item, symmetric=item.symmetric),)
