"""Which tiles a pass may take: sizes, and ways to go about the phases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from kronop.descriptions.datatype import DataType, RowMajor, float16, float32
from kronop.families.kron.cuda import bytewise, half, mma
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.shapes import Ends, PassShape, Shape
from kronop.families.kron.cuda.tile import TileShape
from kronop.families.kron.description import KronMatmulDescription, Side

_TILE_ELEMENTS = 8192
_MOST_STAGED = 64


def by_columns(description: KronMatmulDescription) -> bool:
    """Whether neighbours in a factor's memory are outputs of the canonical form."""
    return (description.F.layout is RowMajor) == (description.side is Side.Right)


class Key:
    """What of a description a pass depends on, for the memo."""

    def __init__(self, description: KronMatmulDescription) -> None:
        self.tile, self.math = description.tile, description.math
        self.by_columns = by_columns(description)
        self.factor_alignment = description.F.alignment
        self.identity = (self.tile, self.math, self.by_columns, self.factor_alignment)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.identity == other.identity


def mma_tiles(
    key: Key, shape: PassShape, ends: Ends, accumulator: DataType, few: bool
) -> Iterator[MmaTile]:
    """Tiles of a few sizes, from several blocks a multiprocessor to one, staged or not.

    Where rows are few, also tiles that are small enough for every multiprocessor to have one.
    """
    if key.tile is not None:
        given = simt_tiles(key, shape, ends, accumulator)
        plain = [(item.rows, item.columns, item.threads) for item in given]
    else:
        plain = [*_large(shape, ends), *(_small(shape, ends) if few else ())]
    for merged in (1,) if bytewise.takes(accumulator) else _mergers(shape):
        digits = mma.merge(shape, merged)
        for rows, columns, threads in dict.fromkeys(plain):
            for style in (
                *_styles(digits, columns, rows, accumulator),
                *_half_styles(key, shape, digits, ends),
            ):
                yield MmaTile(rows=rows, columns=columns, threads=threads, merged=merged, **style)


def _large(shape: PassShape, ends: Ends) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, threads) of tiles that hold much."""
    slots = math.prod(max(digit) for digit in shape.group)
    # NOTE: measured: 32 and 64 columns of a run win over fewer, and 2048 elements never won.
    for columns in sorted(_columns(shape, ends))[-2:]:
        for elements in (4096, 8192, 16384, 32768):
            rows = max(1, elements // slots // columns)
            for threads in (128, 256, 512):
                if threads * 32 <= max(4096, rows * slots * columns):
                    yield rows, columns, threads


def _small(shape: PassShape, ends: Ends) -> Iterator[tuple[int, int, int]]:
    """The same of tiles that hold few rows; their threads have elements, or factors to prepare."""
    slots = math.prod(max(digit) for digit in shape.group)
    largest = max(p * q for p, q in shape.group)
    for columns in [size for size in _columns(shape, ends) if size in (8, 16, 32)] or [1]:
        for rows in (1, 2, 4):
            elements = rows * slots * columns
            for threads in (32, 64, 128, 256, 512):
                if threads * 8 <= max(256, elements, largest) and elements <= threads * 128:
                    yield rows, columns, threads


def _styles(
    shape: PassShape, columns: int, rows: int, accumulator: DataType
) -> Iterator[dict[str, Any]]:
    """Ways to go about the phases of a pass.

    Staged, which suits any layout; or with ends in memory: digits one by one, by two, or shared
    by a cluster of two; each with warps that multiply alone or, for large digits, in groups.
    """
    # NOTE: measured: clusters of 4 and 8 blocks took 1.1 to 3 times as long as of 2, or as two
    # passes; tiles of columns with ends in memory 1.1 to 2.6 times as long as staged ones, but for
    # one digit too long to stage.
    digits = shape.group
    large = accumulator is float32 and max(p for p, _ in digits) >= mma.LEAST_GROUPED
    most = 0 if bytewise.takes(accumulator) else _most_pairs(digits)
    pairs = sorted({0, most, min(most, (len(digits) - 1) // 2)})
    direct = columns == 1 or (len(digits) == 1 and digits[0][0] > _MOST_STAGED)
    for grouped in (False, True) if large else (False,):
        style = {"grouped": grouped, "cluster": 1, "pairs": 0}
        yield {**style, "staged_in": True, "staged_out": True}
        style |= {"staged_in": False, "staged_out": False}
        for count in pairs if direct else ():
            for cluster in (1, 2) if rows == columns == 1 < len(digits) else (1,):
                yield {**style, "pairs": count, "cluster": cluster}


def _half_styles(
    key: Key, factors: PassShape, shape: PassShape, ends: Ends
) -> Iterator[dict[str, Any]]:
    """The same with a tile of 16-bit elements: staged, or one end in memory."""
    if not half.takes(key.math, ends):
        return
    # Products of factors may leave the range of float16 where the result does not.
    if ends.source is float16 and shape.group != factors.group:
        return
    grouped = (False, True) if max(p for p, _ in shape.group) >= mma.LEAST_GROUPED else (False,)
    both = (True, False)
    for together, staged_in, staged_out, buffers in itertools.product(grouped, both, both, (1, 2)):
        yield {
            "staged_in": staged_in,
            "staged_out": staged_out,
            "pairs": 0,
            "cluster": 1,
            "grouped": together,
            "half": True,
            "buffers": buffers,
        }


def _most_pairs(digits: Sequence[Shape]) -> int:
    """How many pairs of neighbouring digits, from the last ones on, fit a thread's registers."""
    last = len(digits) - 1
    count = 0
    while (
        2 * count + 1 <= last
        and max(*digits[last - 2 * count], *digits[last - 2 * count - 1]) <= 32
    ):
        count += 1
    return count


def _mergers(shape: PassShape) -> list[int]:
    """Limits of merged factors that lead to different digits; what can merge to 8 does."""
    different = {mma.runs_of(shape.group, merged): merged for merged in (16, 8, 1)}
    limits = sorted(different.values())
    return limits[1:] if len(limits) == 3 else limits


def simt_tiles(key: Key, shape: PassShape, ends: Ends, accumulator: DataType) -> list[TileShape]:
    """Tiles to consider: columns that make long runs, rows and threads that fill a block."""
    slots = math.prod(max(digit) for digit in shape.group)
    if key.tile is not None:
        m, n, _ = key.tile.threadblock_shape
        rows, columns = (
            (max(1, n // slots), m)
            if ends.source_by_rows
            else (m, min(shape.right, max(1, n // slots)))
        )
        return [TileShape(rows=rows, columns=columns, threads=32 * key.tile.warps)]
    most = max(1, _TILE_ELEMENTS * 4 // accumulator.bytes // slots)
    result = []
    for columns in _columns(shape, ends):
        rows = 1 << max(0, (most // columns).bit_length() - 1)
        rows = min(rows, 128)
        for height in {rows, max(1, rows // 2), max(1, rows // 4)}:
            elements = height * slots * columns
            fitting = [count for count in (512, 256, 128, 64) if count * 32 <= elements] or [64]
            result += [TileShape(rows=height, columns=columns, threads=count) for count in fitting]
    return result


def _columns(shape: PassShape, ends: Ends) -> list[int]:
    if ends.source_by_rows:
        return [8, 16, 32, 64]
    if shape.right <= 16:
        return [shape.right]
    divisors = [size for size in range(5, 65) if shape.right % size == 0]
    return sorted({*divisors, 8, 16, 32, 64} - {size for size in (32, 64) if size > shape.right})
