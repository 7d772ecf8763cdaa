"""How products of kernel matrices take squared distances from tensor cores; see product_mma.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.families.distance import product_parts as parts
from kronop.families.distance.cuda.product_design import (
    Held,
    ProductTile,
    product_signature,
    product_values,
    shares_of,
)
from kronop.families.distance.cuda.product_packing import packed_batch
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.parts import BATCH_DIMS, counts_of
from kronop.families.distance.product_description import KernelMatmulProblem
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _WARPS, _LANES_M = 256, 8, 8
# Most features: those of a thread's rows are in registers.
_MOST_DEPTH = 128
# Parts of which the largest norms are found apart, as in product_block.cuh, and rows that a block
# packs.
PARTS, ROWS = 64, 64
_FOLDER = "kronop.families.distance.cuda"
_BATCHES = ("batch", "x1_batch", "x2_batch")
_STRIDES = ("x1_row", "x1_column", "x2_row", "x2_column")


def points_batch(problem: KernelMatmulProblem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents of the batch of halves, its strides in problems): halves of both operands depend on
    both, because the centre of X2 is subtracted from X1 too."""
    return packed_batch(problem.batch, problem.x1, problem.x2)


def _points(problem: KernelMatmulProblem) -> dict[str, object]:
    """The members of parameter structs that say where points are, once for all problems of the
    batch that share them."""
    p = problem
    extents, _ = points_batch(p)
    return {
        **{name: getattr(p, name) for name in ("m", "n", "k")},
        "x1": p.x1.pointer,
        "x2": p.x2.pointer,
        "batch": extents,
        "x1_batch": parts.padded(p.x1.batch),
        "x2_batch": parts.padded(p.x2.batch),
        "x1_row": p.x1.row,
        "x1_column": p.x1.column,
        "x2_row": p.x2.row,
        "x2_column": p.x2.column,
    }


