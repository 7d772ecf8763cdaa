"""Matrix products by CUTLASS: the candidate tiles, and their steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda.cutlass import tiles
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Step
from kronop.families.gemm.cutlass.design import CutlassGemm
from kronop.families.gemm.cutlass.hopper.design import CutlassHopper
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.floors import product_step
from kronop.target import Target

# Warps and stages of CUTLASS 3.x that a user's tile may leave open; of equally fast ones, the first
# is chosen.
_GROUPS, _GROUP_STAGES = ((8, 1, 1), (4, 1, 1)), range(8, 1, -1)
_SIMT_VECTOR = 1


def designs(what: GemmDescription, target: Target) -> Iterator[CutlassGemm | CutlassHopper]:
    """The designs of the described tile, or those to choose from. CUTLASS 3.x serves tiles that
    name a cluster or schedules.

    Problems have to meet more conditions than for kronop's own designs: extents are multiples of
    alignments (`launching`).
    """
    if what.visitor:
        return
    yield from _hopper_designs(what)
    if what.tile is not None and what.tile.has_schedules:
        return
    for shape in tiles.shapes(what.math, what.A.element, what.tile):
        yield _design(what, shape)


def _hopper_designs(what: GemmDescription) -> Iterator[CutlassHopper]:
    """Those of CUTLASS 3.x for the user's tile, whose cluster or schedules ask for warp groups."""
    tile = what.tile
    if tile is None or (tile.cluster_shape is None and not tile.has_schedules):
        return
    if what.interleaved:
        return
    for warps, stages in itertools.product(
        tile.warp_counts_among(_GROUPS), tile.stages_among(_GROUP_STAGES)
    ):
        yield _hopper_design(what, tile, warps, stages)


def _hopper_design(
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


def _is_simt(what: GemmDescription) -> bool:
    return what.math.opcode_class is OpClass.Simt


def _design(what: GemmDescription, shape: tiles.Shape) -> CutlassGemm:
    simt = _is_simt(what)
    # Ordinary cores access single elements, whatever alignment is promised.
    stored = tiles.stored_at_once(what.Y, what.epilogue, panels=what.interleaved)
    alignments = [
        _SIMT_VECTOR if simt else promised
        for promised in (what.A.alignment, what.B.alignment, stored)
    ]
    return CutlassGemm(
        math=what.math,
        source=what.A.element,
        output=what.Y.element,
        epilogue=what.epilogue,
        layout_a=what.A.layout,
        layout_b=what.B.layout,
        layout_c=what.Y.layout,
        alignment_a=alignments[0],
        alignment_b=alignments[1],
        alignment_c=alignments[2],
        tile_m=shape.m,
        tile_n=shape.n,
        tile_k=shape.depth if simt else shape.depth // what.A.element.bytes,
        warps_m=shape.warps[0],
        warps_n=shape.warps[1],
        warps_k=shape.warps[2],
        stages=shape.stages,
        swizzle=what.swizzling_functor,
    )


def step(what: GemmDescription, target: Target, design: CutlassGemm | CutlassHopper) -> Step:
    """The only step of a plan; its kernel may be launched twice."""
    element, operation = what.A.element, what.math.math_operation
    tile = f"{design.tile_m}x{design.tile_n}x{design.tile_k}"
    splits = operation is MathOperation.multiply_add_fast_f32
    return product_step(
        f"cutlass_{design.kind}_{element.short}_{what.epilogue.name}_{tile}_{target.arch}",
        what,
        design,
        multiplied=None if _is_simt(what) else operation.rounded or what.math.element_a,
        products=PRODUCTS_OF_SPLIT if splits else 1,
    )
