"""The work of a contraction: sums over one index, for all rows, sections and lanes."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from kronop.artifacts import Decision
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.frozen import dataclass, derived

# Most axes that the rows, and the sections, of a call may have.
ROW_AXES, SECTION_AXES = 3, 4


class Order(enum.IntEnum):
    """Which index of an operand is contiguous in memory, as in `contract.cuh`."""

    Own = 0
    Rows = 1
    Lanes = 2

    # The hash of an enum is written in Python, and slow: planning hashes orders ten thousand times.
    __hash__ = int.__hash__


# All words that `orders` may yield.
ORDERS = tuple(f"{name} by {order.name.lower()}" for name in "XY" for order in Order)


@dataclass(frozen=True, kw_only=True)
class Contraction(Decision):
    """Sizes, element types, promised alignments and orders of memory of
    y[section, row, produced, lane] = epilogue(sum of x[section, row, contracted, lane]
    w[section, contracted, produced, lane]).

    If rows are the contiguous index of X and Y, `run` says how many are contiguous; None if only
    the call knows. Without an epilogue, sums are stored unchanged.
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
    sections: int = 1
    run: int | None = None

    def __hash__(self) -> int:
        # Planning looks up one or two contractions many thousand times: few fields make the hash
        # fast.
        return hash((self.contracted, self.produced, self.lanes))

    @property
    def accumulator(self) -> DataType:
        return self.math.element_accumulator

    @derived
    def splits(self) -> bool | None:
        """Whether each operand is split in two, as in `splits_of`; None if no tensor core has the
        instruction."""
        shape, accumulator = self.math.instruction_shape, self.accumulator
        if accumulator.kind == "int":
            return None
        # Depth 32 means 8-bit floats, which are multiplied as 16-bit ones.
        if shape in ((16, 8, 16), (16, 8, 32)) and accumulator is float32:
            return False
        return operands.splits_of(self.math)

    @property
    def terms(self) -> int:
        """How many terms each operand is split into."""
        return 2 if self.splits else 1


def orders(first: Contraction, last: Contraction) -> Iterator[str]:
    """Names of the memory orders of the first contraction's X and of the last one's Y."""
    yield f"X by {first.x_order.name.lower()}"
    yield f"Y by {last.y_order.name.lower()}"
