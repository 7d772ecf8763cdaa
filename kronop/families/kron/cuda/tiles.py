"""The tiles that a pass may have: their sizes, and the styles of their phases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from kronop.descriptions.datatype import DataType, float16, float32
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda.operands import splits_of
from kronop.families.kron.cuda import half, mma_style
from kronop.families.kron.cuda.bytewise import ByteStyle
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.mma_style import MmaStyle, remembered
from kronop.families.kron.cuda.shapes import PassWork, Shape
from kronop.families.kron.cuda.tile import KronTile

_TILE_ELEMENTS = 8192
_MOST_STAGED = 64

Digits = tuple[Shape, ...]


def mma_tiles(work: PassWork, given: TileDescription | None, few: bool) -> Iterator[KronMma]:
    """Tiles of a few sizes, staged or not: some allow several blocks on a multiprocessor, some only
    one.

    With few rows, there are also tiles small enough that every multiprocessor gets one.
    """
    if given is not None:
        sizes = [(item.rows, item.columns, item.threads) for item in simt_tiles(work, given)]
    else:
        sizes = [*_large(work), *(_small(work) if few else ())]
    splits = bool(splits_of(work.math))
    for runs in _runs(work):
        digits = mma_style.digits_of(work.shape.factors, runs)
        halves = _half_styles(digits, work.accumulator, splits) if _may_be_half(work, runs) else ()
        long = len(digits) == 1 and digits[0][0] > _MOST_STAGED
        for rows, columns, threads in dict.fromkeys(sizes):
            shares = rows == columns == 1 < len(digits)
            plain = _styles(digits, work.accumulator, splits, columns == 1 or long, shares)
            for style in (*plain, *halves):
                tile = MmaTile(style=style, rows=rows, columns=columns, threads=threads)
                yield KronMma(work=work, runs=runs, tile=tile)


def every_style(work: PassWork) -> tuple[MmaStyle, ...]:
    """All styles that some tile of a pass may have."""
    splits = bool(splits_of(work.math))
    found: list[MmaStyle] = []
    for runs in _runs(work):
        digits = mma_style.digits_of(work.shape.factors, runs)
        found += _styles(digits, work.accumulator, splits, True, True)
        if _may_be_half(work, runs):
            found += _half_styles(digits, work.accumulator, splits)
    return tuple(found)


def _large(work: PassWork) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, threads) of tiles with 4096 elements or more."""
    slots = math.prod(max(digit) for digit in work.shape.factors)
    # NOTE: measured: 32 and 64 contiguous columns are faster than fewer, and tiles of 2048 elements
    # were never the fastest.
    for columns in sorted(_columns(work))[-2:]:
        for elements in (4096, 8192, 16384, 32768):
            rows = max(1, elements // slots // columns)
            for threads in (128, 256, 512):
                if threads * 32 <= max(4096, rows * slots * columns):
                    yield rows, columns, threads


def _small(work: PassWork) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, threads) of tiles with few rows; no more threads than the elements, or the
    preparation of the factors, keep busy."""
    slots = math.prod(max(digit) for digit in work.shape.factors)
    largest = max(p * q for p, q in work.shape.factors)
    for columns in [size for size in _columns(work) if size in (8, 16, 32)] or [1]:
        for rows in (1, 2, 4):
            elements = rows * slots * columns
            for threads in (32, 64, 128, 256, 512):
                if threads * 8 <= max(256, elements, largest) and elements <= threads * 128:
                    yield rows, columns, threads


@remembered
def _styles(
    digits: Digits, accumulator: DataType, splits: bool, direct: bool, shares: bool
) -> tuple[MmaStyle, ...]:
    """The styles of a pass with these digits.

    Staged tiles suit any layout. With `direct`, phases may also access X and Y in global memory
    themselves: with digits contracted one by one, in pairs, or, with `shares`, by a cluster of two
    blocks. Each style comes with warp-level MMAs and, for large digits, with wgmma.
    """
    # NOTE: measured: clusters of 4 and 8 blocks took 1.1 to 3 times as long as clusters of 2, or as
    # two passes. Tiles of columns without staging took 1.1 to 2.6 times as long as staged ones,
    # except for a single digit that is too long to stage.
    large = accumulator is float32 and max(p for p, _ in digits) >= mma_style.LEAST_OF_WGMMA
    kind = ByteStyle if _are_bytes(accumulator) else MmaStyle
    most = 0 if kind is ByteStyle else _most_pairs(digits)
    pairs = sorted({0, most, min(most, (len(digits) - 1) // 2)}) if direct else ()

    def style(staged: bool, wgmma: bool, count: int = 0, cluster: int = 1) -> MmaStyle:
        return kind(
            digits=digits,
            accumulator=accumulator,
            splits=splits,
            staged_in=staged,
            staged_out=staged,
            pairs=count,
            cluster=cluster,
            wgmma=wgmma,
        )

    found = []
    for wgmma in (False, True) if large else (False,):
        found.append(style(True, wgmma))
        for count, cluster in itertools.product(pairs, (1, 2) if shares else (1,)):
            found.append(style(False, wgmma, count, cluster))
    return tuple(found)


def _may_be_half(work: PassWork, runs: Sequence[int]) -> bool:
    # Products of factors may overflow float16 although the result doesn't.
    merged = max(runs) > 1
    return half.takes(work.math, work.ends) and not (work.ends.source is float16 and merged)


@remembered
def _half_styles(digits: Digits, accumulator: DataType, splits: bool) -> tuple[HalfStyle, ...]:
    """The styles whose tile holds 16-bit elements, with and without staging at either end."""
    large = max(p for p, _ in digits) >= mma_style.LEAST_OF_WGMMA
    both = (True, False)
    return tuple(
        HalfStyle(
            digits=digits,
            accumulator=accumulator,
            splits=splits,
            staged_in=staged_in,
            staged_out=staged_out,
            wgmma=wgmma,
            buffers=buffers,
        )
        for wgmma, staged_in, staged_out, buffers in itertools.product(
            (False, True) if large else (False,), both, both, (1, 2)
        )
    )


def _are_bytes(accumulator: DataType) -> bool:
    """Whether the tensor cores multiply byte by byte for this accumulator."""
    return accumulator.kind == "int"


def _most_pairs(digits: Sequence[Shape]) -> int:
    """How many pairs of neighbouring digits, counted from the last, fit in a thread's registers."""
    last = len(digits) - 1
    count = 0
    while (
        2 * count + 1 <= last
        and max(*digits[last - 2 * count], *digits[last - 2 * count - 1]) <= 32
    ):
        count += 1
    return count


