"""Cutting a row into passes on the vectors of a CPU: digits, candidates, legality."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from kronop.artifacts import Status
from kronop.families.kron.x86.kron_cost import residence
from kronop.families.kron.x86.kron_parts import Digit, Kind, Pass, Setting
from kronop.families.kron.x86.kron_vectors import KronVectors
from kronop.families.kron.x86.kron_ways import (
    MOST_LINES,
    Shape,
    Way,
    products_of,
    shapes_of,
    ways_of,
    with_lanes,
)
from kronop.machine import CPU_LINE, LEAST_LEVEL_1_BYTES

# Vector operations that each result of a mode product costs besides its multiply-adds.
_OVERHEAD = 3
_MOST_SPLITS = 16
_MOST_ROWS = 64
# How many ways to run each pass are combined to candidates.
_WAYS = 2
# (modelled cycles of a row, which are good for ranking only, and the design).
Candidate = tuple[float, KronVectors]
_MOST_MIDDLE = 1 << 25
# From so many bytes on, runs may be padded by a cache line; and the largest digit whose runs are
# read together.
_FAR_APART, _FEW_PLACES = 1024, 8


def merge(setting: Setting) -> tuple[Digit, ...]:
    """The digits: neighbouring factors are merged if one product costs no more than two.

    Each result of a mode product costs P multiply-adds and some loads, stores and loop control. The
    state of a merged digit has to fit in the first-level cache, and its panels in the second.
    """
    most = LEAST_LEVEL_1_BYTES // (setting.width * setting.bytes)
    most = most if setting.held is None else min(most, setting.held)
    panel = setting.target.shared_bytes // 2 // setting.bytes
    digits: list[Digit] = []
    # Merging starts with the last factor: a factor left over alone is then not the last digit, the
    # one with contiguous outputs.
    contractions = setting.work.contractions
    for index in reversed(range(len(contractions))):
        contracted, produced = contractions[index]
        digits.insert(
            0, Digit(contracted=contracted, produced=produced, first=index, end=index + 1)
        )
        while len(digits) > 1:
            left, right = digits[:2]
            both = Digit(
                contracted=left.contracted * right.contracted,
                produced=left.produced * right.produced,
                first=left.first,
                end=right.end,
            )
            apart = min(_separate(left, right), _separate(right, left))
            fits = max(both.contracted, both.produced) <= most
            fits = fits and both.contracted * both.produced <= panel
            if both.produced * (both.contracted + _OVERHEAD) > apart or not fits:
                break
            digits[:2] = [both]
    return tuple(digits)


def _separate(first: Digit, second: Digit) -> int:
    before = first.produced * second.contracted * (first.contracted + _OVERHEAD)
    return before + first.produced * second.produced * (second.contracted + _OVERHEAD)


def candidates(setting: Setting) -> Iterator[Candidate]:
    """All candidates, legal or not: each cut into passes, with the best ways to run each pass."""
    digits = merge(setting)
    for ranges in _cuts(digits, setting):
        shapes = shapes_of(digits, ranges)
        middle = _middle(shapes)
        yield from _of_cut(digits, shapes, _row_tile(setting, shapes, middle), False, setting)
        if setting.x_by_rows or setting.y_by_rows:
            for rows in _row_lanes(setting, middle):
                yield from _of_cut(digits, shapes, rows, True, setting)


def _of_cut(
    digits: tuple[Digit, ...], shapes: Sequence[Shape], rows: int, rows_mode: bool, setting: Setting
) -> Iterator[Candidate]:
    middle = _middle(shapes)
    # Intermediates are read line by line in an order that the hardware prefetches, so a cache
    # line's worth of vectors is counted once.
    far = residence(rows * middle * setting.bytes, setting)
    far *= setting.width * setting.bytes / CPU_LINE
    ranked = []
    for shape in shapes:
        ways = [
            with_lanes(shape, kind, lanes, rows, far, setting)
            for kind, lanes in ways_of(shape, rows if rows_mode else 0, setting)
        ]
        ranked.append(sorted(ways, key=lambda item: item[0])[:_WAYS])
    for choice in _choices(ranked):
        passes = _padded([item for _, item in choice], digits, setting)
        yield (
            sum(cycles for cycles, _ in choice),
            KronVectors(work=setting.work, digits=digits, passes=passes, row_tile=rows),
        )


def _padded(
    passes: Sequence[Pass], digits: tuple[Digit, ...], setting: Setting
) -> tuple[Pass, ...]:
    """The passes, with a cache line of padding after each run of their input if that pays.

    It pays if runs are long and have an even number of cache lines: their starts then map to few
    sets of a cache, and with an odd number to all of them.

    NOTE: with padding, 8^4 in float64, two passes, takes 0.85 of the time on Zen 3; 8^5 takes 0.92
    and 8^6 0.95 on an Emerald Rapids. Larger digits are read so often that copying them to a state
    is better: padded, 128 x 128 takes 1.6 times as long, and reading single lines at a time
    sometimes 1.4 times (Zen 3).
    """
    padded = list(passes[:1])
    for before, item in itertools.pairwise(passes):
        run, first = item.trail * setting.bytes, digits[item.products[0].digit]
        follows = item.kind is Kind.Trail and before.produced * before.trail == item.trail
        # A last product with vectors along its outputs only fills its tiles with rows of several
        # fibers.
        follows = follows and not (before.lanes > 1 and before.is_along_outputs)
        few = first.contracted <= _FEW_PLACES and item.lanes * setting.bytes >= 2 * CPU_LINE
        if follows and few and run >= _FAR_APART and run % (2 * CPU_LINE) == 0:
            item = dataclasses.replace(item, pad=CPU_LINE // setting.bytes)
        padded.append(item)
    return tuple(padded)


def _middle(shapes: Sequence[Shape]) -> int:
    """Most elements of a row between passes."""
    return max((item.lead * item.contracted * item.trail for item in shapes[1:]), default=0)


def _choices(ranked: Sequence[Sequence[Way]]) -> Iterator[list[Way]]:
    """The best way of every pass, then other ways of one pass at a time."""
    best = [ways[0] for ways in ranked]
    yield best
    for index, ways in enumerate(ranked):
        for way in ways[1:]:
            yield [*best[:index], way, *best[index + 1 :]]


def tile_status(setting: Setting) -> Status:
    """Whether some candidate can hold as much of a row in a state as the user's tile asks for."""
    if setting.held is None:
        return Status.accept()
    takes: dict[int, int] = {}
    for _, item in candidates(setting):
        size = 2 * item.state * setting.bytes
        takes[item.peak] = min(size, takes.get(item.peak, size))
    least, fullest = min(takes), _fullest(list(takes), setting.held)
    if not fullest:
        return Status.reject(
            f"Tile_N is {setting.held}, but a state holds {least} elements of a row at least;"
            f" raise threadblock_shape[1] to {least}"
        )
    most = setting.target.shared_bytes
    if fullest > least and takes[fullest] > most:
        near = max((peak for peak, size in takes.items() if size <= most), default=least)
        return Status.reject(
            f"Tile_N of {setting.held} takes {takes[fullest]} bytes for two states of {fullest}"
            f" elements of a row, and the level-2 cache has {most};"
            f" lower threadblock_shape[1] to {near}"
        )
    return Status.accept()


