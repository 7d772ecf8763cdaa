"""All factors of a Kronecker-sparse chain in one kernel on a CPU; see ksparse_chain.hpp."""

from __future__ import annotations

import functools
import itertools
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.emit.design import Constant, named
from kronop.emit.x86.design import HostDesign, Values
from kronop.emit.x86.planning import aligned, scalar_fields, shares
from kronop.families.ksparse.description import KSparseChainProblem
from kronop.families.ksparse.x86.ksparse_design import KSparseWork
from kronop.families.ksparse.x86.ksparse_vectors import KSparseVectors
from kronop.frozen import dataclass
from kronop.machine import CPU_LINE
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseChain(HostDesign):
    """A design that applies all factors to a chunk of rows, then to the next chunk, so that
    intermediates stay in the caches.

    Attributes:
        singles: the design of each factor.
        chunk: rows of a chunk.
    """

    package: ClassVar[str] = __package__
    header: ClassVar[str] = "ksparse_chain.hpp"
    template: ClassVar[str] = "ksparse_chain"
    parameters: ClassVar[str] = "KSparseChainParameters"

    singles: tuple[KSparseVectors, ...]
    chunk: int

    def __str__(self) -> str:
        return f"{self.chunk} rows at once: {'; '.join(map(str, self.singles))}"

    @property
    def work(self) -> KSparseWork:
        """The work of the last factor, whose results are the chain's."""
        return self.singles[-1].work

    @property
    def row_bytes(self) -> tuple[int, int]:
        return self.singles[0].row_bytes[0], self.singles[-1].row_bytes[1]

    @property
    def arguments(self) -> tuple[int, ...]:
        return (len(self.singles),)

    @property
    def signature(self) -> KernelSignature:
        return _signature(len(self.singles), scalar_fields(self.work.epilogue))

    @property
    def multiply_adds(self) -> int:
        return sum(single.multiply_adds for single in self.singles)

    @property
    def vector_work(self) -> int:
        return self.multiply_adds

    @property
    def lanes(self) -> int:
        return max(single.lanes for single in self.singles)

    @property
    def packed(self) -> tuple[int, ...]:
        """Bytes of each factor's packed weights, which all threads share."""
        return tuple(single.patches * single.scratch.input for single in self.singles)

    @property
    def pitch(self) -> int:
        """The leading dimension of the intermediates, whose rows are features."""
        size = self.work.element.bytes
        # NOTE: with an odd number of cache lines, features start in all sets of a cache.
        return (aligned(self.chunk * size) // CPU_LINE | 1) * CPU_LINE // size

    @property
    def middles(self) -> tuple[int, int]:
        """Bytes of the two buffers for intermediates, which alternate."""
        unit = self.pitch * self.work.element.bytes
        even, odd = buffer_columns(self.singles)
        return aligned(unit * even), aligned(unit * odd)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the buffers for intermediates, and of the largest scratch memory of a factor
        without its packed weights, which threads share."""
        scratch = [single.scratch for single in self.singles]
        return sum(self.middles) + max(item.size - item.input for item in scratch)

    @property
    def constants(self) -> tuple[tuple[str, Constant], ...]:
        """Offsets in the workspace, and arrays with the constants of each factor."""
        count, packed, (even, odd) = len(self.singles), self.packed, self.middles
        each = [dict(single.constants) for single in self.singles]
        for earlier in each[:-1]:
            earlier["kStreams"] = False
        return (
            ("kFactors", count),
            *named(self, "lanes chunk"),
            ("kPackedAt", tuple(itertools.accumulate(packed[:-1], initial=0))),
            ("kSlicesAt", sum(packed)),
            ("kMiddleAt", tuple(index % 2 * even for index in range(count - 1))),
            ("kMiddlePitch", self.pitch),
            ("kWorkAt", even + odd),
            ("kRowTile", tuple(single.row_tile for single in self.singles)),
            ("kAlongOutputs", tuple(int(not single.along_batch) for single in self.singles)),
            *((name, tuple(int(of[name]) for of in each)) for name in each[0]),
        )

    def threads_for(self, rows: int, threads: int) -> int:
        """Threads worth starting, each of which has rows to work on."""
        return shares(self.vector_work * rows, -(-rows // self.lanes), threads)

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """All packed weights, and one slice of scratch for each thread."""
        return sum(self.packed) + self.shared_bytes * self.threads_for(size, threads)

    def launches(self, problem: KSparseChainProblem, target: Target) -> tuple[Launch, ...]:
        factors = problem.weights
        own: Values = {
            "weights": [factor.pointer for factor in factors],
            "bias": problem.bias.pointer,
            "threads": self.threads_for(problem.rows, problem.threads),
            "weight_strides": [stride for factor in factors for stride in factor.strides],
            "bias_stride": problem.bias.column,
        }
        return (self.launch_with(problem, problem.rows, own),)


def buffer_columns(singles: tuple[KSparseVectors, ...]) -> tuple[int, int]:
    """The most features of each of the two buffers for intermediates."""
    columns = [single.work.output_columns for single in singles[:-1]]
    return max(columns[::2]), max(columns[1::2], default=0)


@functools.cache
def _signature(factors: int, scalars: Field) -> KernelSignature:
    whole = Scalar.INT64
    return KernelSignature(
        "KSparseChainParameters",
        (
            Field("x", Scalar.POINTER),
            Field("weights", Scalar.POINTER, factors),
            *(Field(name, Scalar.POINTER) for name in ("z", "bias", "y", "workspace")),
            *(Field(name, whole) for name in ("rows", "threads", "stream", "ahead")),
            *(Field(f"{name}_strides", whole, 2) for name in "xzy"),
            Field("weight_strides", whole, 4 * factors),
            Field("bias_stride", whole),
            Field("slice", whole),
            scalars,
        ),
    )
