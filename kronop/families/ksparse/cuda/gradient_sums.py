"""The sums of a gradient of weights, for all kernels: each sum is left as several shares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import Decision, Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz
from kronop.emit.design import InWorkspace
from kronop.emit.plan import PerRow, Step
from kronop.families.ksparse.cuda.lanes import MoveLanes
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, kw_only=True)
class Sums(Decision):
    """The sums of a gradient, independent of the kernel.

    Attributes:
        pattern: (a, b, c, d) of the product.
        lead: the extent of the batch of independent products.
        tied: whether all groups i and lanes l share one matrix of weights.
        by_rows: whether the rows are the contiguous axis of X and G.
        math: the multiply-add.
        output: element type of the result.
    """

    pattern: tuple[int, int, int, int]
    lead: int
    tied: bool
    by_rows: bool
    math: MathInstruction
    output: DataType

    @property
    def p(self) -> int:
        """Size of the digit of G."""
        return self.pattern[1]

    @property
    def q(self) -> int:
        """Size of the digit of X."""
        return self.pattern[2]

    @property
    def element(self) -> DataType:
        """Element type of X and G."""
        return self.math.element_a


@dataclass(frozen=True, kw_only=True)
class GradientSums(InWorkspace):
    """A kernel that sums up; a further step adds up its shares.

    Attributes:
        lets_next_begin: whether the next step may be launched before this one ends.
        work: the sums.
    """

    lets_next_begin: ClassVar[bool]
    ends = ("X along rows", "X along columns")

    work: Sums

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of its step, without the target."""

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run with this design; there is no other such check."""

    def seconds(self, size: int, target: Target) -> float:
        """Modelled time of a call for `size` rows, including adding the shares up."""
        return self._cycles(size, target) / hertz(target)

    @abstractmethod
    def _cycles(self, rows: int, target: Target) -> float:
        """The same in cycles."""

    @abstractmethod
    def shares(self, rows: int, target: Target) -> int:
        """The number of shares that a call for `rows` rows leaves."""

    @property
    def movers(self) -> tuple[MoveLanes, ...]:
        """What separates the lanes of X and of G first; empty if both are read in place."""
        return ()

    def problems(
        self, problem: KSparseGradientProblem, target: Target
    ) -> Iterator[tuple[int, Any]]:
        """What runs for a problem with some rows, as (place among the movers and this design, its
        own problem)."""
        yield 0, problem

    def steps(self, target: Target) -> tuple[Step, ...]:
        """The steps of the movers, then the step that sums up."""
        a, b, c, d = self.work.pattern
        columns = a * (b + c) * d
        step = Step(
            entry=f"{self.label}_{target.arch}",
            per_row=PerRow(bytes=columns * self.work.element.bytes, operations=2 * a * b * c * d),
            note=f"sums over rows of {columns} elements, tiles of {self}",
            design=self,
        )
        return (step,)

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        """The aliases of the trait struct."""
        work = self.work
        return operands.element_types(work.math, work.element, work.output, None)


def is_contiguous(tensor: TensorDescription, batch_last: bool) -> bool:
    """Whether the batch is the contiguous axis of a tensor."""
    return batch_last == (tensor.layout is RowMajor)
