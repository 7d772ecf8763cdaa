"""Matrix products by CUTLASS 3.x: the one design of the user's tile, and its step."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.emit.plan import Step
from kronop.families.gemm.cutlass.hopper.design import CutlassHopper
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.least import LeastOfGemm
from kronop.target import Target


def designs(what: GemmDescription) -> Iterator[CutlassHopper]:
    """That of the user's tile, whose cluster and schedules say that it is one of warp groups."""
    tile = what.tile
    if tile is None or not tile.has_schedules or what.visitor or what.interleaved:
        return
    m, n, k = tile.threadblock_shape
    yield CutlassHopper(
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
        stages=tile.stages,
        warps=tile.warp_count,
        cluster_shape=tile.cluster_shape or (1, 1, 1),
        kernel_schedule=tile.kernel_schedule,
        epilogue_schedule=tile.epilogue_schedule,
        tile_scheduler=tile.tile_scheduler,
    )


def steps(what: GemmDescription, target: Target, design: CutlassHopper) -> tuple[Step, ...]:
    """The one step of a plan, which is launched twice."""
    element = what.A.element
    tile = f"{design.tile_m}x{design.tile_n}x{design.tile_k}"
    return (
        Step(
            entry=f"cutlass_hopper_{element.short}_{what.epilogue.name}_{tile}_{target.arch}",
            design=design,
            bytes_per_row=0,
            operations_per_row=0,
            note=f"a matrix product by {design}",
            least=LeastOfGemm(
                element=element,
                output=what.Y.element,
                sums=what.math.element_accumulator,
                multiplied=what.math.element_a,
                products=1,
            ),
        ),
    )
