"""The launches of products of kernel matrices, and what of the workspace each reads and writes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kronop.artifacts import Launch
from kronop.emit.plan import Plan
from kronop.families.distance.cuda.product_design import Held, ProductTile
from kronop.families.distance.cuda.product_expanded import (
    PARTS,
    ProductHalves,
    ProductMeasure,
    ProductMma,
    points_batch,
)
from kronop.families.distance.cuda.product_packing import (
    ProductPack,
    ProductSum,
    aligned,
    packed_batch,
)
from kronop.families.distance.product_description import KernelMatmulProblem
from kronop.families.distance.product_size import KernelMatmulSize


def _tiles(plan: Plan) -> tuple[ProductTile, ProductMma | None]:
    """(what computes differences, what computes products of points or None)."""
    designs = [step.design for step in plan.steps]
    mma = next((item for item in designs if isinstance(item, ProductMma)), None)
    return next(item for item in designs if isinstance(item, ProductTile)), mma


def _of_points(mma: ProductMma, m: int, n: int, k: int, problems: int) -> tuple[int, ...]:
    """Bytes of halves of X1 and X2, of both norms, of the largest ones, and of the centre, for
    problems none of which have the same points."""
    rows = mma.rows(m, n)
    halves = (aligned(4 * problems * count * mma.depth) for count in rows)
    norms = (aligned(4 * problems * count) for count in rows)
    return (*halves, *norms, aligned(4 * problems * 2 * PARTS), aligned(4 * problems * k))


def workspace_bytes(plan: Plan, size: KernelMatmulSize) -> int:
    """Bytes of the packed operands, without what problems share, and of the shares of columns."""
    tile, mma = _tiles(plan)
    element = tile.math.element_accumulator.bytes
    rooms = tile.room(size.m, size.n, size.k, size.c)
    own = zip((size.own_x1, size.own_x2, size.own_v), rooms, strict=True)
    packed = sum(aligned(problems * room.numbers * element) for problems, room in own)
    shares = (mma or tile).shares(size.m, size.n, size.c, size.batch, plan.target)
    partial = aligned(shares * size.batch * size.m * size.c * element)
    points = _of_points(mma, size.m, size.n, size.k, size.own_points) if mma else ()
    return packed + partial + sum(points)


def launches(plan: Plan, problem: KernelMatmulProblem) -> tuple[Launch, ...]:
    """The launches for a problem that has results."""
    return tuple(_launches(plan, problem))


def _launches(plan: Plan, problem: KernelMatmulProblem) -> Iterator[Launch]:
    tile, mma = _tiles(plan)
    p, element = problem, tile.math.element_accumulator.bytes
    rooms, sources = tile.room(p.m, p.n, p.k, p.c), (p.x1, p.x2, p.v)
    at, packed, problems = p.workspace, [], math.prod(p.batch)
    for room, source in zip(rooms, sources, strict=True):
        extents, strides = packed_batch(p.batch, source)
        packed.append((at, tuple(stride * room.numbers for stride in strides)))
        at += aligned(math.prod(extents) * room.numbers * element)
    shares = (mma or tile).shares(p.m, p.n, p.c, problems, plan.target)
    partial, at = at, at + aligned(shares * problems * p.m * p.c * element)
    held, centre = Held(packed=tuple(packed), partial=partial, shares=shares), 0
    if mma is not None and p.n and p.k:
        (extents, strides), places = points_batch(p), []
        for size in _of_points(mma, p.m, p.n, p.k, math.prod(extents)):
            places.append(at)
            at += size
        halves1, halves2, norms1, norms2, largest, centre = places
        held = Held(
            packed=held.packed,
            partial=partial,
            shares=shares,
            halves=(halves1, halves2),
            norms=(norms1, norms2),
            largest=largest,
            points_batch=strides,
        )
    for index, design in enumerate(step.design for step in plan.steps):
        if isinstance(design, ProductPack):
            to = [address for address, _ in packed]
            yield design.launch(index, p.batch, sources, rooms, to)
        elif isinstance(design, ProductSum):
            yield design.launch(index, p, partial, shares)
        elif isinstance(design, ProductTile):
            yield design.launch(index, p, held)
        elif held.largest and mma is not None:
            if isinstance(design, ProductMeasure):
                yield design.launch(index, p, held.largest, centre)
            elif isinstance(design, ProductHalves):
                yield design.launch(index, p, held, centre, mma.rows(p.m, p.n))
            elif isinstance(design, ProductMma):
                yield design.launch(index, p, held)
