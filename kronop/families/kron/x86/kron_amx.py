"""Kronecker matmuls of bf16 on AMX tiles: the choice of digits, and the modelled time.

Figures were measured on one core of an Emerald Rapids; kron_amx.hpp explains the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kronop.descriptions.datatype import bfloat16
from kronop.emit.x86 import amx
from kronop.families.kron.x86.kron_parts import Digit, KronWork
from kronop.families.kron.x86.kron_tiles import KronTiles

# Cycles of a tile of 256 sums besides its products; of each tile product (32 contracted indices);
# to compute one entry of a digit's factor that is a product of several factors.
_BLOCK, _EACH_STEP, _ENTRY = 90, 27, 15
# For vector kernels, in units of multiply-adds: the overhead of each result, of widening an element
# of X, and of rounding an element of Y.
_OVERHEAD, _WIDEN, _ROUND = 3, 4, 8
_TYPICAL_ROWS = 64
# Elements of X that are multiplied by the last digit at once, if there are two digits.
_AT_ONCE = 8192


def vector_cycles(columns: int, products: Iterable[tuple[int, int]]) -> float:
    """Modelled cycles of a row on vectors.

    Args:
        columns: elements of a row of X.
        products: (results, contracted size) of each mode product, in order.
    """
    work, results = _WIDEN * columns, columns
    for results, contracted in products:
        work += results * (contracted + _OVERHEAD)
    return (work + _ROUND * results) / amx.VECTOR_RATE


def design(work: KronWork) -> tuple[float, KronTiles]:
    """The modelled cycles of a row, and the design with the cheapest way to merge neighbouring
    factors into digits."""
    contractions = work.contractions
    # best[end]: the cycles of the digits before `end`, and the start of the last of them.
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
    cycles, at_once = best[-1][0], 1
    if len(digits) == 2:
        at_once = max(1, _AT_ONCE // work.input_columns)
    return cycles, KronTiles(
        work=work, digits=tuple(digits), at_once=at_once, vector_work=int(cycles * amx.VECTOR_RATE)
    )


def _digit(contractions: Sequence[tuple[int, int]], first: int, end: int) -> Digit:
    return Digit(
        contracted=math.prod(p for p, _ in contractions[first:end]),
        produced=math.prod(q for _, q in contractions[first:end]),
        first=first,
        end=end,
    )


def _cycles(digit: Digit, before: int, after: int) -> float:
    """Modelled cycles of one digit of a row, in tiles of 16 outputs by 16 other elements."""
    # The other elements follow the digit; for the last digit, they precede it, in several rows.
    along = before * -(-after // amx.TILE) if after > 1 else before / amx.TILE
    tiles = along * -(-digit.produced // amx.TILE)
    cycles = tiles * (_BLOCK + _EACH_STEP * amx.steps(digit.contracted, bfloat16))
    if digit.end - digit.first > 1:
        cycles += _ENTRY * digit.contracted * digit.produced / _TYPICAL_ROWS
    return cycles
