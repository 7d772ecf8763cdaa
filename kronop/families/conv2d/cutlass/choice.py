"""Convolutions by CUTLASS: the candidate tiles, and their steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kronop.descriptions.datatype import float64
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda.cutlass import tiles
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Step
from kronop.families.conv2d.cutlass.design import Conv2dCutlass
from kronop.families.conv2d.cutlass.hopper.design import Conv2dHopper
from kronop.families.conv2d.cutlass.hopper.tile import WARPS
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.vocabulary import (
    DgradSwizzle,
    IteratorAlgorithm,
    Operator,
    StrideSupport,
)
from kronop.target import Target

# Where none is asked for; the analytic one takes what the optimized one does not.
_ITERATORS = (IteratorAlgorithm.optimized, IteratorAlgorithm.analytic)
_DGRADS = (StrideSupport.Unity, StrideSupport.Strided)
_WIDEST_ACCESS = 16
# Stages of CUTLASS 3.x that a user's tile may leave open; the first of equally fast ones is chosen.
_HOPPER_STAGES = range(8, 1, -1)


def designs(what: Conv2dDescription, target: Target) -> Iterator[Conv2dCutlass | Conv2dHopper]:
    """The designs of the described tile, or those to choose from. CUTLASS 3.x serves tiles that
    name a cluster or schedules.

    Problems have to meet more conditions than for kronop's own designs: their `status_of`.
    """
    if isinstance(what.epilogue, VisitorEpilogue):
        return
    yield from _hopper_designs(what)
    if what.tile is not None and what.tile.has_schedules:
        return
    asked = what.iterator_algorithm
    iterators = _ITERATORS if asked is None else (asked,)
    for shape, iterator, strides in itertools.product(
        tiles.shapes(what.math, what.A.element, what.tile), iterators, _stride_supports(what)
    ):
        yield _design(what, shape, iterator, strides)


def _hopper_designs(what: Conv2dDescription) -> Iterator[Conv2dHopper]:
    """Those of CUTLASS 3.x for the user's tile, whose cluster or schedules ask for warp groups."""
    tile = what.tile
    if tile is None or what.interleaved:
        return
    # Iterators are words of CUTLASS 2.x.
    is_asked = tile.cluster_shape is not None and what.iterator_algorithm is None
    if not is_asked and not tile.has_schedules:
        return
    m, n, k = tile.threadblock_shape
    for stages in tile.stages_among(_HOPPER_STAGES):
        yield Conv2dHopper(
            math=what.math,
            source=what.A.element,
            output=what.Y.element,
            epilogue=what.epilogue,
            alignment_a=what.A.alignment,
            alignment_b=what.B.alignment,
            tile_m=m,
            tile_n=n,
            tile_k=k,
            stages=stages,
            warps=tile.warp_count or WARPS,
            cluster_shape=tile.cluster_shape or (1, 1, 1),
            kernel_schedule=tile.kernel_schedule,
            epilogue_schedule=tile.epilogue_schedule,
            tile_scheduler=tile.tile_scheduler,
            conv_kind=what.conv_kind,
        )


def _stride_supports(what: Conv2dDescription) -> tuple[StrideSupport, ...]:
    if what.conv_kind is not Operator.dgrad:
        return (StrideSupport.Strided,)
    if isinstance(what.swizzling_functor, DgradSwizzle):
        return (StrideSupport.Strided,)
    return _DGRADS if what.stride_support is None else (what.stride_support,)


def _design(
    what: Conv2dDescription,
    shape: tiles.Shape,
    iterator: IteratorAlgorithm,
    strides: StrideSupport,
) -> Conv2dCutlass:
    simt = what.math.opcode_class is OpClass.Simt
    element = what.A.element
    # Ordinary cores access single elements, and so do tensor cores those of float64, whatever
    # alignment is promised.
    most = 1 if simt or element is float64 else _WIDEST_ACCESS // element.bytes
    stored = 1 if simt else tiles.stored_at_once(what.Y, what.epilogue, panels=what.interleaved)
    return Conv2dCutlass(
        math=what.math,
        source=element,
        output=what.Y.element,
        epilogue=what.epilogue,
        alignment_a=min(what.A.alignment, most),
        alignment_b=min(what.B.alignment, most),
        alignment_c=stored,
        tile_m=shape.m,
        tile_n=shape.n,
        tile_k=shape.depth if simt else shape.depth // element.bytes,
        warps_m=shape.warps[0],
        warps_n=shape.warps[1],
        warps_k=shape.warps[2],
        stages=shape.stages,
        conv_kind=what.conv_kind,
        iterator_algorithm=iterator,
        stride_support=strides,
        panels=what.interleaved,
        swizzle=what.swizzling_functor,
    )


def steps(
    what: Conv2dDescription, target: Target, design: Conv2dCutlass | Conv2dHopper
) -> tuple[Step, ...]:
    """The only step of a plan; its kernel may be launched twice."""
    element, operation = what.A.element, what.math.math_operation
    tile = f"{design.tile_m}x{design.tile_n}x{design.tile_k}"
    is_simt = what.math.opcode_class is OpClass.Simt
    splits = operation is MathOperation.multiply_add_fast_f32
    name = f"cutlass_{design.kind}_{what.conv_kind.name}_{element.short}_{what.epilogue.name}"
    step = convolution_step(
        f"{name}_{tile}_{target.arch}",
        what,
        design,
        multiplied=None if is_simt else operation.rounded or what.math.element_a,
        products=PRODUCTS_OF_SPLIT if splits else 1,
    )
    return (step,)
