"""Operands as launches see them: addresses and strides."""

from __future__ import annotations

import dataclasses

from kronop.frozen import dataclass

MOST_BATCH_DIMENSIONS = 4
"""The most batch dimensions of a launch; arguments join further ones, or copy the operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strided:
    """An operand in memory: its address, and strides in elements.

    Attributes:
        strides: of its own axes; 0 where it repeats.
        batch: of the batch dimensions, one for each; 0 likewise.
    """

    pointer: int
    strides: tuple[int, ...]
    batch: tuple[int, ...] = ()

    @property
    def row(self) -> int:
        """The stride between rows, of a matrix."""
        return self.strides[-2]

    @property
    def column(self) -> int:
        """The stride between columns."""
        return self.strides[-1]

    @property
    def transposed(self) -> Strided:
        """The matrix with rows for columns."""
        return dataclasses.replace(self, strides=self.strides[::-1])


NOTHING = Strided(pointer=0, strides=(0, 0))
"""An operand that a problem has not."""


def padded(values: tuple[int, ...], more: int = 0) -> tuple[int, ...]:
    """Values of leading dimensions, with `more` in front for each that the batch has not."""
    return (more,) * (MOST_BATCH_DIMENSIONS - len(values)) + values
