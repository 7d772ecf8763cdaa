"""What ranks do for a Kronecker product whose operand is spread over a grid of them.

X is (M, K), K = P1 ... PN. Rows are split over `grid[0]` ranks and columns over `grid[1]`, each
rank having K / grid[1] neighbours. A row is a tensor with a digit for each factor. If grid[1]
divides P1 ... Ps, a rank has whole digits s + 1 to N, the *inner* ones, and a share of the *outer*
number that digits 1 to s are together. Ways to multiply:

- all-to-all of rows: each rank hands others some of its rows, so that it has whole rows of all
  columns, multiplies these, and hands the results back; or keeps them: rows are split then.
- all-to-all of digits, where there are fewer rows than ranks: each rank multiplies inner digits,
  hands shares of the inner columns round for the missing parts of the outer number, and multiplies
  the outer digits. A second exchange brings the columns back into the standard order, or the
  result stays split along the inner columns.
- reduce-scatter: each rank multiplies all digits, with its rows of the outer factors alone; the
  sums of all ranks are added, each rank keeping its columns.
- all-gather: each rank collects whole rows, and multiplies with its columns of the outer factors.
"""

from __future__ import annotations

import enum
import math

from kronop.frozen import dataclass


class Way(enum.Enum):
    """How ranks that share rows share the work."""

    Alone = "no exchange"
    Rows = "all-to-all of rows"
    Digits = "all-to-all of digits"
    ReduceScatter = "reduce-scatter"
    AllGather = "all-gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A product over a grid of ranks.

    Attributes:
        m: rows of X, over all ranks.
        shapes: (P, Q) of each factor, first digit first.
        grid: ranks along rows, and along columns.
        element_bytes: bytes of an element.
        ordered: the result's columns are in the standard order, and split as X's are; else what
            costs least.
        by_rows: a row of X is contiguous, so that rows can be handed to other ranks; else a column
            is.
        rows_split: a result may be split along its rows instead of its columns.
    """

    m: int
    shapes: tuple[tuple[int, int], ...]
    grid: tuple[int, int]
    element_bytes: int
    ordered: bool = True
    by_rows: bool = True
    rows_split: bool = True

    @property
    def rows(self) -> int:
        """That ranks of a row of the grid share."""
        return self.m // self.grid[0]

    @property
    def columns(self) -> int:
        """Of X."""
        return math.prod(p for p, _ in self.shapes)

    @property
    def results(self) -> int:
        """Columns of the result."""
        return math.prod(q for _, q in self.shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to compute a problem.

    Attributes:
        way: how ranks share the work.
        outer: the number s of outer digits.
        later: inner digits that are multiplied together with the outer ones, by one kernel.
        parts: parts of the rows, of which one is exchanged while another one is multiplied.
    """

    way: Way
    outer: int = 0
    later: int = 0
    parts: int = 1
