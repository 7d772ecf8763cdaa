"""Gradients in images of few channels: the candidates whose columns are folded, and their steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kronop.descriptions.datatype import RowMajor
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Step
from kronop.families.conv2d.cuda.fold import Conv2dFold
from kronop.families.conv2d.cuda.folded import AnyProduct, Conv2dFolded
from kronop.families.conv2d.cuda.widen import Conv2dWiden
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda import choice as products
from kronop.families.gemm.cuda import warp_group_choice
from kronop.families.gemm.description import GemmDescription
from kronop.target import Target


def designs(what: Conv2dDescription, target: Target, size: Conv2dSize) -> Iterator[Conv2dFolded]:
    """The designs for a size, if its images have few channels."""
    is_plain = what.tile is None and not isinstance(what.epilogue, VisitorEpilogue)
    # Instructions that add up in float16 alone would round columns, which are sums in parts.
    rounds = what.math.summed_in(what.math.added_in).element_accumulator.bytes < 4
    if what.conv_kind is not Operator.dgrad or not is_plain or rounds:
        return
    widen = Conv2dWiden(element=what.A.element, split=False)
    fold = Conv2dFold(sums=what.math.added_in, output=what.Y.element, epilogue=what.epilogue)
    for product in _products(_columns(what, size), target):
        found = Conv2dFolded(widen=widen, product=product, fold=fold)
        if found.status_of(size):
            yield found


def _products(what: GemmDescription, target: Target) -> Iterator[AnyProduct]:
    """Those of a matrix product. Memory limits most of them: of warp groups, those come first whose
    teams store a tile while others multiply. Clusters gain nothing where sums are short."""
    groups = warp_group_choice.designs(what, target)
    alone = [item for item in groups if item.product.cluster == 1]
    yield from sorted(alone, key=lambda item: not item.product.alternate)
    yield from products.blocks_and_warps(what, target)


def _columns(what: Conv2dDescription, size: Conv2dSize) -> GemmDescription:
    """The matrix product whose results are columns."""
    element, sums = what.A.element, what.math.added_in
    whole = operands.vector_of(element)
    return GemmDescription(
        math=what.math.summed_in(sums),
        tile=None,
        A=TensorDescription(element, RowMajor, math.gcd(what.A.alignment, size.k)),
        B=TensorDescription(element, RowMajor, whole),
        Y=TensorDescription(sums, RowMajor, operands.vector_of(sums)),
        epilogue=LinearCombination(sums, 1, sums, sums),
    )


def steps(what: Conv2dDescription, target: Target, found: Conv2dFolded) -> tuple[Step, ...]:
    """The steps of a plan: filters are widened, gradients multiplied, and columns folded."""
    product, element = found.product.product, what.A.element.short
    made = convolution_step(
        f"conv2d_columns_{product.kind}_{element}_{product.sizes}_{target.arch}",
        what,
        product,
        multiplied=product.multiplied,
        products=PRODUCTS_OF_SPLIT if warp_group_choice.splits(product.math) else 1,
        sums=product.math.element_accumulator,
        note="columns of a convolution by",
    )
    ends = {
        found.widen: f"conv2d_widen_{element}",
        found.fold: f"conv2d_fold_{element}_{what.epilogue.name}",
    }
    return tuple(
        made
        if item is product
        else Step(
            entry=f"{ends.get(item, 'gemm_split')}_{target.arch}", design=item, note=str(item)
        )
        for item in found.designs
    )
