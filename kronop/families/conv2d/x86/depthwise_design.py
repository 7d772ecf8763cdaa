"""Depthwise convolutions on CPUs; see depthwise.hpp."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.strided import Strided
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Instantiation, package_folder
from kronop.emit.x86 import planning
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.x86 import gathering
from kronop.families.gemm.x86.design import HostGemm
from kronop.frozen import dataclass
from kronop.target import Target

# Cycles to find the channels of a pixel; for a product of one channel; and for a vector of results
# with the epilogue.
_FIND, _ALONE, _FINISH = 1.0, 4.0, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDepthwise(HostGemm):
    """Vectors of channels, each with a filter of its own: products of one column each.

    Attributes:
        kind: what is computed.
        rows: rows of a tile.
        vectors: vectors of channels of a tile.
    """

    unit = 1
    styles: ClassVar[tuple[str, ...]] = ("plain",)
    ends: ClassVar[tuple[str, ...]] = ()
    template: ClassVar[str] = "depthwise"
    family: ClassVar[str] = "conv2d_depthwise"

    kind: Operator
    rows: int
    vectors: int

    def __str__(self) -> str:
        blocks = f"{self.most_rows} pixels by {self.most_columns} channels"
        return f"tiles of {self.rows} pixels by {self.tile[1]} channels in blocks of {blocks}"

    @staticmethod
    def serves(size: Conv2dSize) -> bool:
        """Whether every group has one channel and one filter."""
        return size.channels == size.filters == 1

    @property
    def tile(self) -> tuple[int, int]:
        return self.rows, self.width * self.vectors

    @property
    def packed_bytes(self) -> int:
        return self.accumulator.bytes

    def status(self, target: Target) -> Status:
        if isinstance(self.epilogue, VisitorEpilogue):
            return Status.reject("visitor trees are for matrix products")
        return self.blocking.status()

    def instantiation(self, target: Target) -> Instantiation:
        made = HostGemm.instantiation(self, target)
        return dataclasses.replace(made, folders=(package_folder(__package__), *made.folders))

    @property
    def _constants(self) -> tuple[tuple[str, int], ...]:
        return (
            ("kRows", self.rows),
            ("kVectors", self.vectors),
            ("kDepth", self.depth),
            ("kMostColumns", self.most_columns),
        )

    def workspace(self, size: Any, target: Target, threads: int) -> int:
        return self.cut(*self._extents(size), 1, threads).workspace_bytes

    def seconds(self, size: Any, target: Target) -> float:
        """Modelled time of one thread for a problem of that size."""
        m, n, k = self._extents(size)
        vectors, alone = (-(-n // self.width), 0) if n >= self.width else (0, n)
        cycles = vectors * (k + k / self.rows / 2 + _FINISH) + alone * k * _ALONE + k * _FIND
        return m * cycles / planning.core_of(target).hertz

    def launches(self, problem: Any, target: Target) -> tuple[Launch, ...]:
        p = self._of_channels(problem)
        found = self.cut(p.m, p.n, p.k, 1, p.threads)
        values = self._values(p, found)
        # Columns are channels.
        values |= {"a_column": p.a.batch[0], "b_column": p.b.batch[0]}
        values |= {"a_batch": (), "b_batch": ()}
        values = gathering.values(p, found, self._plain.pack(values))
        return (Launch(parameters=self.signature.pack(values)),)

    def _extents(self, size: Conv2dSize) -> tuple[int, int, int]:
        """Rows, channels, and the extent of sums."""
        m, n, k = self.kind.extents(size)
        return max(m, n), size.groups, k

    def _of_channels(self, problem: Conv2dProblem) -> GemmProblem:
        """The problem with a column for each of the products, which have one column each."""
        p = problem.product
        if problem.kind is Operator.wgrad:
            p = p.transposed
        bias = p.bias
        return dataclasses.replace(
            p,
            n=problem.size.groups,
            batch=(),
            y=_of_groups(p.y),
            z=p.z and _of_groups(p.z),
            bias=bias and _of_groups(bias),
        )


def _of_groups(operand: Strided) -> Strided:
    """The first columns of a batch of matrices as one matrix."""
    across = operand.batch[0] if operand.batch else 0
    return Strided(pointer=operand.pointer, strides=(operand.row, across))
