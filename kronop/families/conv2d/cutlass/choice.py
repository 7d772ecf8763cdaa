"""Convolutions by CUTLASS 2.x: the candidate tiles, and their steps."""

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


def designs(what: Conv2dDescription, target: Target) -> Iterator[Conv2dCutlass]:
    """The designs of the described tile, or those to choose from.

    Problems have to meet more conditions than for kronop's own designs: `Conv2dCutlass.status_of`.
    """
    if isinstance(what.epilogue, VisitorEpilogue):
        return
    if what.tile is not None and what.tile.has_schedules:
        return
    asked = what.iterator_algorithm
    iterators = _ITERATORS if asked is None else (asked,)
    for shape, iterator, strides in itertools.product(
        tiles.shapes(what.math, what.A.element, what.tile), iterators, _stride_supports(what)
    ):
        yield _design(what, shape, iterator, strides)


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


def steps(what: Conv2dDescription, target: Target, design: Conv2dCutlass) -> tuple[Step, ...]:
    """The only step of a plan; its kernel may be launched twice."""
    element, operation = what.A.element, what.math.math_operation
    tile = f"{design.tile_m}x{design.tile_n}x{design.tile_k}"
    splits = operation is MathOperation.multiply_add_fast_f32
    name = f"cutlass_{design.kind}_{what.conv_kind.name}_{element.short}_{what.epilogue.name}"
    step = convolution_step(
        f"{name}_{tile}_{target.arch}",
        what,
        design,
        multiplied=None if design.is_simt else operation.rounded or what.math.element_a,
        products=PRODUCTS_OF_SPLIT if splits else 1,
    )
    return (step,)
