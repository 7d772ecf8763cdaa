"""Problems in short notation: `1024x8^5` has M = 1024 and five factors of 8 x 8; in `16x4:3^2x7`
two factors are 4 x 3 and one is 7 x 7."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kronop.errors import ArgumentError, mismatch

DEFAULTS = {
    "cuda": [
        "1024x8^5",
        "1024x8^6",
        "1024x16^4",
        "1024x16^5",
        "1024x32^3",
        "1024x32^4",
        "1024x64^2",
        "1024x64^3",
        "1024x128^2",
        "1024x128^3",
        "16x8^8",
        "16x64^4",
    ],
    "cpu": [
        "1024x8^4",
        "256x8^5",
        "1024x16^3",
        "64x16^4",
        "256x32^3",
        "1024x64^2",
        "16x64^3",
        "256x128^2",
        "16x8^6",
    ],
}
_FACTOR = re.compile(r"([1-9]\d*)(?::([1-9]\d*))?(?:\^([1-9]\d*))?")


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
        return replace(self, rows=rows, text=f"{rows}x{self.text.split('x', 1)[1]}")

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


def parse(text: str) -> Shape:
    """The shape that `text` names: M, then factors, joined by x; a factor is P, P:Q, P^N or P:Q^N.

    Raises:
        ArgumentError: `text` does not have this form.
    """
    rows, *items = text.split("x")
    found = [_FACTOR.fullmatch(item) for item in items]
    if not re.fullmatch(r"[1-9]\d*", rows) or not items or None in found:
        raise ArgumentError(
            mismatch(
                "shape",
                expected="M and factors, as 1024x8^5, 1024x7x31 or 16x4:3^2",
                got=repr(text),
                hint="P:Q is a factor of P x Q, ^N repeats it",
            )
        )
    factors: list[tuple[int, int]] = []
    for match in filter(None, found):
        p, q, count = match.groups()
        factors += [(int(p), int(q or p))] * int(count or 1)
    return Shape(text, int(rows), tuple(factors))


def parse_all(texts: Sequence[str], rows: Sequence[int]) -> list[Shape]:
    """All shapes; if `rows` are given, each shape once for each of them instead of its own M."""
    shapes = [parse(text) for text in texts]
    if any(count < 1 for count in rows):
        raise ArgumentError(
            mismatch("rows", expected="at least 1", got=min(rows), hint="give positive counts")
        )
    return [shape.with_rows(count) for shape in shapes for count in rows] if rows else shapes
