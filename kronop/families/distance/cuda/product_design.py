"""How tiles of kernel matrices meet a matrix on a GPU; see product_tile.cuh."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, package_folder
from kronop.families.distance import parts
from kronop.families.distance.cuda.product_places import PlacedProduct, Room, packed_batch
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.parts import counts_of, terms_of
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.frozen import dataclass
from kronop.machine import REGISTERS
from kronop.target import Target

THREADS, _LANES_M, _LANES_N, _REGISTERS = 256, 8, 4, 40
# Blocks for each that a GPU holds at a time, so that the last ones don't run alone for long; and
# tiles of a share that make up for what a block does once.
_WAVES, _TILES = 16, 4
_PACKED, _POINTS = ("x1", "x2", "v"), ("halves1", "halves2", "norms1", "norms2", "largest")


@dataclass(frozen=True, kw_only=True)
class ProductKernel(InWorkspace):
    """A block has a tile of rows, and goes through a share of the columns of the kernel matrix.

    Attributes:
        source: the type of the points.
        thread_m: rows of a tile that a thread computes.
        columns: columns of V that a block multiplies by.
        blocks: blocks that a multiprocessor holds.
    """

    threads = THREADS

    math: MathInstruction
    source: DataType
    form: Form
    thread_m: int
    columns: int

    if TYPE_CHECKING:

        @property
        def blocks(self) -> int: ...

    @property
    @abstractmethod
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the kernel matrix in a tile."""

    @property
    def signature(self) -> KernelSignature:
        return _product_signature(self.form)

    @property
    def parameters(self) -> str:
        """The C++ name of the parameter struct."""
        counts = f"{parts.room(self.form.values)}, {parts.room(self.form.vectors)}"
        return f"kronop::ProductParameters<{counts}>"

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        """The types of sums, and of what the kernel's function is computed in."""
        accumulator = self.math.element_accumulator.cxx
        numbers = f"kronop::product::Numbers<{accumulator}>::type"
        return ("Accumulator", accumulator), ("Numbers", numbers)

    @abstractmethod
    def features(self, problem: PlacedProduct) -> int:
        """With how many features the points are packed."""

    def shares(self, size: KernelMatmulSize, target: Target) -> int:
        """Into how many shares the columns are cut."""
        tile_m, tile_n = self.tile
        blocks = operands.cover(size.m, tile_m) * operands.cover(size.c, self.columns) * size.batch
        return _shares_of(blocks, operands.cover(size.n, tile_n), self.blocks * target.cores)

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        p, (tile_m, tile_n) = problem.problem, self.tile
        row_tiles, chunks = operands.cover(p.m, tile_m), operands.cover(p.c, self.columns)
        values = _product_values(problem) | {
            "depth": self.features(problem),
            "row_tiles": row_tiles,
            "column_tiles": operands.cover(p.n, tile_n),
            "chunks": chunks,
        }
        blocks = row_tiles * chunks * problem.shares * math.prod(p.batch)
        operands.check_blocks(blocks)
        return (operands.make_launch(self, blocks, values),)


