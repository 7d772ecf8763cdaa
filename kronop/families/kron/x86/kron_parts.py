"""The parts of a CPU plan of a Kronecker matmul: what it is for, digits, register tiles,
passes."""

from __future__ import annotations

import math
from enum import IntEnum

from kronop.emit.design import Decision
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
    """What the lanes of a pass are; the values are those of the header."""

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
    """A register tile: `rows` single numbers times `vectors` vectors of `width` elements.

    Attributes:
        panel: outputs that a panel of the packed factor holds.
        unroll: contraction steps between two branches.
    """

    rows: int
    vectors: int
    width: int
    panel: int
    unroll: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Decision):
    """One digit applied inside a pass, whose state is (left, contracted, right).

    Attributes:
        in_place: results take the places of the operands in the state: every tile has read all
            that it overwrites.
    """

    digit: int
    left: int
    right: int
    tile: Tile
    in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Decision):
    """One trip from memory through the states and back; columns are (lead, group, trail).

    Attributes:
        lanes: of a block; of Kind.Whole, groups.
        pad: unused elements after every run of `trail` in what it reads.
        peak: most elements of the group in a state.
    """

    kind: Kind
    products: tuple[Product, ...]
    lead: int
    group: int
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
    """What candidates are made for.

    Attributes:
        work: what is to be done.
        target, width, bytes: the machine, elements of its vectors, bytes of the compute type.
        x_by_rows, y_by_rows: X and Y are contiguous along rows rather than along columns.
        converts: X is not stored in the compute type.
        typical_rows: about so many rows there will be.
        rows, held, unroll: the user's tile: rows, most elements of a row in a state, contraction
            steps; None where there is none.
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
