"""The pipelines of products of kernel matrices, and what of the workspace their parts share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kronop.artifacts import Launch
from kronop.emit.design import Pipeline, Runnable
from kronop.families.distance.cuda.product_design import ProductTile
from kronop.families.distance.cuda.product_expanded import (
    PARTS,
    ProductHalves,
    ProductMeasure,
    ProductMma,
)
from kronop.families.distance.cuda.product_packing import ProductPack, ProductSum
from kronop.families.distance.cuda.product_places import (
    PLACES_OF_POINTS,
    PlacedPoints,
    PlacedProduct,
    aligned,
    points_batch,
)
from kronop.families.distance.description import KernelMatmulProblem
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductsOfPoints(Pipeline):
    """Points are packed in halves, away from their centre, and multiplied on tensor cores."""

    mma: ProductMma

    @property
    def measure(self) -> ProductMeasure:
        mma = self.mma
        return ProductMeasure(math=mma.math, source=mma.source, depth=mma.depth)

    @property
    def halves(self) -> ProductHalves:
        mma = self.mma
        return ProductHalves(
            math=mma.math,
            source=mma.source,
            depth=mma.depth,
            stacked=mma.stacked,
            warp_rows=mma.warp_rows,
        )

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.measure, self.halves, self.mma

    def nbytes(self, size: KernelMatmulSize) -> tuple[int, ...]:
        """Bytes of each of PLACES_OF_POINTS."""
        problems, rows = size.own_points, self.mma.rows(size)
        halves = (aligned(4 * problems * count * self.mma.depth) for count in rows)
        norms = (aligned(4 * problems * count) for count in rows)
        return (*halves, *norms, aligned(4 * problems * 2 * PARTS), aligned(4 * problems * size.k))

    def placed(self, problem: KernelMatmulProblem, places: Sequence[int]) -> PlacedPoints:
        """What is at these places; nothing where no kernel of two points depends on them."""
        if not (problem.n and problem.k):
            return PlacedPoints()
        return PlacedPoints(
            **dict(zip(PLACES_OF_POINTS, places, strict=True)),
            rows=self.mma.rows(problem.size),
            batch=points_batch(problem)[1],
        )

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        return self.launches_of_all(problem, target) if problem.points.largest else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatmul(Pipeline):
    """Operands are packed, shares of the columns computed, and their sums added up.

    Attributes:
        points: computes the shares where products of points are accurate enough; None without.
        tile: computes those that are left, from differences.
    """

    pack: ProductPack
    points: ProductsOfPoints | None
    tile: ProductTile
    total: ProductSum

    @property
    def parts(self) -> tuple[Runnable, ...]:
        points = () if self.points is None else (self.points,)
        return self.pack, *points, self.tile, self.total

    def _shares(self, size: KernelMatmulSize, target: Target) -> int:
        return (self.points.mma if self.points else self.tile).shares(size, target)

    def _nbytes(self, size: KernelMatmulSize, target: Target) -> tuple[int, ...]:
        """Bytes of the packed operands, without what problems share, of the shares of columns, and
        of what products of points take."""
        element = self.tile.math.element_accumulator.bytes
        own = zip((size.own_x1, size.own_x2, size.own_v), self.tile.rooms(size), strict=True)
        packed = (aligned(problems * room.numbers * element) for problems, room in own)
        sums = self._shares(size, target) * size.batch * size.m * size.c
        points = self.points.nbytes(size) if self.points else ()
        return (*packed, aligned(sums * element), *points)

    def workspace(self, size: KernelMatmulSize, target: Target, threads: int) -> int:
        return sum(self._nbytes(size, target))

    def launches(self, problem: KernelMatmulProblem, target: Target) -> tuple[Launch, ...]:
        size = problem.size
        nbytes = self._nbytes(size, target)
        places = tuple(itertools.accumulate(nbytes, initial=problem.workspace))
        placed = PlacedProduct(
            problem=problem,
            rooms=self.tile.rooms(size),
            packed=places[:3],
            partial=places[3],
            shares=self._shares(size, target),
            points=self.points.placed(problem, places[4:-1]) if self.points else PlacedPoints(),
        )
        return self.launches_of_all(placed, target)