@dataclass(frozen=True, kw_only=True)
class ProductTile(ProductKernel):
    """Kernels of differences.

    Attributes:
        thread_n: columns of a tile that a thread computes, in as many rows as `thread_m`.
        warps_m: warps along the rows of a tile.
        slab: features that are in shared memory at a time.
        together: whether tensor cores multiply by V.
        either: whether nothing is done where `product_expanded.py` has done it.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *(kind.name for kind in TermKind),
        "scaled by a vector",
        "multiplied by threads",
        "multiplied by tensor cores",
    )

    thread_n: int
    warps_m: int
    slab: int
    together: bool
    either: bool

    @property
    def tile(self) -> tuple[int, int]:
        warps_n = THREADS // 32 // self.warps_m
        return self.warps_m * _LANES_M * self.thread_m, warps_n * _LANES_N * self.thread_n

    @property
    def shared_bytes(self) -> int:
        (m, n), (warps_n) = self.tile, THREADS // 32 // self.warps_m
        slabs = 2 * (self.slab * (m + n + self.form.vectors) + self.columns * n)
        sums = warps_n * (1 if self.together else _LANES_N) * m * self.columns
        return max(slabs, sums) * self.math.element_accumulator.bytes

    @property
    def blocks(self) -> int:
        numbers = self.thread_m * self.thread_n * len(self.form.terms) + self.thread_m
        numbers += self.thread_n + self.thread_m * self.columns
        held = numbers * (self.math.element_accumulator.bytes // 4) + _REGISTERS
        return 2 if held <= REGISTERS // (2 * THREADS) else 1

    def style(self, target: Target) -> Iterator[str]:
        yield from {term.kind.name for term in self.form.terms}
        if self.form.vectors:
            yield "scaled by a vector"
        yield f"multiplied by {'tensor cores' if self.together else 'threads'}"

    def status(self, target: Target) -> Status:
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(f"takes {self.shared_bytes} bytes of shared memory")
        return operands.accept_math(self.math)

    def instantiation(self, target: Target) -> Instantiation:
        form, (tile_m, tile_n) = self.form, self.tile
        return Instantiation(
            header="product_tile.cuh",
            template="kronop::product_tile",
            parameters=self.parameters,
            types=(("Input", self.source.cxx), *self.types),
            constants=(
                ("kThreads", THREADS),
                ("kBlocks", self.blocks),
                *terms_of(form),
                *counts_of(form),
                ("kThreadM", self.thread_m),
                ("kThreadN", self.thread_n),
                ("kWarpsN", THREADS // 32 // self.warps_m),
                ("kTileM", tile_m),
                ("kTileN", tile_n),
                ("kSlab", self.slab),
                ("kColumns", self.columns),
                ("kTogether", self.together),
                ("kEither", self.either),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(form, self.math.element_accumulator, "Numbers"),
        )

    def rooms(self, size: KernelMatmulSize) -> tuple[Room, Room, Room]:
        """How X1, X2 and V are packed."""
        (tile_m, tile_n), n, k, c = self.tile, size.n, size.k, size.c
        depth, columns = operands.round_up(max(k, 1), self.slab), operands.round_up(c, self.columns)
        return (
            Room(rows=size.m, columns=k, tile=tile_m, depth=depth),
            Room(rows=n, columns=k, tile=tile_n, depth=depth),
            Room(rows=n, columns=c, tile=tile_n, depth=columns, zeros=True),
        )

    def features(self, problem: PlacedProduct) -> int:
        return problem.rooms[0].depth


def _product_signature(form: Form) -> KernelSignature:
    """The parameters of all products of kernel matrices."""
    whole = Scalar.INT64
    pointers = (*_PACKED, "partial", *_POINTS)
    names = ("m", "c", "k", "depth", "row_tiles", "column_tiles", "shares", "chunks")
    batches = ("batch", "x1_batch", "x2_batch", "v_batch", "points_batch")
    return KernelSignature(
        "ProductParameters",
        (
            *(Field(name, Scalar.POINTER) for name in pointers),
            *(Field(name, whole) for name in names),
            *(Field(name, whole, MOST_BATCH_DIMENSIONS) for name in batches),
            *parts.kernel_fields(form),
        ),
    )


def _product_values(placed: PlacedProduct) -> dict[str, Any]:
    """The parameters of a product, but for those that depend on its tile."""
    p = placed.problem
    packed = {
        f"{name}_batch": tuple(stride * room.numbers for stride in packed_batch(p.batch, item)[1])
        for name, item, room in zip(_PACKED, placed.sources, placed.rooms, strict=True)
    }
    return {
        **dict(zip(_PACKED, placed.packed, strict=True)),
        **packed,
        "partial": placed.partial,
        **{name: getattr(placed.points, name) for name in _POINTS},
        **{name: getattr(p, name) for name in ("m", "c", "k")},
        "shares": placed.shares,
        "batch": padded(p.batch, 1),
        "points_batch": placed.points.batch,
        **parts.kernel_values(p.values, p.vectors),
    }


def _shares_of(blocks: int, tiles: int, resident: int) -> int:
    """Into how many shares that many tiles of columns are cut, if so many blocks take each share,
    and a GPU holds `resident` blocks at a time."""
    wanted = operands.cover(resident * _WAVES, max(blocks, 1))
    needed = operands.cover(resident, max(blocks, 1))
    return max(1, min(wanted, max(tiles // _TILES, min(tiles, needed))))
