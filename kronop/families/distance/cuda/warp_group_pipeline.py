"""The pipeline of distances as products: points are packed, then multiplied."""

from __future__ import annotations

import itertools
import math

from kronop.artifacts import Launch, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import gpu_of, hertz
from kronop.emit.design import Pipeline, Runnable
from kronop.families.distance.cuda.warp_group_design import (
    ROW_BYTES,
    ROWS,
    DistancePack,
    DistanceWarpGroup,
    PackedProblem,
)
from kronop.families.distance.description import DistanceProblem, varying
from kronop.families.distance.size import DistanceSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# The fraction of the bandwidth of large copies that packing and storing reach; seconds of both
# launches; latency of the first loads of points.
_MOVED, _LAUNCHES, _LATENCY = 0.935, 6e-6, 0.8e-6
# Features that a team's loads in flight cover while it packs a point.
_PACK_FEATURES = 128
# Cycles from the last MMA of a tile to the first one of the next.
_TILE_CYCLES = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDistances(Pipeline):
    """Points are packed, then multiplied."""

    product: DistanceWarpGroup

    def __str__(self) -> str:
        return str(self.product)

    @property
    def pack(self) -> DistancePack:
        return DistancePack(product=self.product)

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.pack, self.product

    def status(self, target: Target) -> Status:
        return self.product.status(target)

    def seconds(self, size: DistanceSize, target: Target) -> float:
        """Modelled time of both steps."""
        product = self.product
        slabs = operands.cover(size.k, product.slab)
        rows, columns = operands.cover(size.m, ROWS), operands.cover(size.n, product.n)
        tiles: float = rows * columns * size.batch
        results = size.m * size.n * size.batch * product.output.bytes
        if product.symmetric:
            tiles = (tiles + size.batch * max(rows, columns)) / 2
        products = slabs * product.slab * (3 if product.split else 1) * ROWS * product.n
        waves = math.ceil(tiles / target.cores)
        multiply = (
            waves * (products / MEASURED.warp_group_products[2] + _TILE_CYCLES) / hertz(target)
        )
        memory = _MOVED * gpu_of(target).bandwidth
        elements = (size.m + (0 if product.symmetric else size.n)) * size.k * size.batch
        moved = 2 * product.source.bytes + slabs * ROW_BYTES / max(1, size.k)
        passes = 2 if product.split else 1
        waiting = (passes * operands.cover(size.k, _PACK_FEATURES) + 1) * _LATENCY
        pack = max(elements * moved / memory, waiting)
        return _LAUNCHES + pack + max(multiply, results / memory)

    def workspace(self, size: DistanceSize, target: Target, threads: int) -> int:
        """Bytes of images and facts, which problems of a batch share as they share points."""
        own_x1 = size.own_points if self.product.centred else size.own_x1
        return sum(self._nbytes(size, own_x1, size.own_x2))

    def _nbytes(self, size: DistanceSize | DistanceProblem, own1: int, own2: int) -> list[int]:
        """Bytes of images and of facts, of X1 and then of X2 unless it is X1; so many problems have
        an X1 and an X2 of their own."""
        own = [(size.m, own1), (size.n, own2)][: 1 if self.product.symmetric else 2]
        sizes = (self.product.operand_bytes(count, size.k, problems) for count, problems in own)
        return [nbytes for pair in sizes for nbytes in pair]

    def launches(self, problem: DistanceProblem, target: Target) -> tuple[Launch, ...]:
        x1, x2 = problem.x1.batch, problem.x2.batch
        # Centred points of X1 depend on X2, whose centre is subtracted from them.
        batch1 = varying(problem.batch, x1, *([x2] if self.product.centred else []))
        batch2 = varying(problem.batch, x2)
        nbytes = self._nbytes(problem, math.prod(batch1), math.prod(batch2))
        *places, _ = itertools.accumulate(nbytes, initial=problem.workspace)
        batches = (batch1, batch1 if self.product.symmetric else batch2)
        packed = PackedProblem(problem=problem, places=tuple(places), batches=batches)
        return self.launches_of_all(packed, target)
