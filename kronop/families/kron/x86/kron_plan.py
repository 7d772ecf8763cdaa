"""How a row is cut into passes on a CPU: digits, candidates, legality.

Order of digits. Applying digit 1 (P1 -> Q1) and then 2 to a tensor with R other elements takes
R (P1 P2 Q1 + Q1 P2 Q2) multiply-adds, the other order R (P1 P2 Q2 + P1 Q1 Q2). Divided by
R P1 P2 Q1 Q2, the first is no more than the second where 1/Q1 - 1/P1 >= 1/Q2 - 1/P2. So the order
of descending 1/Q - 1/P is best: neighbours out of that order can be exchanged at a gain.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from kronop.artifacts import Status
from kronop.emit.x86.planning import LEAST_VECTOR, LINE, NEAR_BYTES
from kronop.families.kron.x86.kron_cost import (
    CALL,
    SINGLE,
    lane_tile,
    pair_tile,
    residence,
    row_tile,
    transfer,
    unroll_of,
)
from kronop.families.kron.x86.kron_parts import Digit, Kind, Pass, Product, Setting, Tile
from kronop.families.kron.x86.kron_vectors import KronVectors

# Vector operations beyond its multiply-adds that each result of a mode product costs.
_OVERHEAD = 3
_MOST_SPLITS = 16
_MOST_ROWS = 64
# Ways of one pass that candidates differ in: (cycles, the pass).
_WAYS = 2
_Way = tuple[float, Pass]
# A design, and what a row should take: a ranking, no forecast.
Candidate = tuple[float, KronVectors]
_MOST_LINES = 4
_MOST_MIDDLE = 1 << 25
# Bytes of a run from which on a line between runs is little; places that are read together.
_FAR_APART, _FEW_PLACES = 1024, 8


def merge(setting: Setting) -> tuple[Digit, ...]:
    """Neighbouring factors as one digit where one product costs no more than two.

    Each mode product costs P multiply-adds and some loads, stores and loop control per result.
    A merged digit has to leave its state in the first-level cache and its panels in the second.
    """
    most = NEAR_BYTES // (setting.width * setting.bytes)
    most = most if setting.held is None else min(most, setting.held)
    panel = setting.target.shared_bytes // 2 // setting.bytes
    digits: list[Digit] = []
    # From the last factor on: the last digit has the contiguous outputs, so that it is no remnant.
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
    """Every way that is worth a look, legal or not: cuts into passes, the best ways of each."""
    digits = merge(setting)
    for ranges in _cuts(digits, setting):
        shapes = _shapes(digits, ranges)
        middle = _middle(shapes)
        yield from _of_cut(digits, shapes, _row_tile(setting, shapes, middle), False, setting)
        if setting.x_by_rows or setting.y_by_rows:
            for rows in _row_lanes(setting, middle):
                yield from _of_cut(digits, shapes, rows, True, setting)


def _of_cut(
    digits: tuple[Digit, ...],
    shapes: Sequence[_Shape],
    rows: int,
    rows_mode: bool,
    setting: Setting,
) -> Iterator[Candidate]:
    middle = _middle(shapes)
    # What is between passes comes line by line, in an order that a cache foresees.
    far = residence(rows * middle * setting.bytes, setting) * setting.width * setting.bytes / LINE
    ranked = []
    for index, shape in enumerate(shapes):
        ends = index == 0, index == len(shapes) - 1
        ways = [
            _with_lanes(shape, digits, kind, lanes, rows, ends, far, setting)
            for kind, lanes in _ways(shape, digits, rows if rows_mode else 0, setting)
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
    """The passes with a line between runs of what they read, where these are far apart and an even
    number of lines long: an odd number spreads over all sets of a cache.

    NOTE: 8^4 in float64, two passes, takes 0.85 of the time on Zen 3; 8^5 0.92 and 8^6 0.95 on an
    Emerald Rapids. Longer digits are read so often that a copy is better: 128 x 128 takes 1.6 times
    as long, and single lines at a time sometimes 1.4 (Zen 3).
    """
    padded = list(passes[:1])
    for before, item in itertools.pairwise(passes):
        run, first = item.trail * setting.bytes, digits[item.products[0].digit]
        follows = item.kind is Kind.Trail and before.produced * before.trail == item.trail
        # Rows of several groups make full tiles of a last product that is along its outputs.
        follows = follows and not (before.lanes > 1 and before.is_along_outputs)
        few = first.contracted <= _FEW_PLACES and item.lanes * setting.bytes >= 2 * LINE
        if follows and few and run >= _FAR_APART and run % (2 * LINE) == 0:
            item = dataclasses.replace(item, pad=LINE // setting.bytes)
        padded.append(item)
    return tuple(padded)


def _middle(shapes: Sequence[_Shape]) -> int:
    """Most elements of a row between passes."""
    return max((item.lead * item.group * item.trail for item in shapes[1:]), default=0)


def _choices(ranked: Sequence[Sequence[_Way]]) -> Iterator[list[_Way]]:
    """The best way of every pass, then other ways of one pass at a time."""
    best = [ways[0] for ways in ranked]
    yield best
    for index, ways in enumerate(ranked):
        for way in ways[1:]:
            yield [*best[:index], way, *best[index + 1 :]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a pass does, before it is known how: products are (digit, left, right)."""

    products: tuple[tuple[int, int, int], ...]
    lead: int
    group: int
    produced: int
    trail: int
    peak: int


