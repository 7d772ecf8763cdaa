"""Convolutions as matrix products whose operands are gathered, on CPUs."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.design import Wrapping
from kronop.families.conv2d import groups
from kronop.families.conv2d.description import Conv2dProblem, product_size
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86.design import HostGemm
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConv2d(Wrapping):
    """The kernel of `wrapped`, which gathers the operands of a convolution.

    Attributes:
        family: the first word of the kernel's name.
        kind: what is computed.
    """

    family: ClassVar[str] = "conv2d"
    kind: Operator
    wrapped: HostGemm

    @property
    def multiplied(self) -> DataType | None:
        """The element type that AMX tiles multiply; None on vectors."""
        return self.wrapped.multiplied

    def __str__(self) -> str:
        return str(self.wrapped)

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    def status(self, target: Target) -> Status:
        return self.wrapped.status(target)

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Enough whether or not groups are joined."""
        sizes = {self._product(size, count) for count in (1, self._together(size))}
        return max(self.wrapped.workspace(item, target, threads) for item in sizes)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        return self.wrapped.seconds(self._product(size, self._together(size)), target)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        product = groups.joined(problem, self._together(problem.size))
        return self.wrapped.launches(product, target)

    def _together(self, size: Conv2dSize) -> int:
        return groups.together(self.kind, size, self.wrapped.tile[1])

    def _product(self, size: Conv2dSize, count: int) -> GemmSize:
        return groups.joined_size(product_size(self.kind, self.epilogue, size), count)
