"""Problems in short notation: `1024:8^5` has M = 1024 and five factors of 8 x 8; in `16:4x3^2,7`
two factors are 4 x 3 and one is 7 x 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kronop.core.command import rows_of
from kronop.errors import ArgumentError
from kronop.families.kron.command import formerly, shape_of

DEFAULTS = {
    "cuda": [
        "1024:8^5",
        "1024:8^6",
        "1024:16^4",
        "1024:16^5",
        "1024:32^3",
        "1024:32^4",
        "1024:64^2",
        "1024:64^3",
        "1024:128^2",
        "1024:128^3",
        "16:8^8",
        "16:64^4",
    ],
    "cpu": [
        "1024:8^4",
        "256:8^5",
        "1024:16^3",
        "64:16^4",
        "256:32^3",
        "1024:64^2",
        "16:64^3",
        "256:128^2",
        "16:8^6",
    ],
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A product of X (rows, product of the factors' rows) with a Kronecker product on its right.

    Attributes:
        text: as the user wrote it.
        rows: M.
        factors: (P, Q) of each factor.
    """

    text: str
    rows: int
    factors: tuple[tuple[int, int], ...]

    @property
    def input_columns(self) -> int:
        return math.prod(p for p, _ in self.factors)

    @property
    def output_columns(self) -> int:
        return math.prod(q for _, q in self.factors)

    def with_rows(self, rows: int) -> Shape:
        return replace(self, rows=rows, text=f"{rows}:{rows_of(self.text)[1]}")

    def bytes(self, element_bytes: int) -> int:
        """Bytes if every input is read once and every output written once."""
        columns = self.input_columns + self.output_columns
        return element_bytes * (self.rows * columns + sum(p * q for p, q in self.factors))

    @property
    def operations(self) -> int:
        """Multiplications and additions, factor by factor in the order that needs the fewest.

        That order is by descending 1/Q - 1/P: exchanging two neighbors that are not in this order
        reduces the operations.
        """
        size, total = self.rows * self.input_columns, 0
        for p, q in sorted(self.factors, key=lambda factor: 1 / factor[0] - 1 / factor[1]):
            total += 2 * size * q
            size = size // p * q
        return total


def parse(text: str, rows: int | None = None) -> Shape:
    """The shape that `text` names: `1024:8^5,4x3`, in the notation of all commands.

    Args:
        rows: M instead of the text's own; None if the text has to have one.

    Raises:
        ArgumentError: `text` does not have this form, or has no M.
    """
    own, factors = shape_of(text)
    if rows is None and own is None:
        now = formerly(text)
        raise ArgumentError(
            "shape",
            expected="M in front of the factors, as 1024:8^5 or 16:4x3^2,7",
            got=repr(text),
            hint=f"write 1024:{text}" if now is None else f"write {now}, if M comes first",
        )
    shape = Shape(text, own or 1, tuple(factors))
    return shape if rows is None else shape.with_rows(rows)


def parse_all(texts: Sequence[str], rows: Sequence[int]) -> list[Shape]:
    """All shapes; if `rows` are given, each shape once for each of them instead of its own M."""
    if any(count < 1 for count in rows):
        raise ArgumentError(
            "rows", expected="at least 1", got=min(rows), hint="give positive counts"
        )
    counts: Sequence[int | None] = rows or [None]
    return [parse(text, count) for text in texts for count in counts]