def _shapes(digits: tuple[Digit, ...], ranges: tuple[range, ...]) -> list[_Shape]:
    size = [digit.contracted for digit in digits]
    shapes = []
    for group in ranges:
        products, peak = _products(digits, group)
        before = math.prod(size[group.start : group.stop])
        for index in group:
            size[index] = digits[index].produced
        shapes.append(
            _Shape(
                products=products,
                lead=math.prod(size[: group.start]),
                group=before,
                produced=math.prod(size[group.start : group.stop]),
                trail=math.prod(size[group.stop :]),
                peak=peak,
            )
        )
    return shapes


def _products(
    digits: tuple[Digit, ...], group: range
) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """The digits of a group in their best order, and the most elements that are held."""
    size = {index: digits[index].contracted for index in group}
    peak = math.prod(size.values())
    products = []
    for index in sorted(group, key=lambda item: (-digits[item].priority, -item)):
        left = math.prod(size[item] for item in group if item < index)
        right = math.prod(size[item] for item in group if item > index)
        products.append((index, left, right))
        size[index] = digits[index].produced
        peak = max(peak, math.prod(size.values()))
    return tuple(products), peak


def _ways(
    shape: _Shape, digits: tuple[Digit, ...], rows: int, setting: Setting
) -> Iterator[tuple[Kind, int]]:
    """Kinds and lanes of a pass that are worth a look; lanes are `rows` where these are not 0."""
    if rows:
        bound = _MOST_LINES * max(setting.width, LINE // setting.bytes)
        yield Kind.Rows, min(bound, math.ceil(rows / setting.width) * setting.width)
        return
    if shape.trail > 1:
        line = max(setting.width, LINE // setting.bytes)
        most = dict.fromkeys(max(setting.width, count * line) for count in (1, 2, 4, 8))
        lanes = dict.fromkeys(_evenly(shape.trail, limit, setting.width) for limit in most)
        yield from ((Kind.Trail, count) for count in lanes)
        return
    yield from ((Kind.RowsAndLead, lanes) for lanes in (setting.width, 2 * setting.width))
    if all(
        (digits[index].produced if right == 1 else right) * setting.bytes >= LEAST_VECTOR
        for index, _, right in shape.products
    ):
        fit = NEAR_BYTES // 4 // (shape.peak * setting.bytes)
        yield from ((Kind.Whole, lanes) for lanes in {1, max(1, min(shape.lead, fit))})


def _evenly(count: int, most: int, width: int) -> int:
    """Lanes, whole vectors and at most `most`, that cut `count` into equal parts; no more than it
    where it fills a vector."""
    each = math.ceil(count / math.ceil(count / most))
    return min(math.ceil(each / width), max(1, count // width)) * width


def _tiled(
    shape: _Shape,
    digits: tuple[Digit, ...],
    kind: Kind,
    lanes: int,
    keeps: bool,
    setting: Setting,
) -> tuple[tuple[Product, ...], float]:
    """(products, cycles of a block); `keeps`: results stay in place wherever they may."""
    products: list[Product] = []
    arithmetic = 0.0
    for index, left, right in shape.products:
        digit = digits[index]
        # The first product reads what is elsewhere; tiles of a row's numbers overlap at its end.
        stays = keeps and bool(products) and digit.contracted == digit.produced
        stays = stays and not (kind is Kind.Whole and right == 1)
        holding = _tiles(digit, kind, left, right, lanes, True, setting) if stays else []
        every = holding or _tiles(digit, kind, left, right, lanes, False, setting)
        tile, cycles = min(every, key=lambda item: item[1])
        products.append(
            Product(digit=index, left=left, right=right, tile=tile, in_place=bool(holding))
        )
        arithmetic += cycles + CALL
    # What passes through one state takes room as well. The last product mostly writes to its place
    # at once. Where lanes are strided, what they are read from and written to is near.
    straight = len(products) <= 2 and kind in (Kind.Whole, Kind.Trail)
    states = 1.5 if straight or all(product.in_place for product in products[1:]) else 2
    parts = states if kind is Kind.Whole else states + 2
    level = residence(parts * shape.peak * lanes * setting.bytes, setting)
    moved = sum(
        item.left * item.right * (digits[item.digit].contracted + digits[item.digit].produced)
        for item in products
    )
    return tuple(products), arithmetic + moved * lanes / setting.width * level


def _tiles(
    digit: Digit, kind: Kind, left: int, right: int, lanes: int, whole: bool, setting: Setting
) -> list[tuple[Tile, float]]:
    """Tiles of a product, and cycles of its block with each; `whole` as for `lane_tile`."""
    unroll = unroll_of(digit.contracted, setting)
    machine = (setting.width, setting.bytes, setting.target.registers, unroll)
    sizes = digit.contracted, digit.produced
    if kind is Kind.Whole and right == 1:
        return [row_tile(*sizes, left * lanes, *machine)]
    extent = {Kind.Whole: right, Kind.RowsAndLead: right * lanes}.get(kind, lanes)
    found = [lane_tile(*sizes, extent, *machine, whole)]
    if kind is Kind.Whole and 2 * right == setting.width and left % 2 == 0:
        found.append(pair_tile(*sizes, setting.width, setting.target.registers, unroll, whole))
    times = {Kind.Whole: left * lanes, Kind.RowsAndLead: left}.get(kind, left * right)
    return [(item[0], item[1] * times) for item in found if item is not None]


def _with_lanes(
    shape: _Shape,
    digits: tuple[Digit, ...],
    kind: Kind,
    lanes: int,
    rows: int,
    ends: tuple[bool, bool],
    far: float,
    setting: Setting,
) -> tuple[float, Pass]:
    """(cycles of a row, the pass) with so many lanes; `ends`: whether it is the first, the last."""
    products, block = min(
        (_tiled(shape, digits, kind, lanes, keeps, setting) for keeps in (False, True)),
        key=lambda item: item[1],
    )
    read = transfer(kind, lanes, shape.lead, shape.trail, ends[0], setting.x_by_rows, setting)
    write = transfer(
        kind, lanes, shape.lead, shape.trail, ends[1], setting.y_by_rows, setting, writes=True
    )
    read, write = read + (0.0 if ends[0] else far), write + (0.0 if ends[1] else far)
    short, ragged = _incomplete(shape, kind, lanes, rows, setting)
    read, write = read + short, write + ragged
    block += (shape.group * read + shape.produced * write) * lanes / setting.width
    made = Pass(
        kind=kind,
        products=products,
        lead=shape.lead,
        group=shape.group,
        produced=shape.produced,
        trail=shape.trail,
        peak=shape.peak,
        lanes=lanes,
    )
    return block * _blocks(shape, kind, lanes, rows, setting), made


def _incomplete(
    shape: _Shape, kind: Kind, lanes: int, rows: int, setting: Setting
) -> tuple[float, float]:
    """Cycles per vector that blocks with too few lanes add to reading and to writing, which go by
    single numbers there; the last block is complete when read, for it overlaps the one before."""
    count = {Kind.Trail: shape.trail, Kind.Rows: min(rows, setting.typical_rows)}.get(kind, lanes)
    single = setting.width * SINGLE
    if count < lanes:
        return single, single
    return 0.0, single / math.ceil(count / lanes) if count % lanes else 0.0


def _blocks(shape: _Shape, kind: Kind, lanes: int, rows: int, setting: Setting) -> float:
    """Blocks of a pass, per row."""
    rows = min(rows, setting.typical_rows)
    if kind is Kind.Whole:
        return shape.lead / lanes
    if kind is Kind.Trail:
        return shape.lead * -(-shape.trail // lanes)
    if kind is Kind.RowsAndLead:
        return -(-rows * shape.lead // lanes) / rows
    return shape.lead * shape.trail * -(-rows // lanes) / rows


def tile_status(setting: Setting) -> Status:
    """Whether some candidate holds as much of a row as the user's tile asks for."""
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
    """Every candidate, and whether it does what the user's tile asks for.

    Tile_N is the most elements of a row in a state, and as much of it as digits can fill is
    used: among the candidates within it, those that hold most stay.
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
    """Ranges of digits in the order of their passes, without repetition."""
    count = len(digits)
    line = max(LINE, setting.width * setting.bytes)
    budgets = [
        NEAR_BYTES // (2 * line),
        NEAR_BYTES // (2 * setting.bytes),
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
    """Groups of as many digits as a state of `budget` elements holds, from the last digit on."""
    ranges, end = [], len(digits)
    while end:
        start = end - 1
        while start and _products(digits, range(start - 1, end))[1] <= budget:
            start -= 1
        ranges.append(range(start, end))
        end = start
    return tuple(ranges)


def _row_lanes(setting: Setting, middle: int) -> Iterator[int]:
    """Rows of a tile where they are the lanes: those of some cache lines of a column, or of
    one where more would put the middle beyond every cache."""
    line = max(setting.width, LINE // setting.bytes)
    if setting.rows is None and 2 * line * middle * setting.bytes > _MOST_MIDDLE:
        yield line
        return
    yield from (line, 2 * line, _MOST_LINES * line) if setting.rows is None else (setting.rows,)


def _row_tile(setting: Setting, shapes: Sequence[_Shape], middle: int) -> int:
    """Rows that keep the middle in a near cache and the lanes full."""
    if setting.rows is not None:
        return setting.rows
    if not middle:
        return _MOST_ROWS
    full = max(-(-setting.width // item.lead) if item.trail == 1 else 1 for item in shapes)
    return max(1, min(_MOST_ROWS, max(2 * NEAR_BYTES // (middle * setting.bytes), full)))
