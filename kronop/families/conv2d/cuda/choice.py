"""Plans of convolutions on GPUs: the candidate with the least modelled time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, Layout, RowMajor
from kronop.descriptions.math_instruction import MathOperation
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.choice import cheapest_plans
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Plan, Step
from kronop.errors import ArgumentError
from kronop.families.conv2d.cuda import depthwise_choice, fold_choice, warp_group_choice
from kronop.families.conv2d.cuda.design import Conv2dBlocks, contiguous
from kronop.families.conv2d.cutlass import choice as cutlass_choice
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.size import USUAL, Conv2dSize
from kronop.families.conv2d.vocabulary import Operator, StrideSupport
from kronop.families.gemm.cuda import choice as products
from kronop.families.gemm.cuda.gather import Access
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.vocabulary import Swizzle
from kronop.target import Target

# Along what A and B of the matrix products are contiguous.
_LAYOUTS: dict[Operator, tuple[Layout, Layout]] = {
    Operator.fprop: (RowMajor, ColumnMajor),
    Operator.dgrad: (RowMajor, RowMajor),
    Operator.wgrad: (ColumnMajor, RowMajor),
}


def supports(description: Conv2dDescription, target: Target) -> Status:
    """Whether any design can compute the description; else why the last one can't."""
    own: Status = Status.reject("kernels of kronop's own read kronop.TensorNHWC")
    if not description.interleaved:
        own = _status_of_tile(description, target)
    for design in _own(description, target, USUAL[target.backend]):
        own = design.status(target)
        if own:
            return own
    others = [item.status(target) for item in cutlass_choice.designs(description, target)]
    if own or not others:
        return own
    refused = Status.reject(f"{own.reason}; of CUTLASS: {others[0].reason}")
    return next(filter(None, others), refused)


def _status_of_tile(what: Conv2dDescription, target: Target) -> Status:
    """Why the user's tile is not possible for blocks and warps; empty if it is."""
    if what.tile is not None and what.tile.has_schedules:
        return warp_group_choice.status_of_tile(what, target)
    return products.status_of_tile(_product(what, (1, 1)), target)


def plans(
    description: Conv2dDescription, target: Target, count: int, size: Conv2dSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates for the size: see `cheapest_plans`.

    Raises:
        ArgumentError: the described tile is not possible for such a size.
    """
    size = size or USUAL[target.backend]
    every = _every(description, target, size)
    found = cheapest_plans(
        every,
        lambda item: every[item](description, target, item),
        target=target,
        size=size,
        count=count,
    )
    if not found:
        raise ArgumentError(
            "the convolution",
            expected="one for which the described tile is possible",
            got=f"{size.told()}: {_refusal(description, target, size, every)}",
            hint="leave out the tile",
        )
    return found


def _refusal(
    what: Conv2dDescription, target: Target, size: Conv2dSize, every: dict[Any, Any]
) -> str:
    """Why no design serves a size: what the first one says that would run on the target."""
    designs = (*cutlass_choice.designs(what, target), *warp_group_choice.designs(what, target))
    reasons = [item.status_of(size).reason for item in designs if item.status(target)]
    reasons += [item.status(target).reason for item in every]
    return next(filter(None, reasons), "no tile")


def _every(what: Conv2dDescription, target: Target, size: Conv2dSize) -> dict[Any, Any]:
    """The designs that serve the size, each with the function that gives its steps: CUTLASS's where
    its words, a tile and an iterator, ask for one, or where kronop has none."""
    theirs = (item for item in cutlass_choice.designs(what, target) if item.status(target))
    found = dict.fromkeys((it for it in theirs if it.status_of(size)), cutlass_choice.steps)
    if what.iterator_algorithm is not None and what.tile is not None and found:
        return found
    own = _own(what, target, size)
    return own if any(item.status(target) for item in own) or not found else found


def _own(what: Conv2dDescription, target: Target, size: Conv2dSize) -> dict[Any, Any]:
    """Those of kronop's own."""
    if what.interleaved:
        return {}
    groups = (item for item in warp_group_choice.designs(what, target) if item.status_of(size))
    blocks = _designs(what, target, size)
    apart = depthwise_choice.designs(what, target, size)
    return {
        **dict.fromkeys(apart, depthwise_choice.steps),
        **dict.fromkeys(groups, warp_group_choice.steps),
        **dict.fromkeys(fold_choice.designs(what, target, size), fold_choice.steps),
        **dict.fromkeys(blocks, _steps),
    }


def _designs(what: Conv2dDescription, target: Target, size: Conv2dSize) -> Iterator[Conv2dBlocks]:
    """Those of blocks and warps."""
    kind = what.conv_kind
    product = _product(what, contiguous(kind, size))
    for design in products.blocks_and_warps(product, target):
        access_a, access_b = _access(what, size)
        gathered = dataclasses.replace(design, access_a=access_a, access_b=access_b)
        yield Conv2dBlocks(kind=kind, wrapped=gathered)
        bounded = dataclasses.replace(gathered, access_b=Access.Bounded)
        joined = Conv2dBlocks(kind=kind, wrapped=bounded)
        if size.channels > 1 and joined.together(size) > 1:
            yield joined


def _access(what: Conv2dDescription, size: Conv2dSize) -> tuple[Access, Access]:
    """How elements of A and B are found."""
    if what.conv_kind is Operator.wgrad:
        return Access.Inside, Access.Bounded
    is_unit = what.stride_support is StrideSupport.Unity
    is_unit = is_unit or (size.stride_h, size.stride_w) == (1, 1)
    is_spaced = what.conv_kind is Operator.dgrad and not is_unit
    return (Access.Spaced if is_spaced else Access.Bounded), Access.Inside


def _product(what: Conv2dDescription, extents: tuple[int, int]) -> GemmDescription:
    """The matrix product as which it is computed, whose promises hold for so many neighbours of A
    and B in memory."""
    a, b = (
        TensorDescription(item.element, layout, math.gcd(item.alignment, extent))
        for item, layout, extent in zip(
            (what.A, what.B), _LAYOUTS[what.conv_kind], extents, strict=True
        )
    )
    width = what.swizzling_functor.width
    return GemmDescription(
        math=what.math,
        tile=what.tile,
        A=a,
        B=b,
        Y=TensorDescription(what.Y.element, RowMajor, what.Y.alignment),
        epilogue=what.epilogue,
        swizzling_functor=Swizzle(width),
        visitor=isinstance(what.epilogue, VisitorEpilogue),
    )


def _steps(what: Conv2dDescription, target: Target, design: Conv2dBlocks) -> tuple[Step, ...]:
    of = design.wrapped
    kinds = f"{what.A.element.short}_{what.epilogue.name}"
    splits = of.math.math_operation is MathOperation.multiply_add_fast_f32
    step = convolution_step(
        f"conv2d_{what.conv_kind.name}_{of.kind}_{kinds}_{of.sizes}_{target.arch}",
        what,
        design,
        multiplied=of.multiplied,
        products=PRODUCTS_OF_SPLIT if splits else 1,
        sums=of.math.element_accumulator,
    )
    return (step,)
