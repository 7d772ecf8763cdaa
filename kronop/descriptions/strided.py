"""Operands as launches take them: addresses and strides."""

from __future__ import annotations

from kronop.frozen import dataclass

MOST_BATCH_DIMENSIONS = 4
"""Of a launch: more are joined, or copied into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedMatrix:
    """A matrix of the canonical form: strides in elements, `batch` one per batch dimension."""

    pointer: int
    row: int
    column: int
    batch: tuple[int, ...] = ()
