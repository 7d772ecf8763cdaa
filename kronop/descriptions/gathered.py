"""Operands whose elements are found through digits of their indices, such as patches of images."""

from __future__ import annotations

import dataclasses
import math

from kronop.frozen import dataclass

DIGITS = 3
"""Digits of an index."""
Triple = tuple[int, int, int]
Pair = tuple[int, int]
_NONE: Triple = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """An index of a matrix as a number of three digits, the last one fastest.

    Attributes:
        extents: how many values each digit has; their product is that of the index.
        steps: what one more of each digit adds to the offset of an element, in elements.
        u, v: what it adds to the two coordinates of an element.
    """

    extents: Triple
    steps: Triple
    u: Triple = _NONE
    v: Triple = _NONE

    @property
    def extent(self) -> int:
        return math.prod(self.extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A matrix in memory that is not strided: the patches of images that a convolution multiplies.

    The element in a row and a column is at the sum of the steps of all digits of both, plus
    u / every[0] times strides[0], plus v / every[1] times strides[1]. Its coordinates u and v are
    `first` plus what the digits add. It is 0 unless both coordinates are multiples of `every`, and
    the quotients are at least 0 and less than `extents`.

    Attributes:
        pointer: the address of offset 0.
        rows, columns: its indices.
        first: u and v in row 0 and column 0.
        extents: of both coordinates; a matrix without bounds has coordinates 0 and extents 1.
        strides: of both coordinates, in elements.
        every: the least distance of coordinates at which there are elements.
        batch: the strides of the batch dimensions.
        batch_u, batch_v: what one more along each of these adds to the coordinates; empty where no
            coordinate changes along any.
    """

    pointer: int
    rows: Digits
    columns: Digits
    first: Pair = (0, 0)
    extents: Pair = (1, 1)
    strides: Pair = (0, 0)
    every: Pair = (1, 1)
    batch: tuple[int, ...] = ()
    batch_u: tuple[int, ...] = ()
    batch_v: tuple[int, ...] = ()

    @property
    def transposed(self) -> Gathered:
        """The matrix with rows for columns."""
        return dataclasses.replace(self, rows=self.columns, columns=self.rows)
