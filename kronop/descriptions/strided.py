"""Operands as launches see them: addresses and strides."""

from __future__ import annotations

import dataclasses

from kronop.frozen import dataclass

MOST_BATCH_DIMENSIONS = 4
"""The most batch dimensions of a launch; arguments join further ones, or copy the operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedMatrix:
    """A matrix, or a batch of them; strides in elements, `batch` has one per batch dimension."""

    pointer: int
    row: int
    column: int
    batch: tuple[int, ...] = ()

    @property
    def transposed(self) -> StridedMatrix:
        """The matrix with rows for columns."""
        return dataclasses.replace(self, row=self.column, column=self.row)


NOTHING = StridedMatrix(pointer=0, row=0, column=0)
"""An operand that a problem has not."""


def padded(values: tuple[int, ...], more: int = 0) -> tuple[int, ...]:
    """Values of leading dimensions, with `more` in front for each that the batch has not."""
    return (more,) * (MOST_BATCH_DIMENSIONS - len(values)) + values
