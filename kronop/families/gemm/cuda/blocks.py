"""What designs of blocks and warps share: tiles, split-K slices, and the cost of a product."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Self

from kronop.artifacts import KernelSignature, Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.gathered import Gathered
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.summed import parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.cuda.visit_sums import shared_bytes_of_tree, shares_of_join
from kronop.emit.design import Constant, Design, Instantiation, named, package_folder
from kronop.families.gemm.cuda import gather, parameters
from kronop.families.gemm.cuda.gather import Access
from kronop.families.gemm.cuda.parameters import Slicing
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED, SHARED_BYTES_PER_CYCLE
from kronop.target import Target

# Bytes that a multiprocessor gets from the level-2 cache in a cycle. NOTE: docs/gotchas.md, where
# asynchronous copies go.
_CACHE_BYTES_PER_CYCLE = 32
# Cycles of a block besides its slabs: until its first slab arrives and its last result is stored;
# of a slab, in which its warps wait for each other.
_BLOCK, _SLAB = 1500, 60
# Instructions of a thread for the place of a gathered unit: on a line whose place is known, or not.
_OF_PLACE = (12, 32)
# Warps that keep the four schedulers of a multiprocessor busy.
_BUSY_WARPS = 8
# A visitor tree without reductions, and with some.
TREE_STYLES = ("a visitor tree", "a visitor tree that reduces")
ACCESS_STYLES = tuple(item.name for item in Access)
# Registers for the address of a visitor tree's operand or result, and for its values.
_REGISTERS_OF_VISITED = 4
# Cycles for each of these and a result. NOTE: measured on an H100, 4096 x 4096 x 256 of bfloat16:
# 2.1 a result for C, a bias and D; 4.8 with a scale, a second matrix and maxima of rows besides.
_CYCLES_OF_VISITED = 0.7
# Fewest slabs of a slice, and most slices that are considered.
_LEAST_SLABS, _MOST_SLICES = 4, 128


class GemmDesign(Design):
    """A kernel that multiplies, and what its step's name and floor depend on.

    Attributes:
        kind: the kernel, in the step's name.
        has_slices: whether K may be split in slices.
    """

    kind: ClassVar[str]
    has_slices: ClassVar[bool] = True
    math: MathInstruction

    @property
    @abstractmethod
    def sizes(self) -> str:
        """The tile, in the step's name."""

    @property
    def multiplied(self) -> DataType | None:
        """The element type that tensor cores multiply; None on ordinary cores."""
        return None

    @property
    def product(self) -> Self:
        """The design that multiplies, as pipelines have it."""
        return self


@dataclass(frozen=True, kw_only=True)
class GemmBlocks(GemmDesign):
    """A block has a tile of the result, or a split-K slice of it.

    Attributes:
        source, output: types of the operands and of the result.
        tile_m, tile_n: rows and columns of a block's tile.
        tile_k: contracted indices of a slab.
        across_a, across_b: A is contiguous along M, B along N.
        vector_a, vector_b: elements that are promised to be contiguous and aligned.
        band: tiles along N that are processed before the next row of tiles.
        access_a, access_b: how elements of A and B are found; both are strided, or neither.
    """

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    tile_m: int
    tile_n: int
    tile_k: int
    across_a: bool
    across_b: bool
    vector_a: int
    vector_b: int
    band: int
    access_a: Access = Access.Strided
    access_b: Access = Access.Strided

    @property
    def sizes(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.tile_k}"

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run it on a target."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """An estimate of the registers of a thread."""

    @property
    @abstractmethod
    def pieces(self) -> int:
        """Pieces of a tile by which blocks add up the slices."""

    @abstractmethod
    def cycles_of_step(self, target: Target) -> float:
        """Cycles of a multiprocessor for one contracted index of a tile."""

    @property
    def cycles_of_copies(self) -> float:
        """Cycles in which a multiprocessor issues the copies of one contracted index of a slab."""
        return 0.0

    @property
    def slowing(self) -> float:
        """The factor by which long code of a slab slows products and copies."""
        return 1.0

    @property
    @abstractmethod
    def read_of_step(self) -> int:
        """Bytes of shared memory that warps read for one contracted index of a tile."""

    @property
    def is_gathered(self) -> bool:
        """Whether operands are `Gathered`."""
        return self.access_a is not Access.Strided

    @property
    def places_bytes(self) -> int:
        """Shared memory for the places of gathered rows of A, and columns of B."""
        sides = zip(
            (self.tile_m, self.tile_n),
            (self.across_a, self.across_b),
            (self.access_a, self.access_b),
            strict=True,
        )
        return sum(0 if across else count * of.place_bytes for count, across, of in sides)

    def instructions_of_places(self, units: tuple[int, int]) -> float:
        """Instructions of threads that find the places of gathered elements, for a contracted index
        of a slab, in units of so many elements of A and of B."""
        if not self.is_gathered:
            return 0.0
        sides = zip((self.tile_m, self.tile_n), (self.across_a, self.across_b), units, strict=True)
        return sum(rows / unit * _OF_PLACE[across] for rows, across, unit in sides)

    @property
    def signature(self) -> KernelSignature:
        product = parameters.signature(self.epilogue)
        return gather.signature(product) if self.is_gathered else product

    @property
    def constants(self) -> tuple[tuple[str, Constant], ...]:
        """The constants that both kernels have."""
        shared = named(
            self, "threads tile_m tile_n tile_k across_a across_b vector_a vector_b band"
        )
        if not self.is_gathered:
            return shared
        return (*shared, ("kAccessA", int(self.access_a)), ("kAccessB", int(self.access_b)))

    def instantiated(
        self, constants: tuple[tuple[str, Constant], ...], *types: tuple[str, str]
    ) -> Instantiation:
        """The kernel with these constants and types besides."""
        struct = parameters.parameters_of(self.epilogue)
        if self.is_gathered:
            struct = f"kronop::GemmGatherParameters<{struct}>"
        return Instantiation(
            header=f"gemm_{'gather_' * self.is_gathered}{self.kind}.cuh",
            parameters=struct,
            types=(*self.types, *types),
            constants=(*self.constants, *constants),
            folders=(package_folder(__package__),),
        )

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Input", self.source.cxx),
            ("Output", self.output.cxx),
            ("Accumulator", self.math.element_accumulator.cxx),
        )

    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""
        return operands.resident_blocks(self.threads, self.registers, self.shared_bytes, target)

    def status_of_copies(self, units: tuple[int, int]) -> Status:
        """Whether threads share a slab evenly, in units of so many elements of A and of B."""
        sides = zip((self.tile_m, self.tile_n), (self.across_a, self.across_b), units, strict=True)
        for extent, across, unit in sides:
            line = (extent if across else self.tile_k) // unit
            count = extent * self.tile_k // unit
            even = self.threads % line == 0 or line % self.threads == 0
            if not even or (count % self.threads and count > self.threads):
                return Status.reject(
                    f"{self.threads} threads do not share {count} copies of {unit} elements, {line}"
                    " in a line, evenly"
                )
        return Status.accept()

    def layout_words(self) -> Iterator[str]:
        """Those of the styles that depend on the operands' layouts."""
        yield "A along M" if self.across_a else "A along K"
        yield "B along N" if self.across_b else "B along K"
        yield from {self.access_a.name, self.access_b.name}

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        return self._seconds(size, target, self.slicing(size, target).slices)

    def slicing(self, size: GemmSize, target: Target, partial: int = 0) -> Slicing:
        """The split-K slices, with their sums at `partial`: as many as are asked for, or as take
        the least time if the caller leaves it to the plan."""
        slabs = max(1, operands.cover(size.k, self.tile_k))
        asked = size.slices if size.slices > 1 else _best_slices(self, size, target)
        # Partial results of reductions are those of complete sums.
        asked = 1 if self._reduces else asked
        each = operands.cover(slabs, min(asked, slabs))
        slices = operands.cover(slabs, each)
        kept = partial if slices > 1 or self._reduces else 0
        return Slicing(slices=slices, depth=each * self.tile_k, partial=kept, adds_up=0)

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """The sums of slices, in complete tiles."""
        if self._reduces:
            return self._folds(size)[1]
        slices = self.slicing(size, target).slices
        each = self.tile_m * self.tile_n * self.math.element_accumulator.bytes
        return slices * self._tiles(size) * each if slices > 1 else 0

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, and a second one that adds up slices. This serves both split-K modes of
        PyCUTLASS: a semaphore to order blocks would need a launch that clears it."""
        p, size = problem, problem.size
        cut, tiles = self.slicing(size, target, p.workspace), self._tiles(size)
        first = self._launch(problem, cut, tiles * cut.slices)
        if cut.slices > 1:
            return first, self._launch(problem, replace(cut, adds_up=1), tiles * self.pieces)
        if not self._reduces:
            return (first,)
        shares = shares_of_join(p.m, p.n, (self.tile_m, self.tile_n))
        blocks = size.batch * operands.cover(max(p.m, p.n), self.threads // shares)
        return first, self._launch(problem, replace(cut, adds_up=shares), blocks)

    def _launch(self, problem: GemmProblem, cut: Slicing, blocks: int) -> Launch:
        operands.check_blocks(blocks)
        p = replace(problem, a=_strided(problem.a), b=_strided(problem.b))
        values = parameters.values_of(self.epilogue, p, cut)
        if isinstance(self.epilogue, VisitorEpilogue):
            values["folds"] = self._folds(problem.size)[0]
        if self.is_gathered:
            a, b = problem.a, problem.b
            assert isinstance(a, Gathered)
            assert isinstance(b, Gathered)
            values = {
                "product": parameters.signature(self.epilogue).pack(values),
                "gather_a": gather.packed(a, p.batch, a.rows, a.columns, self.access_a),
                "gather_b": gather.packed(b, p.batch, b.columns, b.rows, self.access_b),
            }
        return operands.make_launch(self, blocks, values)

    @property
    def _reduces(self) -> bool:
        """Whether the epilogue is a visitor tree with a reduction, whose partial results a second
        launch combines."""
        return isinstance(self.epilogue, VisitorEpilogue) and self.epilogue.tree.reduces

    def tree_words(self) -> Iterator[str]:
        """Those of the styles that depend on visitor trees."""
        if isinstance(self.epilogue, VisitorEpilogue):
            yield TREE_STYLES[self._reduces]

    @property
    def registers_of_tree(self) -> int:
        """An estimate of the registers of a visitor tree's operands and results."""
        if not isinstance(self.epilogue, VisitorEpilogue):
            return 0
        return _REGISTERS_OF_VISITED * (1 + len(self.epilogue.tree.in_memory))

    def shared_of_tree(self, holders: tuple[int, int]) -> int:
        """Shared memory in which threads combine a visitor tree's reductions.

        Args:
            holders: threads that have sums of a row, and of a column.
        """
        if not isinstance(self.epilogue, VisitorEpilogue):
            return 0
        tile = (self.tile_m, self.tile_n)
        return shared_bytes_of_tree(self.epilogue, self.threads, tile, holders)

    def _folds(self, size: GemmSize) -> tuple[tuple[int, ...], int]:
        """Where partial results of a tree's reductions begin in the workspace, and their end."""
        assert isinstance(self.epilogue, VisitorEpilogue)
        tile = (self.tile_m, self.tile_n)
        return parts_of(self.epilogue, size.m, size.n, size.batch, tile)

    def _tiles(self, size: GemmSize) -> int:
        rows, columns = operands.cover(size.m, self.tile_m), operands.cover(size.n, self.tile_n)
        return rows * columns * size.batch

    def _seconds(self, size: GemmSize, target: Target, slices: int) -> float:
        """Modelled time with so many slices."""
        clock, cores = hertz(target), target.cores
        moved_in_cycle = memory_bytes_per_cycle(target)
        blocks = self._tiles(size) * slices
        slabs = operands.cover(operands.cover(size.k, self.tile_k), slices)
        # Blocks of the busiest multiprocessor, and how many of them run at once.
        most = max(1, operands.cover(blocks, cores))
        together = min(most, self.blocks(target))
        busy = min(1.0, together * self.threads / 32 / _BUSY_WARPS)
        steps = slabs * self.tile_k
        multiply = steps * (self.cycles_of_step(target) / busy + self.cycles_of_copies)
        multiply *= self.slowing
        read = steps * self.read_of_step / SHARED_BYTES_PER_CYCLE
        brought = steps * (self.tile_m + self.tile_n) * self.source.bytes / _CACHE_BYTES_PER_CYCLE
        stored = self.tile_m * self.tile_n * self.output.bytes / moved_in_cycle
        if isinstance(self.epilogue, VisitorEpilogue):
            visited = 1 + len(self.epilogue.tree.in_memory)
            stored += self.tile_m * self.tile_n * visited * _CYCLES_OF_VISITED
        slab = slabs * _SLAB / together
        cycles = most * (max(multiply, read, brought) + slab + stored + _BLOCK / together)
        added = 0.0
        if slices > 1:
            sums = self._tiles(size) * self.tile_m * self.tile_n * slices
            moved = 2 * sums * self.math.element_accumulator.bytes
            added = moved / (moved_in_cycle * cores * clock) + MEASURED.launch
        # Of a gathered matrix, many elements may be one in memory.
        elements = 0 if self.is_gathered else (size.m + size.n) * size.k * self.source.bytes
        elements += size.m * size.n * self.output.bytes
        memory = size.batch * elements / (moved_in_cycle * cores * clock)
        return max(cycles / clock, memory) + added + MEASURED.launch


def _strided(operand: Strided | Gathered) -> Strided:
    """The operand, or a gathered one's address and batches."""
    if isinstance(operand, Strided):
        return operand
    return Strided(pointer=operand.pointer, strides=(0, 0), batch=gather.batch_of(operand))


@functools.lru_cache(maxsize=1024)
def _best_slices(design: GemmBlocks, size: GemmSize, target: Target) -> int:
    most = min(operands.cover(size.k, design.tile_k) // _LEAST_SLABS, _MOST_SLICES)
    tiles = max(1, design._tiles(size))
    if most < 2 or tiles >= target.cores:
        return 1
    counts = [1, *range(2, min(most, operands.cover(2 * target.cores, tiles)) + 1)]
    best: int = min(counts, key=lambda count: design._seconds(size, target, count))
    return best
