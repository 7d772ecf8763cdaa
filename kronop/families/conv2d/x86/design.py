"""Convolutions as matrix products whose operands are gathered, on CPUs."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.design import Wrapping
from kronop.families.conv2d.description import Conv2dProblem
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
        return self.wrapped.workspace(self._product(size), target, threads)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        return self.wrapped.seconds(self._product(size), target)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        return self.wrapped.launches(problem.product, target)

    def _product(self, size: Conv2dSize) -> GemmSize:
        return size.product(self.kind.extents(size))