def _runs(work: PassWork) -> list[tuple[int, ...]]:
    """Ways to merge factors into digits (how many factors make each digit): factors are merged at
    least while the digit stays within 8."""
    factors = work.shape.factors
    if _are_bytes(work.accumulator):
        return [mma_style.runs_of(factors, 1)]
    limits = {mma_style.runs_of(factors, merged): merged for merged in (16, 8, 1)}
    runs = sorted(limits, key=lambda item: limits[item])
    return runs[1:] if len(runs) == 3 else runs


def simt_tiles(work: PassWork, given: TileDescription | None) -> list[KronTile]:
    """Tiles of the ordinary cores: with columns for long contiguous accesses, and with rows and
    threads that fill a block."""
    shape, accumulator = work.shape, work.accumulator
    slots = math.prod(max(digit) for digit in shape.factors)
    if given is not None:
        m, n, _ = given.threadblock_shape
        across = max(1, n // slots)
        rows, columns = (across, m) if work.ends.source_by_rows else (m, min(shape.right, across))
        counts = _threads(rows * slots * columns)
        if given.warps is not None:
            counts = [32 * given.warps]
        return [KronTile(work=work, rows=rows, columns=columns, threads=count) for count in counts]
    most = max(1, _TILE_ELEMENTS * 4 // accumulator.bytes // slots)
    result = []
    for columns in _columns(work):
        rows = 1 << max(0, (most // columns).bit_length() - 1)
        rows = min(rows, 128)
        for height in {rows, max(1, rows // 2), max(1, rows // 4)}:
            result += [
                KronTile(work=work, rows=height, columns=columns, threads=count)
                for count in _threads(height * slots * columns)
            ]
    return result


def _threads(elements: int) -> list[int]:
    """The sizes of blocks for a tile of so many elements."""
    return [count for count in (512, 256, 128, 64) if count * 32 <= elements] or [64]


def _columns(work: PassWork) -> list[int]:
    right = work.shape.right
    if work.ends.source_by_rows:
        return [8, 16, 32, 64]
    if right <= 16:
        return [right]
    divisors = [size for size in range(5, 65) if right % size == 0]
    return sorted({*divisors, 8, 16, 32, 64} - {size for size in (32, 64) if size > right})
