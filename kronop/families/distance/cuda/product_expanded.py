"""Products of kernel matrices with squared distances from tensor cores; see product_mma.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.cuda import operands
from kronop.emit.design import (
    Instantiation,
    InWorkspace,
    members,
    named,
    package_folder,
    strided_values,
)
from kronop.families.distance import parts
from kronop.families.distance.cuda.product_design import THREADS, ProductKernel, ProductTile
from kronop.families.distance.cuda.product_places import PlacedProduct, points_batch
from kronop.families.distance.form import TermKind
from kronop.families.distance.parts import counts_of
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.frozen import dataclass
from kronop.machine import Feature
from kronop.target import Target

_WARPS, _LANES_M = 8, 8
# Most features: those of a thread's rows are in registers.
_MOST_DEPTH = 128
# Parts whose largest norms are found separately, as in product_block.cuh, and rows that a block
# packs.
PARTS, ROWS = 64, 64
_BATCHES = ("batch", "x1_batch", "x2_batch")
_STRIDES = ("x1_row", "x1_column", "x2_row", "x2_column")


@dataclass(frozen=True, kw_only=True)
class _OfPoints(InWorkspace):
    """A step that reads the points.

    Attributes:
        source: the type of the points.
        depth: the number of features, padded.
        pointers: those of PLACES_OF_POINTS that are members of the parameter struct.
        tiles: members that count tiles.
    """

    threads = THREADS
    pointers: ClassVar[tuple[str, ...]]
    tiles: ClassVar[tuple[str, ...]] = ()

    math: MathInstruction
    source: DataType
    depth: int

    @property
    def signature(self) -> KernelSignature:
        whole = Scalar.INT64
        return KernelSignature(
            f"{type(self).__name__}Parameters",
            (
                *(Field(item, Scalar.POINTER) for item in ("x1", "x2", *self.pointers)),
                *(Field(item, whole) for item in ("m", "n", "k", *self.tiles)),
                *(Field(item, whole, MOST_BATCH_DIMENSIONS) for item in _BATCHES),
                *(Field(item, whole) for item in _STRIDES),
            ),
        )

    def _launch(self, placed: PlacedProduct, blocks: int, *tiles: int) -> tuple[Launch, ...]:
        """The launch of so many blocks for the points of each problem (once for all problems of the
        batch that share points); `tiles` are the values of the members of that name."""
        p, points = placed.problem, placed.points
        extents, _ = points_batch(p)
        values: dict[str, Any] = {
            **members(p, "m n k"),
            **{name: getattr(points, name) for name in self.pointers},
            **dict(zip(self.tiles, tiles, strict=True)),
            **strided_values(p, ("x1", "x2")),
            "batch": extents,
        }
        blocks *= math.prod(extents)
        operands.check_blocks(blocks)
        return (operands.make_launch(self, blocks, values),)


@dataclass(frozen=True, kw_only=True)
class ProductMeasure(_OfPoints):
    """The centre of the points, and the largest squares of lengths relative to it."""

    pointers = ("largest", "centre")

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.depth + THREADS)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="product_measure.cuh",
            parameters="kronop::ProductMeasureParameters",
            types=(("Input", self.source.cxx),),
            constants=(("kThreads", THREADS), ("kBlocks", 1), ("kDepth", self.depth)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        return self._launch(problem, 2 * PARTS)


@dataclass(frozen=True, kw_only=True)
class ProductHalves(_OfPoints):
    """Points split in two halves, as the tensor cores read them.

    Attributes:
        stacked: features are stored three times, so that one MMA is the sum of three.
        warp_rows: points of X1 of a warp.
    """

    pointers = ("largest", "centre", "halves1", "halves2", "norms1", "norms2")
    tiles = ("tiles1", "tiles2")

    stacked: bool
    warp_rows: int

    @property
    def shared_bytes(self) -> int:
        return 4 * ROWS * (self.depth + 1)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="product_halves.cuh",
            parameters="kronop::ProductHalvesParameters",
            types=(("Input", self.source.cxx),),
            constants=(
                ("kThreads", THREADS),
                ("kBlocks", 1),
                *named(self, "depth stacked"),
                ("kRows", ROWS),
                ("kWarpRows", self.warp_rows),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        tiles = [count // ROWS for count in problem.points.rows]
        return self._launch(problem, sum(tiles), *tiles)


@dataclass(frozen=True, kw_only=True)
class ProductMma(ProductKernel):
    """Squared distances from products of points on tensor cores, if they are accurate enough.

    Attributes:
        depth: features, with padding.
        stacked: so few features that the products of their halves are one MMA.
        unroll: tiles of 16 columns whose computations may overlap.
        instead: the design that computes differences where products are not accurate enough.
    """

    styles: ClassVar[tuple[str, ...]] = ("multiplied by threads", "multiplied by tensor cores")

    depth: int
    stacked: bool
    unroll: int
    blocks: int
    instead: ProductTile

    @property
    def tile(self) -> tuple[int, int]:
        return _WARPS * self.warp_rows, self.instead.tile[1]

    @property
    def warp_rows(self) -> int:
        """Rows of a tile of a warp."""
        return _LANES_M * self.thread_m

    @property
    def shared_bytes(self) -> int:
        m, n = self.tile
        tiles = 2 * n * (self.depth + self.columns + 1)
        sums = (1 if self.instead.together else 4) * m * self.columns
        return 4 * max(tiles, sums)

    def style(self, target: Target) -> Iterator[str]:
        yield f"multiplied by {'tensor cores' if self.instead.together else 'threads'}"

    def status(self, target: Target) -> Status:
        terms = self.form.terms
        if [term.kind for term in terms] != [TermKind.Two] or terms[0].vector >= 0:
            return Status.reject("only squared distances alone are computed from products")
        if self.math.element_accumulator is not float32 or self.depth > _MOST_DEPTH:
            return Status.reject(f"sums in float32, of at most {_MOST_DEPTH} features")
        if not target.has(Feature.clusters):
            return Status.reject(
                f"it was measured to pay on GPUs since sm_90 only, not on {target}"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(f"takes {self.shared_bytes} bytes of shared memory")
        return operands.accept_math(self.math)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="product_mma.cuh",
            parameters=self.parameters,
            types=self.types,
            constants=(
                ("kThreads", THREADS),
                ("kBlocks", self.blocks),
                *counts_of(self.form),
                *named(self, "thread_m warp_rows"),
                ("kWarpsN", 1),
                *zip(("kTileM", "kTileN"), self.tile, strict=True),
                *named(self, "depth unroll stacked columns"),
                ("kTogether", self.instead.together),
                ("kEither", True),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(self.form, self.math.element_accumulator, "Numbers"),
        )

    def rows(self, size: KernelMatmulSize) -> tuple[int, int]:
        """Rows of X1 and X2 with padding."""
        tile_m, tile_n = self.tile
        return operands.round_up(size.m, tile_m), operands.round_up(size.n, tile_n)

    def features(self, problem: PlacedProduct) -> int:
        return self.depth
