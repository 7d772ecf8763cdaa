"""Plans of matrix products on GPUs: the candidate with the least modelled time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.emit.choice import cheapest_plans
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Plan, Step
from kronop.errors import ArgumentError
from kronop.families.gemm.cuda import warp_group_choice
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.mma_design import GemmMma
from kronop.families.gemm.cuda.tile_design import GemmTile
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_split import SplitProduct
from kronop.families.gemm.cutlass import choice as cutlass_choice
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.floors import product_step
from kronop.families.gemm.size import USUAL, GemmSize
from kronop.target import Target

AnyDesign = GemmBlocks | GemmWarpGroup | SplitProduct

# For ordinary cores: rows, columns and depth of a tile, then rows and columns of a thread.
_TILES = (
    (128, 128, 16, 8, 8),
    (128, 128, 8, 8, 8),
    (128, 64, 16, 8, 4),
    (64, 128, 16, 4, 8),
    (64, 64, 16, 4, 4),
    (32, 32, 32, 4, 4),
)
# For tensor cores: rows and columns of a tile, bytes of its rows along K, stages, warps.
_MMA_TILES = (
    (256, 128, 64, 3, 4, 2),
    (128, 256, 64, 3, 2, 4),
    (128, 128, 128, 3, 2, 2),
    (128, 128, 64, 4, 2, 2),
    (128, 128, 64, 4, 2, 4),
    (128, 128, 128, 3, 2, 4),
    (128, 64, 128, 3, 4, 2),
    (64, 128, 128, 3, 2, 4),
    (128, 64, 128, 3, 2, 2),
    (128, 64, 64, 4, 2, 2),
    (64, 128, 128, 3, 2, 2),
    (64, 128, 64, 4, 2, 2),
    (64, 64, 128, 4, 2, 2),
    (32, 64, 128, 4, 1, 2),
    (64, 32, 128, 4, 2, 1),
    (32, 32, 128, 4, 1, 1),
    (128, 64, 32, 4, 4, 2),
)
_WARP_ROWS, _WARP_COLUMNS, _TILE_STAGES = 4, 8, 2
# Values that a user's tile may leave open: warps, of which the first of the fastest is chosen;
# stages, as many as fit.
_WARPS = tuple((m, n, 1) for m, n in itertools.product((2, 4, 1, 8), repeat=2) if m * n <= 16)
_STAGES = (4, 3, 2)
_BAND_COLUMNS = 1024


def supports(description: GemmDescription, target: Target) -> Status:
    """Whether any design can compute the description; else why the last one can't, which tiles warp
    groups have, and why CUTLASS's can't."""
    status = status_of_tile(description, target)
    for design in _designs(description, target):
        status = design.status(target)
        if status:
            return status
    if description.tile is not None and not description.tile.has_schedules:
        tiles = warp_group_choice.tiles_told(description, target)
        status = Status.reject(f"{status.reason}; of warp groups: {tiles}") if tiles else status
    others = [item.status(target) for item in cutlass_choice.designs(description, target)]
    if not others:
        return status
    refused = Status.reject(f"{status.reason}; of CUTLASS: {others[0].reason}")
    return next(filter(None, others), refused)


def status_of_tile(what: GemmDescription, target: Target) -> Status:
    """Why the user's tile is not possible for blocks and warps; empty if it is."""
    if what.interleaved:
        return Status.reject("kernels of kronop's own read row-major and column-major matrices")
    tile = what.tile
    if tile is None:
        return Status.accept()
    if tile.has_schedules:
        return warp_group_choice.status_of_tile(what, target)
    if tile.warp_count is not None and tile.warp_count[2] > 1:
        return Status.reject(
            f"{tile.warp_count[2]} warps along K; the sums of a tile are cut by split_k_slices, not"
            " by warps"
        )
    if what.math.opcode_class is OpClass.TensorOp:
        return Status.accept()
    if tile.stages not in (None, _TILE_STAGES):
        return Status.reject(f"{tile.stages} stages; ordinary cores take slabs in {_TILE_STAGES}")
    statuses = [_status_of_warps(what, tile, warps) for warps in tile.warp_counts_among(_WARPS)]
    return next(filter(None, statuses), statuses[0])


def _status_of_warps(
    what: GemmDescription, tile: TileDescription, warps: tuple[int, int, int]
) -> Status:
    """Why so many warps of ordinary cores don't share a tile evenly; empty if they do."""
    (m, n, _), (warps_m, warps_n, _) = tile.threadblock_shape, warps
    rows, columns = _WARP_ROWS * warps_m, _WARP_COLUMNS * warps_n
    run = operands.vector_of(what.math.added_in)
    if m % (rows * run) or n % (columns * run):
        return Status.reject(
            f"a tile of {m} x {n}, which is to be a multiple of {rows * run} x {columns * run}:"
            f" lanes of {warps_m} x {warps_n} warps have {run} rows and columns at least"
        )
    return Status.accept()


