"""The sums of a gradient of weights, whichever kernel makes them: blocks leave shares of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.cuda import operands
from kronop.emit.design import Decision, Design
from kronop.emit.plan import Step
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, kw_only=True)
class Sums(Decision):
    """What is to be summed up.

    Attributes:
        pattern: (a, b, c, d) of the product.
        lead: products in front.
        tied: whether all i and l share one matrix.
        by_rows: whether the rows of X are contiguous.
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
        """Of X and G."""
        return self.math.element_a


@dataclass(frozen=True, kw_only=True)
class GradientSums(Design):
    """A kernel that sums up; further steps add up its shares.

    Attributes:
        lets_next_begin: whether the step after it may begin while it runs.
        work: what is summed up.
    """

    lets_next_begin: ClassVar[bool]
    ends = ("X along rows", "X along columns")

    work: Sums

    @property
    def epilogue(self) -> None:
        return None

    @property
    @abstractmethod
    def label(self) -> str:
        """What its step is called, without the machine."""

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run so: the one rule."""

    @abstractmethod
    def cycles(self, rows: int, target: Target) -> float:
        """What a call for so many rows is expected to take, with its shares added up."""

    @abstractmethod
    def workspace_bytes(self, rows: int, target: Target) -> int:
        """What a call for so many rows leaves, and what it needs besides."""

    @abstractmethod
    def launches(
        self, problem: KSparseGradientProblem, target: Target
    ) -> tuple[tuple[Launch, ...], int]:
        """The launches of `steps`, the first ones of a plan, and the shares that they leave."""

    def steps(self, target: Target) -> tuple[Step, ...]:
        """The step that sums up, after those that prepare operands."""
        a, b, c, d = self.work.pattern
        columns = a * (b + c) * d
        step = Step(
            entry=f"{self.label}_{target.arch}",
            bytes_per_row=columns * self.work.element.bytes,
            operations_per_row=2 * a * b * c * d,
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
    """Whether the batch is contiguous."""
    return batch_last == (tensor.layout is RowMajor)
