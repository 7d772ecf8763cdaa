"""Convolutions as matrix products of blocks and warps, whose operands are gathered."""

from __future__ import annotations

import math

from kronop.artifacts import Launch, Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Wrapping
from kronop.families.conv2d import groups
from kronop.families.conv2d.description import Conv2dProblem, product_size
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.gather import Access
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# The time of a product whose operands are gathered, to that of one whose operands are strided.
# NOTE: measured on an H200, 15 layers in float32 (three TF32 products): 1.31 to 1.74 times the
# model's time.
_OF_GATHERING = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dBlocks(Wrapping):
    """The kernel of `wrapped`, which gathers the operands of a convolution. If it bounds elements
    of filters, several groups fill the columns of a tile.

    Attributes:
        kind: what is computed.
    """

    kind: Operator
    wrapped: GemmBlocks

    def __str__(self) -> str:
        bounded = self.kind is not Operator.wgrad and self.wrapped.access_b is Access.Bounded
        return f"{'groups side by side, ' * bounded}{self.wrapped}"

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    def status(self, target: Target) -> Status:
        return self.wrapped.status(target)

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Enough whether or not groups are joined."""
        sizes = {self._product(size, count) for count in (1, self.together(size))}
        return max(self.wrapped.workspace(item, target, threads) for item in sizes)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time; infinite for sizes that it does not serve."""
        if not self.serves(size):
            return math.inf
        of = self.wrapped
        moved = self.kind.moved(size, of.source, of.output)
        memory = moved / memory_rate(target) + MEASURED.launch
        product = self._product(size, self.together(size))
        return max(of.seconds(product, target) * _OF_GATHERING, memory)

    def serves(self, size: Conv2dSize) -> bool:
        """Whether all contiguous elements of the promised number are of one group, and A's are
        spaced only if the kernel knows."""
        of = self.wrapped
        unit = (size.stride_h, size.stride_w) == (1, 1)
        spaced = self.kind is Operator.dgrad and not unit
        extents = contiguous(self.kind, size)
        whole = not (extents[0] % of.vector_a or extents[1] % of.vector_b)
        return whole and (of.access_a is Access.Spaced or not spaced)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        assert self.serves(problem.size)
        product = groups.joined(problem, self.together(problem.size))
        return self.wrapped.launches(product, target)

    def together(self, size: Conv2dSize) -> int:
        """How many groups are one product."""
        of = self.wrapped
        bounded = of.access_b is Access.Bounded and not isinstance(of.epilogue, VisitorEpilogue)
        return groups.together(self.kind, size, of.tile_n) if bounded else 1

    def _product(self, size: Conv2dSize, count: int) -> GemmSize:
        return groups.joined_size(product_size(self.kind, self.epilogue, size), count)


def contiguous(kind: Operator, size: Conv2dSize) -> tuple[int, int]:
    """Neighbours in memory of A and of B that belong to one group."""
    return (size.channels if kind is Operator.fprop else size.filters), size.channels