def plans(
    description: GemmDescription, target: Target, count: int, size: GemmSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`. CUTLASS's are only
    included if there are no others, since they do not run every problem.

    Raises:
        ArgumentError: slices (split-K) are asked for, and only warp groups have the tile.
    """
    size = size or USUAL[target.backend]
    every = _designs(description, target)
    if size.slices > 1:  # Warp groups have no split-K.
        every = (item for item in every if item.product.has_slices)
    own = cheapest_plans(
        every,
        lambda item: steps(description, target, item),
        target=target,
        size=size,
        count=count,
    )
    found = own or cheapest_plans(
        cutlass_choice.designs(description, target),
        lambda item: (cutlass_choice.step(description, target, item),),
        target=target,
        size=size,
        count=count,
    )
    if not found:
        raise ArgumentError(
            "split_k_slices",
            expected="1, since only warp groups have the described tile, and they add up whole"
            " sums",
            got=size.slices,
            hint="leave out the tile, or its cluster and schedules",
        )
    return found


def _designs(what: GemmDescription, target: Target) -> Iterator[AnyDesign]:
    if not what.interleaved:
        yield from warp_group_choice.designs(what, target)
    yield from blocks_and_warps(what, target)


def blocks_and_warps(what: GemmDescription, target: Target) -> Iterator[GemmBlocks]:
    """Designs of blocks and warps, with the user's tile or of many."""
    if not status_of_tile(what, target):
        return
    if what.math.opcode_class is OpClass.TensorOp:
        yield from _mma_designs(what, target)
    else:
        yield from _tile_designs(what)


def _mma_designs(what: GemmDescription, target: Target) -> Iterator[GemmMma]:
    if what.tile is None:
        for m, n, depth, stages, *warps in _MMA_TILES:
            common = _common(what, (m, n, depth // what.A.element.bytes))
            yield GemmMma(**common, stages=stages, warps_m=warps[0], warps_n=warps[1])
        return
    common = _common(what, what.tile.threadblock_shape)
    for warps_m, warps_n, _ in what.tile.warp_counts_among(_WARPS):
        every = [
            GemmMma(**common, stages=stages, warps_m=warps_m, warps_n=warps_n)
            for stages in what.tile.stages_among(_STAGES)
        ]
        yield next((item for item in every if item.status(target)), every[-1])


def _tile_designs(what: GemmDescription) -> Iterator[GemmTile]:
    tiles: list[tuple[int, ...]] = [*_TILES]
    if what.tile is not None:
        m, n, k = what.tile.threadblock_shape
        tiles = [
            (m, n, k, m // (_WARP_ROWS * warps[0]), n // (_WARP_COLUMNS * warps[1]))
            for warps in what.tile.warp_counts_among(_WARPS)
            if _status_of_warps(what, what.tile, warps)
        ]
    math = {"math": what.math.summed_in(what.math.added_in)}
    for *shape, thread_m, thread_n in tiles:
        common = _common(what, tuple(shape)) | math
        yield GemmTile(**common, thread_m=thread_m, thread_n=thread_n)


def _common(what: GemmDescription, shape: tuple[int, ...]) -> dict[str, Any]:
    """The fields that all designs of blocks and warps have."""
    tile_m, tile_n, tile_k = shape
    across_a, across_b = what.A.layout is ColumnMajor, what.B.layout is RowMajor
    lines = (tile_m if across_a else tile_k, tile_n if across_b else tile_k)
    vectors = [
        operands.widest_divisor(item.alignment, [line])
        for item, line in zip((what.A, what.B), lines, strict=True)
    ]
    return {
        "math": what.math,
        "source": what.A.element,
        "output": what.Y.element,
        "epilogue": what.epilogue,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "tile_k": tile_k,
        "across_a": across_a,
        "across_b": across_b,
        "vector_a": vectors[0],
        "vector_b": vectors[1],
        "band": _band(what, tile_n),
    }


def _band(what: GemmDescription, tile_n: int) -> int:
    """Tiles along N that are processed before the next row of tiles: the user's swizzle, or,
    without a described tile, so many that concurrent blocks share both operands."""
    width = what.swizzling_functor.width
    return max(width, _BAND_COLUMNS // tile_n) if what.tile is None else width


def steps(what: GemmDescription, target: Target, found: AnyDesign) -> tuple[Step, ...]:
    """The steps of a plan: the product, preceded by the splitting of operands if they are split."""
    design, kinds = found.product, f"{what.A.element.short}_{what.epilogue.name}"
    splits = design.math.math_operation is MathOperation.multiply_add_fast_f32
    product = product_step(
        f"gemm_{design.kind}_{kinds}_{design.sizes}_{target.arch}",
        what,
        design,
        multiplied=design.multiplied,
        products=PRODUCTS_OF_SPLIT if splits else 1,
        sums=design.math.element_accumulator,
    )
    entry = f"gemm_split_{target.arch}"
    splitting = (Step(entry=entry, design=item, note=str(item)) for item in found.designs[:-1])
    return (*splitting, product)
