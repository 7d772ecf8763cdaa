"""How tiles of kernel matrices meet a matrix on a GPU; see product_tile.cuh."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, package_folder
from kronop.families.distance import parts
from kronop.families.distance.cuda.product_packing import Room
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.parts import BATCH_DIMS, counts_of, terms_of
from kronop.families.distance.product_description import KernelMatmulProblem
from kronop.frozen import dataclass
from kronop.target import Target

THREADS, _LANES_M, _LANES_N, _REGISTERS = 256, 8, 4, 40
# Blocks for each that a GPU holds at a time, so that the last ones don't run alone for long; and
# tiles of a share that make up for what a block does once.
_WAVES, _TILES = 16, 4


@dataclass(frozen=True, kw_only=True)
class ProductKernel(InWorkspace):
    """A block has a tile of rows, and goes through a share of the columns of the kernel matrix.

    Attributes:
        source: the type of the points.
        thread_m: rows of a tile that a thread computes.
        columns: columns of V that a block multiplies by.
        blocks: blocks that a multiprocessor holds.
    """

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
    def threads(self) -> int:
        return THREADS

    @property
    def signature(self) -> KernelSignature:
        return product_signature(self.form)

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

    def shares(self, m: int, n: int, c: int, problems: int, target: Target) -> int:
        """Into how many shares the columns are cut."""
        tile_m, tile_n = self.tile
        blocks = operands.cover(m, tile_m) * operands.cover(c, self.columns) * problems
        return shares_of(blocks, operands.cover(n, tile_n), self.blocks * target.cores)

    def _launch(self, index: int, problem: KernelMatmulProblem, held: Held, depth: int) -> Launch:
        """The launch for operands that are packed with so many features."""
        values, blocks = product_values(problem, held, *self.tile, self.columns, depth)
        operands.check_blocks(blocks)
        return operands.make_launch(self, blocks, values)


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
        return 2 if held <= operands.REGISTERS // (2 * THREADS) else 1

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
            folders=(package_folder("kronop.families.distance.cuda"),),
            functors=parts.functors_of(form, self.math.element_accumulator, "Numbers"),
        )

    def room(self, m: int, n: int, k: int, c: int) -> tuple[Room, Room, Room]:
        """How X1, X2 and V are packed."""
        tile_m, tile_n = self.tile
        depth = operands.round_up(max(k, 1), self.slab)
        return (
            Room(rows=m, columns=k, tile=tile_m, depth=depth),
            Room(rows=n, columns=k, tile=tile_n, depth=depth),
            Room(
                rows=n, columns=c, tile=tile_n, depth=operands.round_up(c, self.columns), zeros=True
            ),
        )

    def launch(self, index: int, problem: KernelMatmulProblem, held: Held) -> Launch:
        depth = operands.round_up(max(problem.k, 1), self.slab)
        return self._launch(index, problem, held, depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Addresses in the workspace.

    Attributes:
        packed: addresses of X1, X2 and V, and their strides over the batch.
        partial: the sums of all shares.
        shares: how many there are.
        halves, norms: of X1 and X2; 0 where there are none.
        largest: the largest norms; 0 where there are none.
        points_batch: strides of halves and norms over the batch, in problems.
    """

    packed: tuple[tuple[int, tuple[int, ...]], ...]
    partial: int
    shares: int
    halves: tuple[int, int] = (0, 0)
    norms: tuple[int, int] = (0, 0)
    largest: int = 0
    points_batch: tuple[int, ...] = (0,) * BATCH_DIMS


def product_signature(form: Form) -> KernelSignature:
    """The parameters of all products of kernel matrices."""
    whole = Scalar.INT64
    pointers = ("x1", "x2", "v", "partial", "halves1", "halves2", "norms1", "norms2", "largest")
    names = ("m", "c", "k", "depth", "row_tiles", "column_tiles", "shares", "chunks")
    batches = ("batch", "x1_batch", "x2_batch", "v_batch", "points_batch")
    return KernelSignature(
        "ProductParameters",
        (
            *(Field(name, Scalar.POINTER) for name in pointers),
            *(Field(name, whole) for name in names),
            *(Field(name, whole, BATCH_DIMS) for name in batches),
            *parts.kernel_fields(form),
        ),
    )


def product_values(
    problem: KernelMatmulProblem, held: Held, tile_m: int, tile_n: int, columns: int, depth: int
) -> tuple[dict[str, Any], int]:
    """(the parameters of a product, its blocks)."""
    p, problems = problem, math.prod(problem.batch)
    row_tiles, chunks = operands.cover(p.m, tile_m), operands.cover(p.c, columns)
    (x1, x1_batch), (x2, x2_batch), (v, v_batch) = held.packed
    values = {
        "x1": x1,
        "x2": x2,
        "v": v,
        "partial": held.partial,
        "halves1": held.halves[0],
        "halves2": held.halves[1],
        "norms1": held.norms[0],
        "norms2": held.norms[1],
        "largest": held.largest,
        **{name: getattr(p, name) for name in ("m", "c", "k")},
        "depth": depth,
        "row_tiles": row_tiles,
        "column_tiles": operands.cover(p.n, tile_n),
        "shares": held.shares,
        "chunks": chunks,
        "batch": parts.padded(p.batch, 1),
        "x1_batch": x1_batch,
        "x2_batch": x2_batch,
        "v_batch": v_batch,
        "points_batch": held.points_batch,
        **parts.kernel_values(p.values, p.vectors),
    }
    return values, row_tiles * chunks * held.shares * problems


def shares_of(blocks: int, tiles: int, resident: int) -> int:
    """Into how many shares that many tiles of columns are cut, if so many blocks take each share,
    and a GPU holds `resident` blocks at a time."""
    wanted = operands.cover(resident * _WAVES, max(blocks, 1))
    needed = operands.cover(resident, max(blocks, 1))
    return max(1, min(wanted, max(tiles // _TILES, min(tiles, needed))))
