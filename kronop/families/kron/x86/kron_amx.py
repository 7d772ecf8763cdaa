"""Kronecker matmuls of bf16 on AMX tiles: which digits, and whether tiles are worth it.

Figures were measured on one core of an Emerald Rapids; see kron_amx.hpp for what a plan means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kronop.descriptions.datatype import bfloat16
from kronop.emit.x86 import amx
from kronop.families.kron.x86.kron_parts import Digit, KronWork
from kronop.families.kron.x86.kron_tiles import KronTiles

# Cycles: a tile of 256 sums from its first operands to their place in memory, and each step of 32
# numbers of the contraction; one entry of a factor that is a product of several.
_BLOCK, _EACH_STEP, _ENTRY = 90, 27, 15
# Vector kernels: multiply-adds a cycle with all that they wait for, what each result costs besides,
# and what it takes to widen an element of X and to round one of Y, in multiply-adds.
_VECTOR_RATE, _OVERHEAD, _WIDEN, _ROUND = 16, 3, 4, 8
_TYPICAL_ROWS = 64
# Elements of X that go through the last digit at once, where there are two digits.
_AT_ONCE = 8192


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


def design(work: KronWork) -> tuple[float, KronTiles]:
    """The cheapest way to merge neighbours into digits; what a row should take, in cycles."""
    contractions = work.contractions
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
    cycles, group = best[-1][0], 1
    if len(digits) == 2:
        group = max(1, _AT_ONCE // work.input_columns)
    return cycles, KronTiles(
        work=work, digits=tuple(digits), group=group, vector_work=int(cycles * _VECTOR_RATE)
    )


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
    along = before * -(-after // amx.TILE) if after > 1 else before / amx.TILE
    tiles = along * -(-digit.produced // amx.TILE)
    cycles = tiles * (_BLOCK + _EACH_STEP * amx.steps(digit.contracted, bfloat16))
    if digit.end - digit.first > 1:
        cycles += _ENTRY * digit.contracted * digit.produced / _TYPICAL_ROWS
    return cycles
