"""How results are divided into work items, and the scratch memory that they need."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from kronop.artifacts import Decision, Status
from kronop.emit.x86 import planning
from kronop.frozen import dataclass

_LEAST_SLICE = 1024  # The fewest elements of k of a slice.
# The most scratch memory of a thread in bytes.
_MOST_SCRATCH = 1 << 26
_ORDER_BYTES = 8  # Of the number of a row.
# Numbers of items along an extent that are tried: the least number plus, or times, these.
_MORE, _TIMES = range(4), (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking(Decision):
    """The sizes of a design's tiles and blocks, which bound those of work items.

    Attributes:
        rows, columns: of a tile.
        block_rows: rows that are packed at once, in whole tiles.
        most_rows, most_columns: of an item, in whole tiles.
        depth: the most elements of k that are packed at once.
        unit: elements of k that are multiplied at once.
        packed_bytes, sum_bytes: of a packed element, and of a sum.
        packing: multiply-adds that take as long as packing an element.
        speed: multiply-adds that take as long as one on vectors.
        staged_bytes: of the lines of a panel that are gathered before they are packed, for each
            element of k; 0 for operands that are strided.
    """

    rows: int
    columns: int
    block_rows: int
    most_rows: int
    most_columns: int
    depth: int
    unit: int
    packed_bytes: int
    sum_bytes: int
    packing: int = 24
    speed: int = 1
    staged_bytes: int = 0

    def status(self) -> Status:
        """Whether blocks consist of whole tiles, and their scratch memory is not too large."""
        named = {"M": (self.most_rows, self.rows), "N": (self.most_columns, self.columns)}
        named["K"] = (self.depth, self.unit)
        for name, (extent, part) in named.items():
            if extent % part:
                return Status.reject(f"Tile_{name} is {extent}; use a multiple of {part}")
        scratch = (self.block_rows + self.most_columns) * self.depth * self.packed_bytes
        scratch += self.most_rows * self.most_columns * self.sum_bytes
        if scratch > _MOST_SCRATCH:
            return Status.reject(
                f"a thread needs {scratch} bytes of scratch, more than {_MOST_SCRATCH};"
                " use smaller tiles"
            )
        return Status.accept()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How results are divided: members of the parameter struct, see gemm_parameters.hpp.

    Attributes:
        items: work items, which threads process.
        staged: bytes at the end of a thread's scratch memory for the order of an item's rows, and
            for lines that are gathered; 0 for operands that are strided.
        workspace_bytes: scratch memory of all threads.
    """

    rows: int
    columns: int
    depth: int
    slice: int
    slices: int
    packed_columns: int
    sums: int
    scratch_bytes: int
    partial: int
    pitch: int
    threads: int
    items: int
    staged: int
    workspace_bytes: int

    @property
    def values(self) -> dict[str, int]:
        names = "rows columns depth slice slices packed_columns sums scratch_bytes partial pitch"
        return {name: getattr(self, name) for name in (*names.split(), "threads")}


@functools.lru_cache(maxsize=1024)
def cut(blocking: Blocking, m: int, n: int, k: int, problems: int, threads: int) -> Cut:
    """The fastest division for `threads` threads; fewer threads if there is little to do."""
    operations = problems * m * n * -(-max(1, k) // blocking.speed)
    threads = planning.shares(operations, operations, threads)

    def time(block: tuple[int, int]) -> tuple[int, int]:
        """Multiply-adds of the busiest thread for each element of k, packing included; and the
        number of items."""
        items = problems * -(-m // block[0]) * -(-n // block[1])
        each = block[0] * block[1] + blocking.packing * (block[0] + block[1])
        return -(-items // threads) * each, items

    rows, columns = min(_blocks(blocking, m, n), key=time)
    blocks = problems * -(-m // rows) * -(-n // columns)
    slices = max(1, min(threads // blocks, k // _LEAST_SLICE))
    part = _whole(-(-k // slices), blocking.unit)
    slices = -(-k // part) if part else 1
    depth = _whole(-(-part // max(1, -(-part // blocking.depth))), blocking.unit)
    return _laid_out(
        blocking, m, n, problems, rows, columns, max(blocking.unit, depth), part, slices, threads
    )


def _laid_out(
    blocking: Blocking,
    m: int,
    n: int,
    problems: int,
    rows: int,
    columns: int,
    depth: int,
    part: int,
    slices: int,
    threads: int,
) -> Cut:
    """A thread's scratch memory: packed rows, packed columns, sums, gathered lines."""
    high = min(blocking.block_rows, rows)
    packed_columns = planning.aligned(high * depth * blocking.packed_bytes)
    sums = packed_columns + planning.aligned(columns * depth * blocking.packed_bytes)
    kept = rows * columns * blocking.sum_bytes if part > depth else 0
    staged = planning.aligned(blocking.staged_bytes * depth)
    if staged:
        staged += planning.aligned(rows * _ORDER_BYTES)
    scratch = sums + planning.aligned(kept) + staged
    items = problems * slices * -(-m // rows) * -(-n // columns)
    threads = min(threads, items)
    pitch = _whole(n, blocking.columns)
    partial = pitch * m * problems * slices * blocking.sum_bytes if slices > 1 else 0
    return Cut(
        rows=rows,
        columns=columns,
        depth=depth,
        slice=part,
        slices=slices,
        packed_columns=packed_columns,
        sums=sums,
        scratch_bytes=scratch,
        partial=threads * scratch,
        pitch=pitch,
        threads=threads,
        items=items,
        staged=staged,
        workspace_bytes=threads * scratch + partial,
    )


def _blocks(blocking: Blocking, m: int, n: int) -> Iterator[tuple[int, int]]:
    """The sizes of items that are tried, in whole tiles."""
    for rows in _sizes(m, blocking.rows, blocking.most_rows):
        for columns in _sizes(n, blocking.columns, blocking.most_columns):
            yield rows, columns


@functools.lru_cache(maxsize=1024)
def _sizes(extent: int, unit: int, most: int) -> list[int]:
    least, all_ = -(-extent // most), -(-extent // unit)
    counts = {least + more for more in _MORE} | {least * times for times in _TIMES}
    sizes = {_whole(-(-extent // count), unit) for count in counts if count <= all_}
    return sorted(sizes or {unit}, reverse=True)


def _whole(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit
