"""The tile of a `kron_mma` pass, and its phases on the tensor cores.

Each phase contracts one digit. The tile is in shared memory, with strides that keep a warp's
accesses apart in its banks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.families.kron.cuda import half
from kronop.families.kron.cuda.shapes import PassShape, shrinking
from kronop.families.kron.cuda.tile import TileShape

# A warp holds 16 whole fibers of a digit in registers.
MOST_CONTRACTED = 128
MOST_DIGITS = 16
LEAST_GROUPED = 32
SHARED_BYTES_PER_CYCLE = 128


class Style(NamedTuple):
    """What of a tile, besides its sizes, decides how the phases go about it."""

    staged_in: bool
    staged_out: bool
    pairs: int
    cluster: int
    grouped: bool
    half: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaTile(TileShape):
    """Rows x group x columns of a block, its threads, and how the phases go about it.

    Where X is not staged, the first phase reads it from memory itself; where Y is not, the last one
    writes it. So many `pairs` of neighbouring digits, from the last ones on, are contracted in one
    phase each. Neighbouring factors are multiplied out up to `merged` rows and columns. The blocks
    of a `cluster` share a tile by its first digit, which is contracted last. With `grouped`, four
    warps multiply digits of 32 and more together. With `half`, the tile holds 16-bit elements,
    and of two `buffers` one is filled while the other one is worked on.
    """

    staged_in: bool
    staged_out: bool
    pairs: int
    merged: int
    cluster: int
    grouped: bool
    half: bool = False
    buffers: int = 1

    @property
    def style(self) -> Style:
        return Style(
            self.staged_in, self.staged_out, self.pairs, self.cluster, self.grouped, self.half
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A free index of a phase: its extent, and the strides of its steps.

    In the tile; in rows; and, where the phase reads or writes memory, along the group of digits and
    in columns.
    """

    extent: int
    shared: int
    row: int = 0
    group: int = 0
    column: int = 0


