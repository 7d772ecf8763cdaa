"""The base class of all designs of one Kronecker-sparse product on a CPU; see ksparse.hpp.

A work item is what one thread computes at a time: some rows of a patch of the result's columns.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.emit.design import named
from kronop.emit.x86.design import HostDesign, HostWork, Values
from kronop.emit.x86.planning import aligned, core_of, keeps_sums, scalar_fields, shares
from kronop.families.ksparse.description import KSparseProblem, inputs_of, outputs_of
from kronop.frozen import dataclass
from kronop.machine import CPU_LINE
from kronop.target import Target

_MOST_SLICES = 32
# Cycles to copy a vector to or from scratch memory, and to transpose it as well.
COPY, TRANSPOSE = 1.5, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseWork(HostWork):
    """One product on a host.

    Attributes:
        pattern: (a, b, c, d).
        x_by_rows, y_by_rows: whether X and Y are contiguous along the batch, not the features.
    """

    pattern: tuple[int, int, int, int]
    x_by_rows: bool
    y_by_rows: bool

    @property
    def input_columns(self) -> int:
        return inputs_of(self.pattern)

    @property
    def output_columns(self) -> int:
        return outputs_of(self.pattern)

    @property
    def slices_along_batch(self) -> int:
        """Indices l of an item whose lanes are rows: one if X and Y are contiguous along the batch;
        otherwise all, or, if these are too many, as many as fill whole cache lines."""
        if self.x_by_rows and self.y_by_rows:
            return 1
        line, d = max(1, CPU_LINE // self.bytes), self.pattern[3]
        fitting = [s for s in range(line, min(d, _MOST_SLICES) + 1, line) if d % s == 0]
        return max(fitting, default=d) if d > _MOST_SLICES else d


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Byte offsets of the regions of a thread's scratch memory, and its size."""

    bias: int
    input: int
    results: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseDesign(HostDesign):
    """A way to divide a product into work items.

    Attributes:
        along_batch: whether the lanes of vectors are rows of the batch; otherwise outputs.
        tile: single numbers of a register tile: outputs, or rows if the lanes are outputs.
        vectors: vectors of a register tile, each of which is multiplied by every single number.
        depth: indices k that are contracted at once.
        blocks: indices i of a work item.
        slices: indices l of a work item.
        outputs: indices j of a work item.
        row_tile: rows of a work item.
    """

    package: ClassVar[str] = __package__
    parameters: ClassVar[str] = "KSparseParameters"
    along_batch: ClassVar[bool]

    work: KSparseWork
    blocks: int
    slices: int
    outputs: int
    row_tile: int

    if TYPE_CHECKING:

        @property
        def tile(self) -> int: ...

        @property
        def vectors(self) -> int: ...

        @property
        def depth(self) -> int: ...

    @property
    @abstractmethod
    def pitch(self) -> int:
        """Leading dimension of X in scratch memory: of k if lanes are rows, else of rows."""

    @property
    @abstractmethod
    def parts(self) -> tuple[int, int, int]:
        """Bytes of a thread's scratch memory for (a block's packed weights, X, results)."""

    @property
    @abstractmethod
    def cycles_of_row(self) -> float:
        """Modelled cycles for one row of the batch and one i."""

    def seconds(self, size: int, target: Target) -> float:
        return size * self.work.pattern[0] * self.cycles_of_row / core_of(target).hertz

    @property
    def direct(self) -> bool:
        """Whether sums may be stored to Y without the epilogue."""
        return keeps_sums(self.work.epilogue)

    @property
    def streams(self) -> bool:
        """Whether register tiles may store results with streaming stores."""
        return False

    @property
    def lanes(self) -> int:
        return self.work.width * self.vectors

    @property
    def scratch(self) -> Scratch:
        packed, held, made = self.parts
        bias = aligned(self.blocks * packed)
        values = self.blocks * self.outputs * self.slices
        begin = bias + aligned(values * self.work.epilogue.element_compute.bytes)
        results = begin + aligned(held)
        return Scratch(bias=bias, input=begin, results=results, size=results + aligned(made))

    @property
    def shared_bytes(self) -> int:
        return self.scratch.size

    @property
    def signature(self) -> KernelSignature:
        return _signature(scalar_fields(self.work.epilogue))

    @property
    def multiply_adds(self) -> int:
        return math.prod(self.work.pattern)

    @property
    def is_along_y(self) -> bool:
        """Whether the lanes of a vector are contiguous in Y."""
        return self.work.y_by_rows == self.along_batch

    @property
    def write_cycles(self) -> float:
        """Cycles to store a vector of results from scratch memory to Y."""
        if self.is_along_y:
            return 0.0 if self.direct else COPY
        return TRANSPOSE if self.along_batch else 2.0 * self.work.width

    @property
    def patches(self) -> int:
        """How many patches the result's columns are divided into; each has weights of its own."""
        a, b, _, d = self.work.pattern
        return -(-a // self.blocks) * (d // self.slices) * -(-b // self.outputs)

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        scratch = self.scratch
        return (
            ("kWidth", self.work.width),
            *named(self, "vectors direct streams"),
            *zip(("kA", "kB", "kC", "kD"), self.work.pattern, strict=True),
            *named(self, "blocks slices outputs depth tile pitch"),
            ("kBiasAt", scratch.bias),
            ("kInputAt", scratch.input),
            ("kResultsAt", scratch.results),
        )

    def threads_for(self, rows: int, threads: int) -> int:
        return shares(self.vector_work * rows, rows * self.patches, threads)

    def launches(self, problem: KSparseProblem, target: Target) -> tuple[Launch, ...]:
        row_tile, threads = self._split(problem)
        own: Values = {
            "weights": problem.weights.pointer,
            "bias": problem.bias.pointer,
            "row_tile": row_tile,
            "threads": threads,
            "weight_strides": problem.weights.strides,
            "bias_stride": problem.bias.column,
        }
        return (self.launch_with(problem, problem.rows, own),)

    def _split(self, problem: KSparseProblem) -> tuple[int, int]:
        """(rows of an item, threads), such that all threads get about equally many items."""
        count, lanes = self.patches, self.lanes
        threads = self.threads_for(problem.rows, problem.threads)
        tiles = -(-problem.rows // self.row_tile)
        if count % threads and tiles % threads:
            tiles += threads - tiles % threads
        row_tile = -(-problem.rows // tiles)
        row_tile = min(self.row_tile, -(-row_tile // lanes) * lanes)
        return row_tile, min(threads, count * -(-problem.rows // row_tile))


@functools.cache
def _signature(scalars: Field) -> KernelSignature:
    whole = Scalar.INT64
    return KernelSignature(
        "KSparseParameters",
        (
            *(
                Field(name, Scalar.POINTER)
                for name in ("x", "weights", "z", "bias", "y", "workspace")
            ),
            *(Field(name, whole) for name in ("rows", "row_tile", "threads", "stream", "ahead")),
            *(Field(f"{name}_strides", whole, 2) for name in "xzy"),
            Field("weight_strides", whole, 4),
            Field("bias_stride", whole),
            Field("slice", whole),
            scalars,
        ),
    )