@dataclass(frozen=True, kw_only=True)
class ProductMeasure(Design):
    """The centre of the points, and the largest squares of lengths of points away from it.

    Attributes:
        source: the type of the points.
        depth: at least as many as there are features.
    """

    math: MathInstruction
    source: DataType
    depth: int

    @property
    def epilogue(self) -> Epilogue | None:
        return None

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.depth + _THREADS)

    @property
    def signature(self) -> KernelSignature:
        whole = Scalar.INT64
        return KernelSignature(
            "ProductMeasureParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("x1", "x2", "largest", "centre")),
                *(Field(name, whole) for name in ("m", "n", "k")),
                *(Field(name, whole, BATCH_DIMS) for name in _BATCHES),
                *(Field(name, whole) for name in _STRIDES),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="product_measure.cuh",
            template="kronop::product_measure",
            parameters="kronop::ProductMeasureParameters",
            types=(("Input", self.source.cxx),),
            constants=(("kThreads", _THREADS), ("kBlocks", 1), ("kDepth", self.depth)),
            folders=(package_folder(_FOLDER),),
        )

    def launch(self, index: int, p: KernelMatmulProblem, largest: int, centre: int) -> Launch:
        values = {**_points(p), "largest": largest, "centre": centre}
        blocks = 2 * PARTS * math.prod(points_batch(p)[0])
        operands.check_blocks(blocks)
        return operands.make_launch(index, self, blocks, values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class ProductHalves(Design):
    """Points as tensor cores read them, in two halves.

    Attributes:
        source: the type of the points.
        depth: features, with padding.
        stacked: features are there three times, so that one product is the sum of three.
        warp_rows: points of X1 that a warp has.
    """

    math: MathInstruction
    source: DataType
    depth: int
    stacked: bool
    warp_rows: int

    @property
    def epilogue(self) -> Epilogue | None:
        return None

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def shared_bytes(self) -> int:
        return 4 * ROWS * (self.depth + 1)

    @property
    def signature(self) -> KernelSignature:
        whole = Scalar.INT64
        pointers = ("x1", "x2", "largest", "centre", "halves1", "halves2", "norms1", "norms2")
        return KernelSignature(
            "ProductHalvesParameters",
            (
                *(Field(name, Scalar.POINTER) for name in pointers),
                *(Field(name, whole) for name in ("m", "n", "k", "tiles1", "tiles2")),
                *(Field(name, whole, BATCH_DIMS) for name in _BATCHES),
                *(Field(name, whole) for name in _STRIDES),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="product_halves.cuh",
            template="kronop::product_halves",
            parameters="kronop::ProductHalvesParameters",
            types=(("Input", self.source.cxx),),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kDepth", self.depth),
                ("kStacked", self.stacked),
                ("kRows", ROWS),
                ("kWarpRows", self.warp_rows),
            ),
            folders=(package_folder(_FOLDER),),
        )

    def launch(
        self, index: int, p: KernelMatmulProblem, held: Held, centre: int, rows: tuple[int, int]
    ) -> Launch:
        """The launch; `rows` are those of both operands with padding."""
        tiles = tuple(count // ROWS for count in rows)
        values = {
            **_points(p),
            "largest": held.largest,
            "centre": centre,
            "halves1": held.halves[0],
            "halves2": held.halves[1],
            "norms1": held.norms[0],
            "norms2": held.norms[1],
            "tiles1": tiles[0],
            "tiles2": tiles[1],
        }
        blocks = sum(tiles) * math.prod(points_batch(p)[0])
        operands.check_blocks(blocks)
        return operands.make_launch(index, self, blocks, values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class ProductMma(Design):
    """Squared distances from products of points on tensor cores, if they are accurate enough.

    Attributes:
        source: the type of the points.
        depth: features, with padding.
        stacked: there are so few features that products of their halves are one product.
        thread_m: rows of a thread.
        groups: groups of 16 columns whose computations may overlap.
        blocks: blocks that a multiprocessor holds.
        columns: columns of V that a block multiplies by.
        instead: what computes differences where products are not accurate enough.
    """

    styles: ClassVar[tuple[str, ...]] = ("multiplied by threads", "multiplied by tensor cores")

    math: MathInstruction
    source: DataType
    form: Form
    depth: int
    stacked: bool
    thread_m: int
    groups: int
    blocks: int
    columns: int
    instead: ProductTile

    @property
    def epilogue(self) -> Epilogue | None:
        return None

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the kernel matrix in a tile."""
        return _WARPS * _LANES_M * self.thread_m, self.instead.tile[1]

    @property
    def measure(self) -> ProductMeasure:
        return ProductMeasure(math=self.math, source=self.source, depth=self.depth)

    @property
    def halves(self) -> ProductHalves:
        return ProductHalves(
            math=self.math,
            source=self.source,
            depth=self.depth,
            stacked=self.stacked,
            warp_rows=_LANES_M * self.thread_m,
        )

    @property
    def shared_bytes(self) -> int:
        m, n = self.tile
        tiles = 2 * n * (self.depth + self.columns + 1)
        sums = (1 if self.instead.together else 4) * m * self.columns
        return 4 * max(tiles, sums)

    @property
    def signature(self) -> KernelSignature:
        return product_signature(self.form)

    def style(self, target: Target) -> Iterator[str]:
        yield f"multiplied by {'tensor cores' if self.instead.together else 'threads'}"

    def status(self, target: Target) -> Status:
        terms = self.form.terms
        if [term.kind for term in terms] != [TermKind.Two] or terms[0].vector >= 0:
            return Status.reject("only squared distances alone are computed from products")
        if self.math.element_accumulator is not float32 or self.depth > _MOST_DEPTH:
            return Status.reject(f"sums in float32, of at most {_MOST_DEPTH} features")
        if target.generation < 9:
            return Status.reject(f"not for {target}")
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(f"takes {self.shared_bytes} bytes of shared memory")
        return operands.accept_math(self.math)

    def instantiation(self, target: Target) -> Instantiation:
        form, accumulator = self.form, self.math.element_accumulator
        tile_m, tile_n = self.tile
        return Instantiation(
            header="product_mma.cuh",
            template="kronop::product_mma",
            parameters="kronop::ProductParameters"
            f"<{parts.room(form.values)}, {parts.room(form.vectors)}>",
            types=(
                ("Accumulator", accumulator.cxx),
                ("Numbers", f"kronop::product::Numbers<{accumulator.cxx}>::type"),
            ),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", self.blocks),
                *counts_of(form),
                ("kThreadM", self.thread_m),
                ("kWarpRows", _LANES_M * self.thread_m),
                ("kWarpsN", 1),
                ("kTileM", tile_m),
                ("kTileN", tile_n),
                ("kDepth", self.depth),
                ("kGroups", self.groups),
                ("kStacked", self.stacked),
                ("kColumns", self.columns),
                ("kTogether", self.instead.together),
                ("kEither", True),
            ),
            folders=(package_folder(_FOLDER),),
            functors=(parts.functor_of(form, "Numbers"),),
        )

    def shares(self, m: int, n: int, c: int, problems: int, target: Target) -> int:
        """Into how many shares the columns are cut."""
        tile_m, tile_n = self.tile
        blocks = operands.cover(m, tile_m) * operands.cover(c, self.columns) * problems
        return shares_of(blocks, operands.cover(n, tile_n), self.blocks * target.cores)

    def rows(self, m: int, n: int) -> tuple[int, int]:
        """Rows of X1 and X2 with padding."""
        tile_m, tile_n = self.tile
        return operands.round_up(m, tile_m), operands.round_up(n, tile_n)

    def launch(self, index: int, problem: KernelMatmulProblem, held: Held) -> Launch:
        values, blocks = product_values(problem, held, *self.tile, self.columns, self.depth)
        operands.check_blocks(blocks)
        return operands.make_launch(index, self, blocks, values)
