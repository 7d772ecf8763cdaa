"""A Kronecker matmul of bf16 on AMX tiles (`kron_amx_matmul`); see kron_amx.hpp."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from kronop.descriptions.datatype import bfloat16
from kronop.emit.design import Constant
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import aligned, keeps_sums
from kronop.families.kron.x86.kron_design import KronDesign
from kronop.frozen import dataclass

_BYTES = bfloat16.bytes
_PACK = amx.UNIT_BYTES // _BYTES
# Rows of a block, and rows that a thread processes at once.
_ROWS_AT_ONCE, _ROWS = 2 * amx.TILE, 64
# Results of a row that scratch memory holds at once. If a row has more, it holds _HELD_IN_PARTS,
# rounded to multiples of _LEAST_PART.
_HELD, _HELD_IN_PARTS, _LEAST_PART = 16384, 8192, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KronTiles(KronDesign):
    """A design on AMX tiles: it contracts the digits of some rows from the last to the first.

    Attributes:
        at_once: rows whose last digit is contracted at once.
    """

    stores_in_parts = True
    header: ClassVar[str] = "kron_amx.hpp"
    template: ClassVar[str] = "kron_amx_matmul"
    has_teams: ClassVar[bool] = False
    row_tile: ClassVar[int] = _ROWS

    at_once: int
    vector_work: int

    def __str__(self) -> str:
        sizes = ", ".join(f"{digit.contracted}x{digit.produced}" for digit in self.digits)
        return f"on tiles, digits {sizes}, {self.at_once} rows at once"

    @property
    def shared_bytes(self) -> int:
        """Bytes of a thread's scratch memory: those of `Layout` in the header."""
        last = self.digits[-1]
        total = aligned(_ROWS_AT_ONCE * _padded(last.contracted) * _BYTES)
        trail = 1
        for index in reversed(range(len(self.digits))):
            digit = self.digits[index]
            if not index:
                total += aligned(_held(digit.produced, trail, alone=digit is last) * _BYTES)
            total += amx.factor_bytes(digit.contracted, digit.produced, bfloat16)
            if digit is not last:
                neighbours = 2 if index else self.at_once
                total += aligned(_padded(digit.contracted) * _pitch(trail) * neighbours * _BYTES)
            trail *= digit.produced
        return total

    def products(self) -> Iterator[tuple[int, int]]:
        for index, digit in enumerate(self.digits):
            before = math.prod(item.contracted for item in self.digits[:index])
            after = math.prod(item.produced for item in self.digits[index + 1 :])
            yield before * digit.produced * after, digit.contracted

    @property
    def row_multiple(self) -> int:
        return _ROWS_AT_ONCE if len(self.digits) == 1 else 1

    @property
    def keeps_sums(self) -> bool:
        return keeps_sums(self.work.epilogue, rounded=True)

    @property
    def constants(self) -> tuple[tuple[str, Constant], ...]:
        return (("kAtOnce", self.at_once), ("kSlice", self.shared_bytes), *self.digit_constants)


def _padded(contracted: int) -> int:
    """The contracted size, padded so that all tile products have equally many whole pairs."""
    return _PACK * amx.lines(contracted, bfloat16)


def _held(rows: int, columns: int, *, alone: bool) -> int:
    """Results of a row collected in scratch memory, so that streaming stores are whole lines."""
    if alone:
        return _ROWS_AT_ONCE * rows
    if rows * columns <= _HELD:
        return rows * columns
    part = max(_LEAST_PART, _HELD_IN_PARTS // rows // _LEAST_PART * _LEAST_PART)
    return rows * min(columns, part + _ROWS_AT_ONCE)


def _pitch(trail: int) -> int:
    return trail if trail % 128 else trail + amx.TILE