def judged(setting: Setting) -> list[tuple[Candidate, Status]]:
    """Every candidate, with whether it matches the user's tile.

    Tile_N is the most elements of a row in a state. Digits may not fill it exactly, so of the
    candidates that stay within it, those with the most elements are accepted.
    """
    every = list(candidates(setting))
    if setting.held is None:
        return [(item, Status.accept()) for item in every]
    fullest = _fullest([item.peak for _, item in every], setting.held)
    return [(item, _keeps_to(item[1].peak, setting.held, fullest)) for item in every]


def _fullest(peaks: Sequence[int], held: int) -> int:
    return max((peak for peak in peaks if peak <= held), default=0)


def _keeps_to(peak: int, held: int, fullest: int) -> Status:
    if peak == fullest:
        return Status.accept()
    change = "raise" if peak > held else "lower"
    return Status.reject(
        f"holds {peak} elements of a row, and {fullest} fill a Tile_N of {held} best;"
        f" {change} threadblock_shape[1] to {peak}"
    )


def _cuts(digits: tuple[Digit, ...], setting: Setting) -> list[tuple[range, ...]]:
    """The ways to cut the digits into one range for each pass, in the order of the passes."""
    count = len(digits)
    line = max(CPU_LINE, setting.width * setting.bytes)
    budgets = [
        LEAST_LEVEL_1_BYTES // (2 * line),
        LEAST_LEVEL_1_BYTES // (2 * setting.bytes),
        setting.target.shared_bytes // (4 * line),
        setting.target.shared_bytes // (4 * setting.bytes),
    ]
    found: dict[tuple[range, ...], None] = {(range(count),): None}
    for budget in [*budgets, *([] if setting.held is None else [setting.held])]:
        ranges = _greedy(digits, budget)
        found[ranges] = found[ranges[::-1]] = None
    if count <= _MOST_SPLITS:
        for split in range(1, count):
            two = (range(split, count), range(split))
            found[two] = found[two[::-1]] = None
    return list(found)


def _greedy(digits: tuple[Digit, ...], budget: int) -> tuple[range, ...]:
    """The cut whose ranges, from the last digit on, have as many digits as fit in a state of
    `budget` elements."""
    ranges, end = [], len(digits)
    while end:
        start = end - 1
        while start and products_of(digits, range(start - 1, end))[1] <= budget:
            start -= 1
        ranges.append(range(start, end))
        end = start
    return tuple(ranges)


def _row_lanes(setting: Setting, middle: int) -> Iterator[int]:
    """Rows of a tile if rows are the lanes: as many as fill a few cache lines of a column, or just
    one line if more would make the intermediate larger than all caches."""
    line = max(setting.width, CPU_LINE // setting.bytes)
    if setting.rows is None and 2 * line * middle * setting.bytes > _MOST_MIDDLE:
        yield line
        return
    yield from (line, 2 * line, MOST_LINES * line) if setting.rows is None else (setting.rows,)


def _row_tile(setting: Setting, shapes: Sequence[Shape], middle: int) -> int:
    """Rows of a tile that keep the intermediate in a near cache, and all lanes busy."""
    if setting.rows is not None:
        return setting.rows
    if not middle:
        return _MOST_ROWS
    full = max(-(-setting.width // item.lead) if item.trail == 1 else 1 for item in shapes)
    return max(1, min(_MOST_ROWS, max(2 * LEAST_LEVEL_1_BYTES // (middle * setting.bytes), full)))
