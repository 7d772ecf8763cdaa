"""Plans of products of kernel matrices on GPUs."""

from __future__ import annotations

import dataclasses
from typing import Any

from kronop.artifacts import Status
from kronop.descriptions.datatype import float16, float64
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.cuda.operands import accept_math
from kronop.emit.design import Design
from kronop.emit.floor import LeastWork
from kronop.emit.plan import Plan, Step
from kronop.families.distance.cuda.product_design import ProductTile
from kronop.families.distance.cuda.product_expanded import ProductMma
from kronop.families.distance.cuda.product_packing import ProductPack, ProductSum
from kronop.families.distance.cuda.product_pipeline import KernelMatmul, ProductsOfPoints
from kronop.families.distance.description import KernelMatmulDescription
from kronop.families.distance.floors import LeastAroundMatmul
from kronop.families.distance.form import TermKind
from kronop.families.distance.product_size import USUAL, KernelMatmulSize
from kronop.families.distance.steps import least_of_matmul, step_of
from kronop.machine import Feature
from kronop.target import Target

# Features of a stage in shared memory, and columns of V of a block, at most.
_SLABS, _MOST_COLUMNS, _MOST_WIDE = (4, 16), 16, 4
# The fewest columns of V that are multiplied on tensor cores, and how many at once.
_TOGETHER = 8
# Most features that fit three times into the operands of one MMA.
_STACKED = 5
# Points on a side from which on further launches pay.
_FEWEST_POINTS = 4096


def supports(description: KernelMatmulDescription, target: Target) -> Status:
    """Whether the ordinary (SIMT) cores have the math."""
    return accept_math(description.math)


def plans(
    description: KernelMatmulDescription, target: Target, count: int, size: KernelMatmulSize | None
) -> tuple[Plan, ...]:
    """The plan for a size."""
    what, size = description, size or USUAL
    tile = _tile(what, size, target)
    points = _of_points(what, size, dataclasses.replace(tile, either=True), target)
    pipeline = KernelMatmul(
        pack=ProductPack(math=what.math, source=what.X1.element),
        points=points,
        tile=points.mma.instead if points else tile,
        total=ProductSum(
            math=what.math,
            source=what.V.element,
            output=what.Y.element,
            epilogue=what.epilogue,
            regularized=what.kernel.regularized,
        ),
    )
    return (Plan(target=target, steps=_steps(what, target, pipeline), pipeline=pipeline),)


def _steps(what: KernelMatmulDescription, target: Target, of: KernelMatmul) -> tuple[Step, ...]:
    element, sums = what.X1.element.bytes, what.math.element_accumulator.bytes
    around, packed = LeastAroundMatmul, element + sums

    def step(name: str, design: Design, note: str, least: LeastWork) -> Step:
        return step_of(what, target, f"product_{name}", design, note, least)

    def multiply(name: str, design: Design, note: str, tensor_cores: bool, **how: Any) -> Step:
        multiplied = float16.bytes if tensor_cores else 0
        least = least_of_matmul(what, multiplied=multiplied, products=PRODUCTS_OF_SPLIT, **how)
        return step(name, design, note, least)

    note = "packs points and columns"
    steps = [step("pack", of.pack, note, around(points=packed, columns=packed))]
    tile_note = "products of a kernel matrix"
    if of.points is not None:
        note = "the centre of points, and the largest distance from it"
        steps.append(step("measure", of.points.measure, note, around(points=element)))
        note = "packs points for tensor cores"
        steps.append(step("halves", of.points.halves, note, around(points=packed)))
        note = "products of a kernel matrix, by products of points"
        steps.append(multiply("mma", of.points.mma, note, True, expanded=True))
        tile_note = "the same by differences, if products are not accurate enough"
    # Inner products are computed by the ordinary cores, which are then the slower ones.
    has_dot = any(term.kind is TermKind.Dot for term in what.kernel.terms)
    steps.append(multiply("tile", of.tile, tile_note, of.tile.together and not has_dot))
    least = around(results=sums + what.Y.element.bytes)
    steps.append(step("sum", of.total, "adds up shares of the columns", least))
    return tuple(steps)


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


def _of_points(
    what: KernelMatmulDescription, size: KernelMatmulSize, tile: ProductTile, target: Target
) -> ProductsOfPoints | None:
    """Products of points, if the form allows them and there are enough points; else None."""
    rows, blocks, unroll = _measured(size.k, size.c)
    mma = ProductMma(
        math=what.math,
        source=what.X1.element,
        form=what.kernel,
        depth=16 * max(1, -(-size.k // 16)),
        stacked=size.k <= _STACKED,
        thread_m=rows,
        unroll=unroll,
        blocks=blocks,
        columns=tile.columns,
        instead=tile,
    )
    enough = size.m >= _FEWEST_POINTS and size.n >= _FEWEST_POINTS
    return ProductsOfPoints(mma=mma) if enough and mma.status(target) else None


def _measured(k: int, c: int) -> tuple[int, int, int]:
    """(rows of a thread, resident blocks per multiprocessor, unroll factor).

    NOTE: measured on an H200, 100000 points on both sides, rows of 4 and 8, 1 to 3 blocks, unroll
    factors 1 and 2. For one column K = 3 took 3.45 to 3.63 ms, K = 16 4.2 to 4.9, and K = 64 9.3 to
    29 (with register spills); for 16 columns 6.8 to 6.9, 7.6 to 8.2 and 13.8 to 15.1.
    """
    if c < 8:
        narrow = (8, 2, 2) if k <= _STACKED else (4, 3, 1)
        return narrow if k <= 16 and c <= 2 else (4, 2 if k <= 64 else 1, 1)
    return (4, 2, 1) if k <= 32 else (4, 1, 2 if k <= 64 else 1)
