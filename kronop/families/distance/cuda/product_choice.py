"""Plans of products of kernel matrices on GPUs."""

from __future__ import annotations

import dataclasses

from kronop.artifacts import Status
from kronop.descriptions.datatype import float16, float64
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.cuda.operands import accept_math
from kronop.emit.design import Design
from kronop.emit.floor import LeastWork
from kronop.emit.plan import Plan, Step
from kronop.families.distance import parts
from kronop.families.distance.cuda.product_design import ProductTile
from kronop.families.distance.cuda.product_expanded import (
    ProductHalves,
    ProductMeasure,
    ProductMma,
)
from kronop.families.distance.cuda.product_packing import ProductPack, ProductSum
from kronop.families.distance.floors import LeastAroundMatmul, LeastOfMatmul
from kronop.families.distance.form import TermKind
from kronop.families.distance.product_description import KernelMatmulDescription
from kronop.families.distance.product_size import USUAL, KernelMatmulSize
from kronop.machine import Feature
from kronop.target import Target

# Features in shared memory at a time, and columns of V that a block takes, at most.
_SLABS, _MOST_COLUMNS, _MOST_WIDE = (4, 16), 16, 4
# Columns of v from which they are multiplied on tensor cores, and how many at once.
_TOGETHER = 8
# Features that fit three times into the operands of one product on tensor cores.
_STACKED = 5
# Points on a side from which some more launches are worth their time.
_FEWEST_POINTS = 4096


def supports(description: KernelMatmulDescription, target: Target) -> Status:
    """Whether the ordinary cores have the math."""
    return accept_math(description.math)


def plans(
    description: KernelMatmulDescription,
    target: Target,
    count: int,
    size: KernelMatmulSize | None,
) -> tuple[Plan, ...]:
    """The plan for a size."""
    what, size = description, size or USUAL
    expanded = _expanded(what, size, target)
    pack = ProductPack(math=what.math, source=what.X1.element)
    total = ProductSum(
        math=what.math,
        source=what.V.element,
        output=what.Y.element,
        epilogue=what.epilogue,
        regularized=what.kernel.regularized,
    )
    designs: list[tuple[str, Design, str]] = [("pack", pack, "packs points and columns")]
    if expanded is not None:
        tile = expanded.instead
        designs += [
            ("measure", expanded.measure, "the centre of points, and the largest distance from it"),
            ("halves", expanded.halves, "packs points for tensor cores"),
            ("mma", expanded, "products of a kernel matrix, by products of points"),
            ("tile", tile, "the same by differences, if products are not accurate enough"),
        ]
    else:
        designs.append(("tile", _tile(what, size, target), "products of a kernel matrix"))
    designs.append(("sum", total, "adds up shares of the columns"))
    steps = (_step(what, target, f"product_{name}", item, note) for name, item, note in designs)
    return (Plan(target=target, steps=tuple(steps)),)


def _step(
    what: KernelMatmulDescription, target: Target, name: str, design: Design, note: str
) -> Step:
    return Step(
        entry=parts.kernel_name(name, what.X1.element, what.kernel, what.epilogue, target),
        design=design,
        bytes_per_row=what.Y.element.bytes,
        operations_per_row=what.kernel.operations,
        note=note,
        least=_least(what, design),
    )


def _least(what: KernelMatmulDescription, design: Design) -> LeastWork:
    """What the floor of a step follows from."""
    element, sums = what.X1.element.bytes, what.math.element_accumulator
    if isinstance(design, ProductMeasure):
        return LeastAroundMatmul(points=element)
    if isinstance(design, ProductHalves):
        return LeastAroundMatmul(points=element + sums.bytes)
    if isinstance(design, ProductPack):
        return LeastAroundMatmul(points=element + sums.bytes, columns=element + sums.bytes)
    if isinstance(design, ProductSum):
        return LeastAroundMatmul(results=sums.bytes + what.Y.element.bytes)
    expanded = isinstance(design, ProductMma)
    kinds = {term.kind for term in what.kernel.terms}
    # The ordinary cores compute inner products, and are then the slower ones.
    on_tensor_cores = expanded or (_together(design) and TermKind.Dot not in kinds)
    return LeastOfMatmul(
        form=what.kernel,
        element=element,
        sums=sums.name,
        expanded=expanded,
        multiplied=float16.bytes if on_tensor_cores else 0,
        products=PRODUCTS_OF_SPLIT,
    )


def _together(design: Design) -> bool:
    """Whether tensor cores multiply by V."""
    return isinstance(design, ProductTile) and design.together


def _tile(what: KernelMatmulDescription, size: KernelMatmulSize, target: Target) -> ProductTile:
    """The tile for sizes of that bucket."""
    wide = what.math.element_accumulator is float64
    columns = min(size.c, _MOST_WIDE if wide else _MOST_COLUMNS)
    few = len(what.kernel.terms) == 1 and columns <= 2
    return ProductTile(
        math=what.math,
        source=what.X1.element,
        form=what.kernel,
        thread_m=4 if wide else 8,
        thread_n=4 if wide or not few else 8,
        warps_m=2,
        slab=min(max(size.k, _SLABS[0]), _SLABS[-1]),
        columns=columns,
        together=columns >= _TOGETHER and not wide and target.has(Feature.wide_products),
        either=False,
    )


def _expanded(
    what: KernelMatmulDescription, size: KernelMatmulSize, target: Target
) -> ProductMma | None:
    """Products of points, where the form allows them and there are enough points; else None."""
    tile, (rows, blocks, groups) = _tile(what, size, target), _measured(size.k, size.c)
    found = ProductMma(
        math=what.math,
        source=what.X1.element,
        form=what.kernel,
        depth=16 * max(1, -(-size.k // 16)),
        stacked=size.k <= _STACKED,
        thread_m=rows,
        groups=groups,
        blocks=blocks,
        columns=tile.columns,
        instead=dataclasses.replace(tile, either=True),
    )
    enough = size.m >= _FEWEST_POINTS and size.n >= _FEWEST_POINTS
    return found if enough and found.status(target) else None


def _measured(k: int, c: int) -> tuple[int, int, int]:
    """(rows of a thread, blocks on a multiprocessor, groups at once).

    NOTE: measured on an H200 with 100000 points on both sides, with rows of 4 and 8, 1 to 3 blocks
    and 1 or 2 groups. For one column K = 3 took 3.45 to 3.63 ms, K = 16 4.2 to 4.9, and K = 64 9.3
    to 29 (where registers are spilled); for 16 columns 6.8 to 6.9, 7.6 to 8.2 and 13.8 to 15.1.
    """
    if c < 8:
        narrow = (8, 2, 2) if k <= _STACKED else (4, 3, 1)
        return narrow if k <= 16 and c <= 2 else (4, 2 if k <= 64 else 1, 1)
    return (4, 2, 1) if k <= 32 else (4, 1, 2 if k <= 64 else 1)
