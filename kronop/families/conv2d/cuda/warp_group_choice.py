"""Convolutions by warp groups: the candidate tiles, and their steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.design import Design
from kronop.emit.plan import Step
from kronop.families.conv2d.cuda.joined import Conv2dJoined
from kronop.families.conv2d.cuda.spread import Conv2dSpread
from kronop.families.conv2d.cuda.warp_group_design import REMAINDERS, Conv2dWarpGroup
from kronop.families.conv2d.cuda.warp_group_slices import Conv2dAddSlices, Conv2dSlices
from kronop.families.conv2d.cuda.warp_group_split import Conv2dSplit
from kronop.families.conv2d.cuda.widen import Conv2dWiden
from kronop.families.conv2d.cuda.widened import Conv2dWidened
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.vocabulary import Operator, StrideSupport
from kronop.families.gemm.cuda import warp_group_choice
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_problem import GRANULE
from kronop.families.gemm.cuda.warp_group_split import GemmSplit
from kronop.families.gemm.description import GemmDescription
from kronop.target import Target

Direct = Conv2dWarpGroup | Conv2dSlices | Conv2dSplit
AnyConv2d = Direct | Conv2dWidened | Conv2dJoined
# Neighbouring columns of slices that are added up at once.
_VECTOR = 4
# Further tiles (rows, columns, whether teams alternate) of 16-bit types: convolutions have many
# rows, and often few channels.
_TILES = ((256, 128, False), (256, 64, False), (128, 64, True))


def status(what: Conv2dDescription, target: Target) -> Status:
    """Whether warp groups can read the described tensors."""
    if what.interleaved:
        return Status.reject("warp groups read tensors whose channels are the last axis")
    found = warp_group_choice.status(_product(what), target)
    if not found:
        return found
    return Status.first_of(_reasons(what))


def status_of_tile(what: Conv2dDescription, target: Target) -> Status:
    """Why warp groups don't have the user's tile, which only they could have."""
    found = status(what, target)
    if not found:
        return found
    whole = replace(what, tile=None)
    every = _tiles(whole, _product(whole), target)
    return warp_group_choice.not_among((it for it in every if _has(what, it)), target)


def _has(what: Conv2dDescription, tile: GemmWarpGroup) -> bool:
    """Whether there is such a cluster: none of wgrad, whose pixels are not copied to several
    blocks."""
    return tile.cluster == 1 or what.conv_kind is not Operator.wgrad


def _reasons(what: Conv2dDescription) -> Iterator[str]:
    if what.by_taps:
        yield "warp groups compute all pixels of a filter as columns of one matrix"
    splits = warp_group_choice.splits(what.math)
    # Split filters are also transposed, and a wgrad's operands become bfloat16.
    if what.conv_kind is not Operator.fprop and what.A.element.bytes != 2 and not splits:
        yield (
            f"warp groups read {what.A.element.name} contiguous along the sums alone, which those"
            f" of a {what.conv_kind.name} are not"
        )
    for name, item in (("A", what.A), ("B", what.B)):
        if _converts(what) and item.alignment * item.element.bytes < GRANULE:
            yield (
                f"tensor maps take addresses and strides in multiples of {GRANULE} bytes, and"
                f" {name} promises {item.alignment} elements"
            )


def designs(what: Conv2dDescription, target: Target) -> Iterator[AnyConv2d]:
    """The designs for a description by warp groups, if there are any. Which of them serve a size is
    known of the size alone: see their `status_of`."""
    yield from _direct(what, target)
    yield from _widened(what, target)
    if not isinstance(what.epilogue, VisitorEpilogue):
        yield from _joined(what, target)


def _direct(what: Conv2dDescription, target: Target) -> Iterator[Direct]:
    """Those that read tensors as they are, or as two planes."""
    if not status(what, target):
        return
    tree = isinstance(what.epilogue, VisitorEpilogue)
    strided = (
        what.conv_kind is Operator.dgrad
        and what.stride_support is not StrideSupport.Unity
        and not tree
    )
    product = _product(what)
    for item in _tiles(what, product, target):
        # Clusters are slower unless products are large: only tiles of the user's have them.
        if not _has(what, item) or (item.cluster > 1 and what.tile is None):
            continue
        design = Conv2dWarpGroup(
            kind=what.conv_kind,
            wrapped=item,
            members=REMAINDERS if strided else 1,
            filled=False,
        )
        yield Conv2dSplit(split=GemmSplit(), product=design) if item.in_planes else design
    if what.conv_kind is Operator.wgrad:
        yield from _sliced(what, target)


def _sliced(what: Conv2dDescription, target: Target) -> Iterator[Conv2dSlices]:
    sums = what.math.element_accumulator
    adding = Conv2dAddSlices(
        sums=sums, output=what.Y.element, epilogue=what.epilogue, vector=_VECTOR
    )
    raw = replace(
        _product(what),
        Y=TensorDescription(sums),
        epilogue=LinearCombination(sums, 1, sums, sums),
    )
    for item in _tiles(what, raw, target):
        if _has(what, item):
            product = Conv2dWarpGroup(kind=what.conv_kind, wrapped=item, members=1, filled=True)
            yield Conv2dSlices(product=product, adding=adding)


def _joined(what: Conv2dDescription, target: Target) -> Iterator[Conv2dJoined]:
    """Those that convolve several groups as one. Results of a wgrad are runs of few channels, which
    may be less than vectors."""
    spread = Conv2dSpread(element=what.A.element)
    if what.conv_kind is not Operator.wgrad:
        # Spread filters promise whole lines.
        b = replace(what.B, alignment=GRANULE // what.B.element.bytes)
        inner = _direct(replace(what, B=b), target)
        yield from (Conv2dJoined(spread=spread, inner=it) for it in inner)
    elif status(what, target):
        for item in _sliced(what, target):
            single = replace(item, adding=replace(item.adding, vector=1))
            yield from (Conv2dJoined(spread=spread, inner=it) for it in (item, single))


def _widened(what: Conv2dDescription, target: Target) -> Iterator[Conv2dWidened]:
    """Those that widen images, which then promise whole lines; so do filters of fprop."""
    if what.conv_kind is Operator.dgrad or what.interleaved:
        return
    a, b = (replace(it, alignment=GRANULE // it.element.bytes) for it in (what.A, what.B))
    is_fprop = what.conv_kind is Operator.fprop
    whole = replace(what, B=b, A=a if is_fprop else what.A)
    if is_fprop:
        for direct in _direct(whole, target):
            yield _of_widened(replace(direct.product, overlapping=True))
    elif status(whole, target):
        for sliced in _sliced(whole, target):
            product = replace(sliced.product, overlapping=True)
            # Lines of taps are no multiples of vectors.
            adding = replace(sliced.adding, vector=1)
            yield _of_widened(product, Conv2dSlices(product=product, adding=adding))


def _of_widened(product: Conv2dWarpGroup, inner: Conv2dSlices | None = None) -> Conv2dWidened:
    own = product.wrapped
    return Conv2dWidened(
        widen=Conv2dWiden(element=own.source, split=own.in_planes), inner=inner or product
    )


def _converts(what: Conv2dDescription) -> bool:
    """Whether float32 operands are split in shared memory."""
    return what.conv_kind is Operator.wgrad and warp_group_choice.splits(what.math)


def _tiles(
    what: Conv2dDescription, product: GemmDescription, target: Target
) -> Iterator[GemmWarpGroup]:
    if _converts(what):
        return warp_group_choice.converting(product, target)
    return warp_group_choice.products_of(product, target, _TILES)


def _product(what: Conv2dDescription) -> GemmDescription:
    """The product as which warp groups compute it: A is contiguous along the sums but in wgrad, B
    in fprop alone."""
    turned_a = what.conv_kind is Operator.wgrad
    turned_b = what.conv_kind is not Operator.fprop
    return GemmDescription(
        math=what.math,
        tile=what.tile,
        A=replace(what.A, layout=ColumnMajor if turned_a else RowMajor),
        B=replace(what.B, layout=RowMajor if turned_b else ColumnMajor),
        Y=replace(what.Y, layout=RowMajor),
        epilogue=what.epilogue,
        visitor=isinstance(what.epilogue, VisitorEpilogue),
    )


def steps(what: Conv2dDescription, target: Target, found: AnyConv2d) -> tuple[Step, ...]:
    """The steps of a plan: the product, after what splits or widens its operands, or before what
    adds up its slices, if it has some."""
    product = found.product
    kinds = f"{what.conv_kind.name}_{what.A.element.short}_{what.epilogue.name}"
    made = convolution_step(
        f"conv2d_warp_group_{kinds}_{product.wrapped.sizes}_{target.arch}",
        what,
        product,
        multiplied=product.wrapped.multiplied,
        products=PRODUCTS_OF_SPLIT if product.wrapped.split else 1,
    )
    ends = f"{what.A.element.short}_{what.epilogue.name}_{target.arch}"
    return tuple(
        made
        if item is product
        else Step(entry=f"{_stem(item, target)}_{ends}", design=item, note=str(item))
        for item in found.designs
    )


def _stem(design: Design, target: Target) -> str:
    """The name of a kernel's header."""
    return design.instantiation(target).header.partition(".")[0]
