"""The work of a pass of a Kronecker matmul, independent of the kernel and tile that do it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronop.artifacts import Decision
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import PerRow
from kronop.frozen import dataclass, derived

Shape = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PassShape(Decision):
    """A contiguous group of digits, and the digits around it.

    Attributes:
        group: (contracted, produced) of each digit of the group.
        left: the product of the extents, when the pass runs, of all digits before the group.
        right: that of all digits after it; in memory, neighbouring values of the group's last digit
            are so many elements apart.
    """

    group: tuple[Shape, ...]
    left: int
    right: int

    @derived
    def group_in(self) -> int:
        return math.prod(p for p, _ in self.group)

    @derived
    def group_out(self) -> int:
        return math.prod(q for _, q in self.group)

    @property
    def columns_in(self) -> int:
        return self.left * self.group_in * self.right

    @property
    def columns_out(self) -> int:
        return self.left * self.group_out * self.right


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends(Decision):
    """The input and output of a pass: element type, promised alignment, and whether the rows (M)
    are the contiguous axis."""

    source: DataType
    output: DataType
    source_alignment: int
    output_alignment: int
    source_by_rows: bool
    output_by_rows: bool


@dataclass(frozen=True, kw_only=True)
class PassWork(Decision):
    """The work of a pass: its digits, math, and the layout of its operands.

    Attributes:
        by_columns: whether neighbours in a factor's memory are different produced indices.
        factor_alignment: the promised alignment of the factors, in elements.
    """

    math: MathInstruction
    shape: PassShape
    ends: Ends
    by_columns: bool
    factor_alignment: int

    def __hash__(self) -> int:
        return self._hash

    @derived
    def _hash(self) -> int:
        # The planner looks up thousands of passes: these fields tell them apart, and hash fast.
        return hash((self.shape, self.ends.source_alignment, self.ends.source_by_rows))

    @property
    def accumulator(self) -> DataType:
        return self.math.element_accumulator

    @derived
    def bytes_per_element(self) -> float:
        """Memory traffic for an element of X."""
        shape, ends = self.shape, self.ends
        return ends.source.bytes + ends.output.bytes * shape.group_out / shape.group_in

    @property
    def per_row(self) -> PerRow:
        """The least work for a row of X."""
        shape, ends = self.shape, self.ends
        order = sorted(shape.group, key=shrinking)
        return PerRow(
            bytes=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
            operations=2 * multiply_adds(order, shape.left, shape.right),
        )


def shrinking(shape: Shape) -> float:
    """Sort key of digits and groups: those that shrink X most per operation go first.

    Contracting P to Q costs Q operations for each element, and leaves Q / P elements for each one.
    Comparing both orders of two neighbours shows that the total is least in descending order of
    1 / Q - 1 / P.
    """
    contracted, produced = shape
    return 1 / contracted - 1 / produced


def product(group: Sequence[Shape]) -> Shape:
    """The shape of the Kronecker product of some factors."""
    return math.prod(p for p, _ in group), math.prod(q for _, q in group)


def multiply_adds(digits: list[Shape], left: int, right: int) -> int:
    """Multiply-adds of contracting `digits` in this order, with left x right free elements."""
    size, total = left * right * math.prod(p for p, _ in digits), 0
    for contracted, produced in digits:
        total += size * produced
        size = size // contracted * produced
    return total
