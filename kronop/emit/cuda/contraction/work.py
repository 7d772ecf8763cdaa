"""What a contraction computes: sums over one index, for all rows, groups and lanes."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Decision
from kronop.frozen import dataclass, derived

# Axes that the rows and the groups of a call may have.
ROW_AXES, GROUP_AXES = 3, 4


class Order(enum.IntEnum):
    """Which index of an operand is contiguous in memory, as in `contract.cuh`."""

    Own = 0
    Rows = 1
    Lanes = 2

    # That of enums is written in Python: planning looks up orders some ten thousand times.
    __hash__ = int.__hash__


# What `orders` may say.
ORDERS = tuple(f"{name} by {order.name.lower()}" for name in "XY" for order in Order)


@dataclass(frozen=True, kw_only=True)
class Contraction(Decision):
    """Sizes, element types, promised alignments and orders of memory of
    y[group, row, produced, lane] = epilogue(sum of x[group, row, contracted, lane]
    w[group, contracted, produced, lane]).

    Where X and Y are contiguous along rows they are so for `run` of them, and start anew; None
    where the call decides it. Without an epilogue sums are stored as they are.
    """

    contracted: int
    produced: int
    lanes: int
    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue | None
    x_alignment: int
    w_alignment: int
    y_alignment: int
    x_order: Order
    w_order: Order
    y_order: Order
    groups: int = 1
    run: int | None = None

    def __hash__(self) -> int:
        # A plan looks up what it knows of one or two contractions many thousand times.
        return hash((self.contracted, self.produced, self.lanes))

    @property
    def accumulator(self) -> DataType:
        return self.math.element_accumulator

    @derived
    def splits(self) -> bool | None:
        """Whether operands are taken as two each, as in `splits_of`; None where no tensor core
        does."""
        shape, accumulator = self.math.instruction_shape, self.accumulator
        if accumulator.kind == "int":
            return None
        # 8-bit floats, the only ones of depth 32, are multiplied as 16-bit ones.
        if shape in ((16, 8, 16), (16, 8, 32)) and accumulator is float32:
            return False
        return operands.splits_of(self.math)

    @property
    def terms(self) -> int:
        """Values that stand for an operand."""
        return 2 if self.splits else 1


def orders(first: Contraction, last: Contraction) -> Iterator[str]:
    """How the first one's X and the last one's Y lie in memory, in words."""
    yield f"X by {first.x_order.name.lower()}"
    yield f"Y by {last.y_order.name.lower()}"
