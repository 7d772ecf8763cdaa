"""The parts of a CPU plan of a Kronecker matmul: work, digits, register tiles and passes.

A state is a buffer in scratch memory with the elements that a thread is working on.
"""

from __future__ import annotations

import math
from enum import IntEnum

from kronop.artifacts import Decision
from kronop.emit.x86.design import HostWork
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class KronWork(HostWork):
    """A Kronecker matmul on a host; `contractions`: (contracted, produced) of each factor."""

    contractions: tuple[tuple[int, int], ...]

    @property
    def input_columns(self) -> int:
        return math.prod(contracted for contracted, _ in self.contractions)

    @property
    def output_columns(self) -> int:
        return math.prod(produced for _, produced in self.contractions)


class Kind(IntEnum):
    """Which index the lanes of a pass's vectors run along; values are those of the header."""

    RowsAndLead = 0
    Trail = 1
    Rows = 2
    Whole = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Digit(Decision):
    """One digit as the kernel sees it: the product of factors [first, end)."""

    contracted: int
    produced: int
    first: int
    end: int

    @property
    def priority(self) -> float:
        return 1 / self.produced - 1 / self.contracted


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(Decision):
    """A register tile: `rows` single numbers, each multiplied by `vectors` vectors of `width`
    elements.

    Attributes:
        panel: outputs in a panel of the packed factor.
        unroll: contracted indices between two branches of the loop.
    """

    rows: int
    vectors: int
    width: int
    panel: int
    unroll: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Decision):
    """One digit contracted inside a pass, whose state is (left, contracted, right).

    Attributes:
        in_place: whether results overwrite the operands in the state: each tile must then have read
            all that it overwrites.
    """

    digit: int
    left: int
    right: int
    tile: Tile
    in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Decision):
    """One pass over adjacent digits: it reads from memory, multiplies between two states, and
    writes to memory. The columns of its input are (lead, contracted, trail).

    Attributes:
        lanes: lanes of a block; for Kind.Whole, whole fibers.
        pad: unused elements after every run of `trail` elements of its input.
        peak: most elements of the digits that a state holds.
    """

    kind: Kind
    products: tuple[Product, ...]
    lead: int
    contracted: int
    produced: int
    trail: int
    peak: int
    lanes: int
    pad: int = 0

    @property
    def is_along_outputs(self) -> bool:
        """Whether the last product has vectors along its outputs."""
        return self.kind is Kind.Whole and self.products[-1].right == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The problem that candidates are made for.

    Attributes:
        work: the work of the kernel.
        target, width, bytes: the target, elements of its vectors, bytes of the compute type.
        x_by_rows, y_by_rows: whether X and Y are contiguous along rows rather than columns.
        converts: whether X has another type than the compute type.
        typical_rows: the number of rows that costs are modelled for.
        rows, held, unroll: the user's tile: its rows, the most elements of a row in a state, the
            contracted indices to unroll; None without a tile.
    """

    work: KronWork
    target: Target
    width: int
    bytes: int
    x_by_rows: bool
    y_by_rows: bool
    converts: bool
    typical_rows: int
    rows: int | None
    held: int | None
    unroll: int | None
