"""Kronecker matmuls of bf16 on AMX tiles: digits, scratch, and whether tiles are worth it.

Figures were measured on one core of an Emerald Rapids; see kron_amx.hpp for what a plan means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kronop.descriptions.datatype import bfloat16
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import aligned
from kronop.families.kron.x86.kron_parts import Digit

_TILE, _BYTES = amx.TILE, bfloat16.bytes
_PACK = amx.UNIT_BYTES // _BYTES
# Cycles: a tile of 256 sums from its first operands to their place in memory, and each step of 32
# numbers of the contraction; one entry of a factor that is a product of several.
_BLOCK, _EACH_STEP, _ENTRY = 90, 27, 15
# Vector kernels: multiply-adds a cycle with all that they wait for, what each result costs besides,
# and what it takes to widen an element of X and to round one of Y, in multiply-adds.
_VECTOR_RATE, _OVERHEAD, _WIDEN, _ROUND = 16, 3, 4, 8
_TYPICAL_ROWS = 64
# Rows of a block, and those that a thread takes at once.
ROWS_AT_ONCE, ROWS = 2 * _TILE, 64
# Results of a row that are held at once, and where they are more: so many, in whole such runs.
_HELD, _HELD_IN_PARTS, _LEAST_PART = 16384, 8192, 64
# Elements of X that go through the last digit at once, where there are two digits.
_AT_ONCE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TilePlan:
    """How a row goes through tiles.

    Attributes:
        digits: neighbouring factors, merged where that saves more than it costs.
        group: rows that go through the last digit at once.
        cycles: what a row should take: a ranking, no forecast.
    """

    digits: tuple[Digit, ...]
    group: int
    cycles: float

    @property
    def bytes(self) -> int:
        """Scratch of a thread: the `Layout` of the header."""
        last = self.digits[-1]
        total = aligned(ROWS_AT_ONCE * _padded(last.contracted) * _BYTES)
        trail = 1
        for index in reversed(range(len(self.digits))):
            digit = self.digits[index]
            if not index:
                total += aligned(_held(digit.produced, trail, alone=digit is last) * _BYTES)
            total += amx.factor_bytes(digit.contracted, digit.produced, bfloat16)
            if digit is not last:
                neighbours = 2 if index else self.group
                total += aligned(_padded(digit.contracted) * _pitch(trail) * neighbours * _BYTES)
            trail *= digit.produced
        return total

    @property
    def multiply_adds(self) -> int:
        """Of a row, from the last digit to the first."""
        return sum(
            before * digit.contracted * digit.produced * after
            for digit, before, after in _around(self.digits)
        )

    @property
    def vector_work(self) -> int:
        """Multiply-adds that vectors do in the time of a row."""
        return int(self.cycles * _VECTOR_RATE)

    def __str__(self) -> str:
        sizes = ", ".join(f"{digit.contracted}x{digit.produced}" for digit in self.digits)
        return f"on tiles, digits {sizes}, {self.group} rows at once"


def vector_cycles(columns: int, products: Iterable[tuple[int, int]]) -> float:
    """What a row takes on vectors.

    Args:
        columns: elements of a row of X.
        products: results and the contracted size of each mode product, in order.
    """
    work, results = _WIDEN * columns, columns
    for results, contracted in products:
        work += results * (contracted + _OVERHEAD)
    return (work + _ROUND * results) / _VECTOR_RATE


def plan(contractions: Sequence[tuple[int, int]]) -> TilePlan:
    """The cheapest way to merge neighbours into digits."""
    # best[end]: the cycles of the digits before `end`, and where the last of them begins.
    count = len(contractions)
    before, after = [1], [1]
    for (p, _), (_, q) in zip(contractions, reversed(contractions), strict=True):
        before.append(before[-1] * p)
        after.append(after[-1] * q)
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, count + 1):
        trail = after[count - end]
        ways = []
        for first in range(end):
            digit = _digit(contractions, first, end)
            ways.append((best[first][0] + _cycles(digit, before[first], trail), first))
        best.append(min(ways))
    digits: list[Digit] = []
    end = count
    while end:
        first = best[end][1]
        digits.insert(0, _digit(contractions, first, end))
        end = first
    columns = math.prod(digit.contracted for digit in digits)
    group = max(1, _AT_ONCE // columns) if len(digits) == 2 else 1
    return TilePlan(digits=tuple(digits), group=group, cycles=best[-1][0])


def _digit(contractions: Sequence[tuple[int, int]], first: int, end: int) -> Digit:
    return Digit(
        contracted=math.prod(p for p, _ in contractions[first:end]),
        produced=math.prod(q for _, q in contractions[first:end]),
        first=first,
        end=end,
    )


def _cycles(digit: Digit, before: int, after: int) -> float:
    """Of one digit of a row: tiles of 16 outputs and 16 of what is along them."""
    # With the last digit they are what is before it, of several rows.
    along = before * -(-after // _TILE) if after > 1 else before / _TILE
    tiles = along * -(-digit.produced // _TILE)
    cycles = tiles * (_BLOCK + _EACH_STEP * amx.steps(digit.contracted, bfloat16))
    if digit.end - digit.first > 1:
        cycles += _ENTRY * digit.contracted * digit.produced / _TYPICAL_ROWS
    return cycles


def _around(digits: Sequence[Digit]) -> list[tuple[Digit, int, int]]:
    """Each digit, what was not yet contracted before it and what was produced behind it."""
    return [
        (
            digit,
            math.prod(item.contracted for item in digits[:index]),
            math.prod(item.produced for item in digits[index + 1 :]),
        )
        for index, digit in enumerate(digits)
    ]


def _padded(contracted: int) -> int:
    """The contracted digit in equal steps of whole pairs."""
    return _PACK * amx.lines(contracted, bfloat16)


def _held(rows: int, columns: int, *, alone: bool) -> int:
    """Results that are put together on their way past the caches."""
    if alone:
        return ROWS_AT_ONCE * rows
    if rows * columns <= _HELD:
        return rows * columns
    part = max(_LEAST_PART, _HELD_IN_PARTS // rows // _LEAST_PART * _LEAST_PART)
    return rows * min(columns, part + ROWS_AT_ONCE)


def _pitch(trail: int) -> int:
    return trail if trail % 128 else trail + _TILE
