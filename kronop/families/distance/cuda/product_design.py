"""How tiles of kernel matrices are multiplied by a matrix on a GPU; see product_tile.cuh."""

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
from kronop.emit.design import Instantiation, InWorkspace, members, named, package_folder
from kronop.families.distance import parts
from kronop.families.distance.cuda.product_places import PackedLayout, PlacedProduct, packed_batch
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.parts import counts_of, terms_of
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.frozen import dataclass
from kronop.machine import REGISTERS
from kronop.target import Target

THREADS, _LANES_M, _LANES_N, _REGISTERS = 256, 8, 4, 40
# Waves of blocks, so that the last one does not leave the GPU idle for long; and tiles of a share
# that amortise the fixed cost of a block.
_WAVES, _TILES = 16, 4
_PACKED, _POINTS = ("x1", "x2", "v"), ("halves1", "halves2", "norms1", "norms2", "largest")


@dataclass(frozen=True, kw_only=True)
class ProductKernel(InWorkspace):
    """A block has a tile of rows, and iterates over a share of the kernel matrix's columns.

    Attributes:
        source: the type of the points.
        thread_m: rows of a tile that a thread computes.
        columns: columns of V that a block multiplies by.
        blocks: resident blocks per multiprocessor.
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
        """The types of sums, and in which the kernel's function is computed."""
        accumulator = self.math.element_accumulator.cxx
        numbers = f"kronop::product::Numbers<{accumulator}>::type"
        return ("Accumulator", accumulator), ("Numbers", numbers)

    @abstractmethod
    def features(self, problem: PlacedProduct) -> int:
        """The features of packed points, with padding."""

    def shares(self, size: KernelMatmulSize, target: Target) -> int:
        """How many shares the columns are divided into."""
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
    """Kernel matrices by direct differences.

    Attributes:
        thread_n: columns of a thread's tile, in as many rows as `thread_m`.
        warps_m: warps along the rows of a tile.
        slab: features of a stage in shared memory.
        together: whether tensor cores multiply by V.
        either: whether it does nothing where `product_expanded.py`'s kernel is accurate enough.
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
        form = self.form
        return Instantiation(
            header="product_tile.cuh",
            parameters=self.parameters,
            types=(("Input", self.source.cxx), *self.types),
            constants=(
                ("kThreads", THREADS),
                ("kBlocks", self.blocks),
                *terms_of(form),
                *counts_of(form),
                *named(self, "thread_m thread_n"),
                ("kWarpsN", THREADS // 32 // self.warps_m),
                *zip(("kTileM", "kTileN"), self.tile, strict=True),
                *named(self, "slab columns together either"),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(form, self.math.element_accumulator, "Numbers"),
        )

    def layouts(self, size: KernelMatmulSize) -> tuple[PackedLayout, PackedLayout, PackedLayout]:
        """The packed layouts of X1, X2 and V."""
        (tile_m, tile_n), n, k, c = self.tile, size.n, size.k, size.c
        depth, columns = operands.round_up(max(k, 1), self.slab), operands.round_up(c, self.columns)
        return (
            PackedLayout(rows=size.m, columns=k, tile=tile_m, depth=depth),
            PackedLayout(rows=n, columns=k, tile=tile_n, depth=depth),
            PackedLayout(rows=n, columns=c, tile=tile_n, depth=columns, zeros=True),
        )

    def features(self, problem: PlacedProduct) -> int:
        return problem.layouts[0].depth


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
    """The parameters of a product, except those that depend on its tile."""
    p = placed.problem
    packed = {
        f"{name}_batch": tuple(stride * layout.numbers for stride in packed_batch(p.batch, item)[1])
        for name, item, layout in zip(_PACKED, placed.sources, placed.layouts, strict=True)
    }
    return {
        **dict(zip(_PACKED, placed.packed, strict=True)),
        **packed,
        "partial": placed.partial,
        **{name: getattr(placed.points, name) for name in _POINTS},
        **members(p, "m c k"),
        "shares": placed.shares,
        "batch": padded(p.batch, 1),
        "points_batch": placed.points.batch,
        **parts.kernel_values(p.values, p.vectors),
    }


def _shares_of(blocks: int, tiles: int, resident: int) -> int:
    """How many shares that many tiles of columns are divided into, if so many blocks compute each
    share, and a GPU holds `resident` blocks at a time."""
    wanted = operands.cover(resident * _WAVES, max(blocks, 1))
    needed = operands.cover(resident, max(blocks, 1))
    return max(1, min(wanted, max(tiles // _TILES, min(tiles, needed))))