# The same while axes are put together.
_Axis = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPhase:
    """One digit, or two: what a warp takes at once, and the axes of the fibers.

    A warp takes `groups` times 16 fibers of one digit, so that a thread has `lanes` of them; or as
    many blocks of two: of `digit`, which is contracted first, and of `other`.
    """

    digit: int
    other: int | None
    lanes: int
    neighbours: bool
    grouped: bool
    axes: tuple[Axis, ...]

    @property
    def digits(self) -> tuple[int, ...]:
        return (self.digit,) if self.other is None else (self.digit, self.other)

    @property
    def groups(self) -> int:
        return self.lanes // 2

    @property
    def at_once(self) -> int:
        """Fibers or blocks that a warp, or a group of four, takes at once."""
        return 64 if self.grouped else self.lanes if self.other is not None else 16 * self.groups

    @property
    def fibers(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


def runs_of(group: Sequence[tuple[int, int]], merged: int) -> tuple[int, ...]:
    """How many neighbouring factors make each digit, so that none is larger than `merged`."""
    runs: list[int] = []
    p, q = 0, 0
    for contracted, produced in group:
        if runs and max(p * contracted, q * produced) <= merged:
            runs[-1] += 1
            p, q = p * contracted, q * produced
        else:
            runs.append(1)
            p, q = contracted, produced
    return tuple(runs)


def alone(shape: PassShape) -> PassShape:
    """The digits without what stands around them."""
    return PassShape(group=shape.group, left=1, right=1)


@functools.lru_cache(maxsize=4096)
def merge(shape: PassShape, merged: int) -> PassShape:
    """The pass with its factors multiplied out into digits."""
    group, first = [], 0
    for run in runs_of(shape.group, merged):
        factors = shape.group[first : first + run]
        group.append((math.prod(p for p, _ in factors), math.prod(q for _, q in factors)))
        first += run
    return replace(shape, group=tuple(group))


def strides_of(shape: PassShape, tile: MmaTile, accumulator: DataType) -> tuple[int, ...]:
    """Stride of each digit in the tile, last digit contiguous or next to the columns."""
    if tile.half:
        return half.strides_of(shape.group, tile.columns)[1:]
    return _strides_of(shape.group, tile.columns, tile.pairs, accumulator.bytes)


@functools.lru_cache(maxsize=4096)
def _strides_of(
    group: Sequence[tuple[int, int]], columns: int, pairs: int, accumulator_bytes: int
) -> tuple[int, ...]:
    strides: list[int] = []
    stride = columns
    count = len(group)
    banks = SHARED_BYTES_PER_CYCLE // accumulator_bytes
    for index in reversed(range(count)):
        # Of two digits that are contracted together, a warp walks 8 steps of the first one.
        outer = (count - index) % 2 == 0 and count - index <= 2 * pairs and strides[-1] > 1
        strides.append(_apart(stride, banks // 8 if outer else banks // 4, banks))
        slots = max(group[index])
        # Pairs of a contiguous digit stay within it.
        stride = strides[-1] * (operands.round_up(slots, 2) if strides[-1] == 1 else slots)
    return tuple(reversed(strides))


def _apart(stride: int, step: int, banks: int) -> int:
    """`stride`, or a little more, so that 4 steps of it and 8 neighbours meet no bank twice: an odd
    multiple of `step` banks."""
    if stride < banks // 4 or stride % 4:
        return stride
    wanted = range(stride, stride + banks + 1, min(step, 4))
    padded = next(s for s in wanted if s % step == 0 and s // step % 2 == 1)
    return padded if padded <= 1.25 * stride else stride


def row_stride(shape: PassShape, tile: MmaTile, strides: Sequence[int]) -> int:
    if tile.half:
        return half.strides_of(shape.group, tile.columns)[0]
    # A cluster writes the results of its last phase to memory.
    slots = shape.group[0][0] // tile.cluster if tile.cluster > 1 else max(shape.group[0])
    return strides[0] * (operands.round_up(slots, 2) if strides[0] == 1 else slots)


@functools.lru_cache(maxsize=4096)
def digits_of_phases(
    group: Sequence[tuple[int, int]], style: Style
) -> tuple[tuple[int, int | None], ...]:
    """(digit, its partner or None) of the phases in their order: pairs, then the rest."""
    if style.half:
        return tuple((digit, None) for digit in half.order(group, style))
    last = len(group) - 1
    paired = [(last - 2 * index, last - 2 * index - 1) for index in range(style.pairs)]
    single = sorted(
        range(len(group) - 2 * style.pairs),
        key=lambda d: (style.cluster > 1 and d == 0, shrinking(group[d]), -d),
    )
    return (*paired, *((digit, None) for digit in single))


def phases_of(
    shape: PassShape, tile: MmaTile, strides: Sequence[int], accumulator: DataType
) -> tuple[MmaPhase, ...]:
    """The phases in the order of execution."""
    done: set[int] = set()
    result = []
    order = digits_of_phases(shape.group, tile.style)
    for place, (digit, other) in enumerate(order):
        reads = place == 0 and not tile.staged_in
        writes = place == len(order) - 1 and not tile.staged_out
        inside = not (reads or writes)
        if writes:
            done |= {digit} if other is None else {digit, other}
        sizes = [q if index in done else p for index, (p, q) in enumerate(shape.group)]
        sizes[0] //= tile.cluster
        axes = [(tile.rows, row_stride(shape, tile, strides), 1, 0, 0)]
        axes += [
            (size, strides[index], 0, 0 if inside else math.prod(sizes[index + 1 :]), 0)
            for index, size in enumerate(sizes)
            if index not in (digit, other)
        ]
        axes.append((tile.columns, 1, 0, 0, 0 if inside else 1))
        if tile.half and strides[digit] > 1:
            axes = _in_rows(axes, columns=tile.columns > 1)
        collapsed = _collapse(axes)
        lanes = lanes_of(shape.group, digit, other, accumulator, strides[digit] == 1)
        if tile.half:
            lanes = _half_lanes(shape.group[digit], strides[digit] == 1, collapsed, tile)
        neighbours = _neighbours(collapsed, (digit, other), strides, lanes)
        result.append(
            MmaPhase(
                digit=digit,
                other=other,
                lanes=lanes,
                neighbours=neighbours,
                grouped=other is None and is_grouped(shape.group[digit], tile),
                axes=collapsed,
            )
        )
        done |= {digit} if other is None else {digit, other}
    return tuple(result)


def _in_rows(axes: Sequence[_Axis], columns: bool) -> list[_Axis]:
    """The axes with what is contiguous in the tile in rows: columns, or the last digit."""
    index = len(axes) - (1 if columns else 2)
    return [*axes[:index], (half.rows(axes[index][0]), half.ROW, 0, 0, 0)]


def _half_lanes(digit: tuple[int, int], unit: bool, axes: Sequence[Axis], tile: MmaTile) -> int:
    fibers = math.prod(axis.extent for axis in axes)
    return 2 * half.groups(digit, unit, fibers, is_grouped(digit, tile), tile.threads // 32)


def _neighbours(
    axes: Sequence[Axis], digits: Sequence[int | None], strides: Sequence[int], lanes: int
) -> bool:
    """Whether a thread's fibers are one aligned vector wherever they are read or written."""
    own = [strides[digit] for digit in digits if digit is not None]
    last = axes[-1]
    aligned = all(
        step % lanes == 0 for axis in axes[:-1] for step in (axis.shared, axis.group, axis.column)
    )
    return (
        all(stride != 1 and stride % lanes == 0 for stride in own)
        and aligned
        and last.shared == 1
        and last.extent % lanes == 0
    )


def _collapse(axes: Sequence[_Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes that walk together, none by more or less than the inner one, become one."""
    result: list[_Axis] = []
    for axis in axes:
        extent, *steps = axis
        if extent == 1:
            continue
        if result and all(
            own == extent * other for own, other in zip(result[-1][1:], steps, strict=True)
        ):
            result[-1] = (result[-1][0] * extent, *axis[1:])
        else:
            result.append(axis)
    return tuple(
        Axis(extent=extent, shared=shared, row=row, group=group, column=column)
        for extent, shared, row, group, column in result or [(1, 0, 0, 0, 0)]
    )


def parts_of(size: int) -> int:
    return operands.cover(size, 8)


def is_grouped(digit: tuple[int, int], tile: MmaTile | Style) -> bool:
    return tile.grouped and digit[0] >= LEAST_GROUPED


def lanes_of(
    group: Sequence[tuple[int, int]],
    digit: int,
    other: int | None,
    accumulator: DataType,
    unit: bool,
) -> int:
    """Fibers, or blocks of two digits, that a thread holds: in vectors of 16 bytes at most."""
    parts = parts_of(group[digit][0])
    if other is None:
        return 4 if accumulator.bytes == 4 and parts <= 2 else 2
    parts *= parts_of(group[other][0])
    most = (8 if unit else 4) if parts == 1 else 4 if parts <= 4 else 1
    # Blocks of 8 produced indices are multiplied two by two.
    least = 2 if group[digit][1] <= 8 else 1
    return max(least, most * 4 // accumulator.bytes)


def tile_bytes(tile: MmaTile, accumulator: DataType) -> int:
    """Bytes of an element of the tile."""
    return half.BYTES if tile.half else accumulator.bytes


def powers(group: tuple[tuple[int, int], ...], tile: MmaTile) -> bool:
    """Whether all sizes are powers of two, so that indices split into parts without carries."""
    rows, columns, threads = tile.rows, tile.columns, tile.threads
    tiles = not (rows & (rows - 1) or columns & (columns - 1) or threads & (threads - 1))
    return tiles and _powers(group)


@functools.lru_cache(maxsize=4096)
def _powers(group: tuple[tuple[int, int], ...]) -> bool:
    return all(size & (size - 1) == 0 for digit in group for size in digit)
