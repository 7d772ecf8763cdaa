"""Depthwise convolutions on GPUs, of groups with one channel each; see depthwise.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_rate
from kronop.emit.design import Design, Instantiation, named, package_folder
from kronop.families.conv2d.cuda.depthwise_thread import LANES, THREADS, DepthwiseThread
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda import gather, parameters
from kronop.families.gemm.cuda.parameters import Slicing
from kronop.families.gemm.description import GemmProblem
from kronop.frozen import dataclass
from kronop.machine import ISSUED, MEASURED, WARP
from kronop.target import Target

# Registers that a thread may have.
_MOST_REGISTERS = 232
# Neighbouring results of a block that adds up slices; bytes of all slices at most.
_RUN, _MOST_BYTES = 8, 2**28
# The share of cycles in which a multiprocessor issues instructions, of each warp and at most; that
# of what takes less time than something else, and yet delays it.
_BUSY_OF_WARP, _BUSY, _DELAYS = 1 / 16, 0.75, 0.2
# Tiles, and coordinates of pixels, with which kernels reckon in 32 bits.
_MOST = 2**31 - 1
_ARRAYS = ("a_strides", "b_strides", "extents", "results", "before", "first")
_NUMBERS = ("tiles", "each", "chunks", "lanes", "parts", "flipped")
_KINDS = {kind: index for index, kind in enumerate(Operator)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How blocks share the tiles of a size.

    Attributes:
        down, across: tiles of an image.
        tiles: those of all images.
        chunks, lanes: chunks of channels, and threads that share one.
        walkers: blocks of a chunk, each of which has `each` neighbouring tiles.
    """

    down: int
    across: int
    tiles: int
    chunks: int
    lanes: int
    walkers: int
    each: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dDepthwise(DepthwiseThread, Design):
    """A kernel, every thread of which has some channels of neighbouring results."""

    styles: ClassVar[tuple[str, ...]] = (
        *("fprop", "dgrad", "wgrad", "one filter", "few filters", "many filters"),
        *("vectors", "single channels", "all rows", "row by row", "all taps", "taps in parts"),
    )
    threads: ClassVar[int] = THREADS

    def __str__(self) -> str:
        return (
            f"threads of {self.rows} x {self.columns} results by {self.vector} channels, filters"
            f" of {self.taps[0]} x {self.taps[1]}"
        )

    @classmethod
    def of_tile(cls, size: Conv2dSize, tile: tuple[int, int], **fields: Any) -> Self:
        """The design for the geometry of a size, whose tile is whole strides of a dgrad."""
        steps = (size.stride_h, size.stride_w)
        whole = steps if fields["kind"] is Operator.dgrad else (1, 1)
        rows, columns = (operands.round_up(*pair) for pair in zip(tile, whole, strict=True))
        return cls(
            taps=(size.r, size.s),
            strides=steps,
            dilations=(size.dilation_h, size.dilation_w),
            multiplier=size.filters,
            rows=rows,
            columns=columns,
            **fields,
        )

    @property
    def shape(self) -> str:
        """The filter and the tile, in the step's name."""
        return f"{self.taps[0]}x{self.taps[1]}_{self.rows}x{self.columns}x{self.vector}"

    def style(self, target: Target) -> Iterator[str]:
        yield self.kind.name
        few = "few filters" if self.multiplier <= self.vector else "many filters"
        yield "one filter" if self.multiplier == 1 else few
        yield "vectors" if self.read_width > 1 else "single channels"
        if self.kind is Operator.wgrad:
            yield "all taps" if self._parts == 1 else "taps in parts"
        else:
            yield "all rows" if self._unrolled else "row by row"

    @property
    def signature(self) -> KernelSignature:
        product = parameters.signature(self.epilogue)
        counts = {"a_strides": 4, "b_strides": 4}
        return KernelSignature(
            "DepthwiseParameters",
            (
                Block("product", product.size, product.alignment, product.pointers),
                *(Field(name, Scalar.INT64, counts.get(name, 2)) for name in _ARRAYS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                Block("divisors", 24),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        struct = parameters.parameters_of(self.epilogue)
        return Instantiation(
            header="depthwise.cuh",
            parameters=f"kronop::DepthwiseParameters<{struct}>",
            types=(
                ("Input", self.source.cxx),
                ("Output", self.output.cxx),
                ("Accumulator", self.sums.cxx),
            ),
            constants=(
                ("kBlocks", self._blocks(target)),
                ("kKind", _KINDS[self.kind]),
                ("kLanes", LANES),
                ("kTapRows", self._tap_rows),
                ("kUnrolled", self._unrolled),
                *named(
                    self,
                    "threads taps strides dilations multiplier vector read_width result_width rows"
                    " columns",
                ),
            ),
            folders=(package_folder(__package__), package_folder(parameters.__package__)),
        )

    def status(self, target: Target) -> Status:
        found = operands.accept_element(self.source, target)
        if not found:
            return found
        if self.registers > _MOST_REGISTERS or not self._tap_rows:
            return Status.reject(
                f"threads of about {self.registers} of {_MOST_REGISTERS} registers"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"filters of {self.shared_bytes} bytes of shared memory, {target} has"
                f" {target.shared_bytes}"
            )
        return Status.accept()

    def serves(self, size: Conv2dSize) -> bool:
        """Whether a size has the geometry, and channels for whole vectors."""
        own = (self.taps, self.strides, self.dilations, self.multiplier)
        given = (
            (size.r, size.s),
            (size.stride_h, size.stride_w),
            (size.dilation_h, size.dilation_w),
            size.filters,
        )
        whole = self._channels(size) % self.vector == 0
        return size.channels == 1 and own == given and whole and self._reach(size) < _MOST

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """The slices of wgrad."""
        if self.kind is not Operator.wgrad:
            return 0
        return self.walk(size, target).walkers * self._bytes_of_slice(size)

    def walk(self, size: Conv2dSize, target: Target) -> Walk:
        """As many blocks as the GPU holds at once walk over the tiles, or more if sums are to be
        cut into more slices."""
        down, across, tiles = self._tiles(size)
        vectors = max(1, self._channels(size) // self.vector)
        chunks = operands.cover(vectors, LANES)
        lanes = operands.cover(vectors, chunks)
        slots, beside = THREADS // lanes, chunks * self._parts
        most = max(1, self._blocks(target) * target.cores // beside, size.slices)
        if self.kind is Operator.wgrad:
            most = max(1, min(most, _MOST_BYTES // max(1, self._bytes_of_slice(size))))
        each = max(1, operands.cover(tiles, most * slots)) * slots
        return Walk(
            down=down,
            across=across,
            tiles=tiles,
            chunks=chunks,
            lanes=lanes,
            walkers=max(1, operands.cover(tiles, each)),
            each=each,
        )

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time; infinite for sizes that it does not serve."""
        if not self.serves(size):
            return math.inf
        found = self.walk(size, target)
        moved = self.kind.moved(size, self.source, self.output)
        moved += 2 * self.workspace(size, target, 1)
        threads = found.tiles * found.chunks * found.lanes * self._parts
        idle = THREADS / (found.lanes * (THREADS // found.lanes))
        issued = threads * idle * self._instructions(target)
        rounds = found.each * found.lanes / THREADS
        waits = rounds * MEASURED.load * (1 if self._unrolled else self._pixels(0))
        busy = min(_BUSY, self._blocks(target) * THREADS / WARP * _BUSY_OF_WARP)
        cycles = (issued / (ISSUED * target.cores * busy), waits)
        took = (moved / memory_rate(target), *(item / hertz(target) for item in cycles))
        launches = 2 if self.kind is Operator.wgrad else 1
        return max(took) * (1 - _DELAYS) + sum(took) * _DELAYS + launches * MEASURED.launch

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        """One launch; of wgrad a second one, which adds up slices."""
        size = problem.size
        assert self.serves(size)
        found = self.walk(size, target)
        cut = Slicing(slices=found.walkers, depth=0, partial=problem.workspace or 0, adds_up=0)
        blocks = found.chunks * found.walkers * self._parts
        first = self._launch(problem, found, cut, blocks)
        if self.kind is not Operator.wgrad:
            return (first,)
        adding = operands.cover(size.k * math.prod(self.taps), _RUN)
        return first, self._launch(problem, found, replace(cut, adds_up=1), adding)

    def _launch(self, problem: Conv2dProblem, found: Walk, cut: Slicing, blocks: int) -> Launch:
        values = self._geometry(problem.size) | {
            "product": parameters.signature(self.epilogue).pack(
                parameters.values_of(self.epilogue, _product(problem), cut)
            ),
            "a_strides": problem.a.strides,
            "b_strides": problem.b.strides,
            "tiles": found.tiles,
            "each": found.each,
            "chunks": found.chunks,
            "lanes": found.lanes,
            "parts": self._parts,
            "flipped": int(problem.size.flipped),
            "divisors": gather.packed_divisors(found.down, found.across),
        }
        return operands.make_launch(self, blocks, values)

    def _geometry(self, size: Conv2dSize) -> dict[str, Any]:
        """Where tiles begin, and the images that they read and write."""
        pads, images, results = (size.pad_h, size.pad_w), (size.h, size.w), (size.p, size.q)
        before = self._before(size)
        if self.kind is not Operator.dgrad:
            first = tuple(-pad for pad in pads)
            return {"extents": images, "results": results, "before": before, "first": first}
        # The result's pixel `-before` is the first one that some tap finds at a whole stride.
        reach = (
            operands.cover((taps - 1) * apart, step)
            for taps, apart, step in zip(self.taps, self.dilations, self.strides, strict=True)
        )
        first = tuple(
            (pad - early) // step - far
            for pad, early, step, far in zip(pads, before, self.strides, reach, strict=True)
        )
        return {"extents": results, "results": images, "before": before, "first": first}

    def _before(self, size: Conv2dSize) -> tuple[int, int]:
        """How many pixels before an image its first tile begins: at a multiple of the stride, from
        the border of padding on, of dgrad."""
        if self.kind is not Operator.dgrad:
            return 0, 0
        return size.pad_h % self.strides[0], size.pad_w % self.strides[1]

    def _tiles(self, size: Conv2dSize) -> tuple[int, int, int]:
        """Tiles of an image along both axes, and those of all images; divisors are at least 1."""
        extents = (size.h, size.w) if self.kind is Operator.dgrad else (size.p, size.q)
        before, tile = self._before(size), (self.rows, self.columns)
        down, across = (
            operands.cover(extent + early, of) if extent else 0
            for extent, early, of in zip(extents, before, tile, strict=True)
        )
        return max(1, down), max(1, across), size.n * down * across

    def _reach(self, size: Conv2dSize) -> int:
        """The most that tiles, and coordinates of their pixels, may be."""
        down, across, tiles = self._tiles(size)
        geometry = self._geometry(size)
        ends = zip((down, across), geometry["first"], geometry["extents"], strict=True)
        pixels = (
            abs(first) + extent + (count + 1) * self._pixels(axis)
            for axis, (count, first, extent) in enumerate(ends)
        )
        most: int = max(tiles, *pixels)
        return most

    def _blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once."""
        return operands.resident_blocks(THREADS, self.registers, self.shared_bytes, target)

    def _channels(self, size: Conv2dSize) -> int:
        """Channels of the result, or filters of wgrad."""
        return size.c if self.kind is Operator.dgrad else size.k

    def _bytes_of_slice(self, size: Conv2dSize) -> int:
        return size.k * math.prod(self.taps) * self.sums.bytes


def _product(problem: Conv2dProblem) -> GemmProblem:
    """The result as one matrix: for each pixel a row with all channels, or, of wgrad, for each
    filter a row with all taps."""
    size, kind = problem.size, problem.kind
    m, n, k = kind.extents(size)
    by_rows = kind is Operator.wgrad

    def whole(item: Strided) -> Strided:
        """Its groups side by side; each has as many rows, or columns."""
        each, axis = (m, 0) if by_rows else (n, 1)
        steps = list(item.strides)
        steps[axis] = item.batch[0] // each if item.batch else steps[axis]
        return Strided(pointer=item.pointer, strides=tuple(steps))

    z, bias = problem.z, problem.bias
    return GemmProblem(
        m=m * size.groups if by_rows else m,
        n=n if by_rows else n * size.groups,
        k=k,
        batch=(),
        a=replace(NOTHING, pointer=problem.a.pointer),
        b=replace(NOTHING, pointer=problem.b.pointer),
        y=whole(problem.result),
        z=z and whole(z),
        bias=bias and whole(bias),
        scalars=problem.scalars,
        threads=problem.threads,
    )
