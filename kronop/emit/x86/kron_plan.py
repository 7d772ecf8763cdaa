"""How a row is cut into passes on a CPU: digits, candidates, legality, cost.

Order of digits. Applying digit 1 (P1 -> Q1) and then 2 to a tensor with R other elements takes
R (P1 P2 Q1 + Q1 P2 Q2) multiply-adds, the other order R (P1 P2 Q2 + P1 Q1 Q2). Divided by
R P1 P2 Q1 Q2, the first is no more than the second where 1/Q1 - 1/P1 >= 1/Q2 - 1/P2. So the order
of descending 1/Q - 1/P is best: neighbours out of that order can be exchanged at a gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kronop.artifacts import Status
from kronop.emit.x86.planning import NEAR_BYTES, panel_elements, tile_height
from kronop.target import Target

# Vector operations beyond its multiply-adds that each result of a mode product costs.
_OVERHEAD = 3
_MOST_SPLITS = 16
_MOST_ROWS = 64


class Kind(IntEnum):
    """What the lanes of a pass are; the values are those of the header."""

    RowsAndLead = 0
    Trail = 1
    Rows = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Digit:
    """One digit as the kernel sees it: the product of factors [first, end)."""

    contracted: int
    produced: int
    first: int
    end: int

    @property
    def priority(self) -> float:
        return 1 / self.produced - 1 / self.contracted


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One digit applied inside a pass, whose state is (left, contracted, right)."""

    digit: int
    left: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One trip from memory through the states and back; columns are (lead, group, trail)."""

    kind: Kind
    products: tuple[Product, ...]
    lead: int
    group: int
    produced: int
    trail: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to serve a description.

    Attributes:
        digits: neighbouring factors, merged where that saves more than it costs.
        tiles: height of the register tile of each digit.
        passes: in order.
        vectors: vectors of lanes that a state holds.
        row_tile: rows of X that a thread takes at once.
        middle: most elements of a row between passes; 0 for a single pass.
    """

    digits: tuple[Digit, ...]
    tiles: tuple[int, ...]
    passes: tuple[Pass, ...]
    vectors: int
    row_tile: int
    middle: int

    @property
    def peak(self) -> int:
        """Most elements that a state holds for one lane."""
        return max(item.peak for item in self.passes)

    @property
    def panels(self) -> int:
        """Elements of all packed factors."""
        return sum(
            panel_elements(digit.contracted, digit.produced, tile)
            for digit, tile in zip(self.digits, self.tiles, strict=True)
        )

    def __str__(self) -> str:
        groups = [
            f"{item.kind.name} {'*'.join(str(product.digit + 1) for product in item.products)}"
            for item in self.passes
        ]
        return f"{', then '.join(groups)} (digits), {self.vectors} vectors, {self.row_tile} rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What candidates are made for.

    Attributes:
        contractions: (contracted, produced) of each factor.
        target, width, bytes: the machine, elements of its vectors, bytes of the compute type.
        x_by_rows, y_by_rows: X and Y are contiguous along rows rather than along columns.
        converts: X is not stored in the compute type.
        rows, held: the user's tile: rows, most elements of a row in a state; None where there is
            none.
    """

    contractions: tuple[tuple[int, int], ...]
    target: Target
    width: int
    bytes: int
    x_by_rows: bool
    y_by_rows: bool
    converts: bool
    rows: int | None
    held: int | None


def merge(setting: Setting) -> tuple[Digit, ...]:
    """Neighbouring factors as one digit where one product costs no more than two.

    Each mode product costs P multiply-adds and some loads, stores and loop control per result.
    A merged digit has to leave its state in the first-level cache and its panels in the second.
    """
    most = NEAR_BYTES // (setting.width * setting.bytes)
    most = most if setting.held is None else min(most, setting.held)
    panel = setting.target.shared_bytes // 2 // setting.bytes
    digits: list[Digit] = []
    for index, (contracted, produced) in enumerate(setting.contractions):
        digits.append(Digit(contracted=contracted, produced=produced, first=index, end=index + 1))
        while len(digits) > 1:
            left, right = digits[-2], digits[-1]
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
            digits[-2:] = [both]
    return tuple(digits)


def _separate(first: Digit, second: Digit) -> int:
    before = first.produced * second.contracted * (first.contracted + _OVERHEAD)
    return before + first.produced * second.produced * (second.contracted + _OVERHEAD)


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Every way that is worth a look, legal or not."""
    digits = merge(setting)
    for vectors in (1, 2):
        tiles = tuple(
            tile_height(digit.produced, vectors, setting.target.registers) for digit in digits
        )
        for ranges in _cuts(digits, setting, vectors):
            for rows_mode in (False, True) if setting.x_by_rows or setting.y_by_rows else (False,):
                passes = _passes(digits, ranges, rows_mode)
                middles = [item.lead * item.group * item.trail for item in passes[1:]]
                middle = max(middles, default=0)
                row_tile = _row_tile(setting, passes, middle, vectors)
                yield Candidate(
                    digits=digits,
                    tiles=tiles,
                    passes=passes,
                    vectors=vectors,
                    row_tile=row_tile,
                    middle=middle,
                )


def tile_status(setting: Setting) -> Status:
    """Whether some candidate holds as much of a row as the user's tile asks for."""
    if setting.held is None:
        return Status.accept()
    peaks = sorted({item.peak for item in candidates(setting)})
    least, fullest = peaks[0], _fullest(peaks, setting.held)
    if not fullest:
        return Status.reject(
            f"Tile_N is {setting.held}, but a state holds {least} elements of a row at least;"
            f" raise threadblock_shape[1] to {least}"
        )
    each, most = 2 * setting.width * setting.bytes, setting.target.shared_bytes
    if fullest > least and fullest * each > most:
        return Status.reject(
            f"Tile_N of {setting.held} takes {fullest * each} bytes for two states of {fullest}"
            f" elements of a row, and the level-2 cache has {most};"
            f" lower threadblock_shape[1] to {max(least, _fullest(peaks, most // each))}"
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
    fullest = _fullest([item.peak for item in every], setting.held)
    return [(item, _keeps_to(item.peak, setting.held, fullest)) for item in every]


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


def _cuts(digits: tuple[Digit, ...], setting: Setting, vectors: int) -> list[tuple[range, ...]]:
    """Ranges of digits in the order of their passes, without repetition."""
    count = len(digits)
    lane_bytes = 2 * setting.width * vectors * setting.bytes
    budgets = [
        NEAR_BYTES // lane_bytes,
        4 * NEAR_BYTES // lane_bytes,
        setting.target.shared_bytes // lane_bytes,
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


def _products(digits: tuple[Digit, ...], group: range) -> tuple[tuple[Product, ...], int]:
    """The digits of a group in their best order, and the most elements that are held."""
    size = {index: digits[index].contracted for index in group}
    peak = math.prod(size.values())
    products = []
    for index in sorted(group, key=lambda item: -digits[item].priority):
        left = math.prod(size[item] for item in group if item < index)
        right = math.prod(size[item] for item in group if item > index)
        products.append(Product(digit=index, left=left, right=right))
        size[index] = digits[index].produced
        peak = max(peak, math.prod(size.values()))
    return tuple(products), peak


def _passes(
    digits: tuple[Digit, ...], ranges: tuple[range, ...], rows_mode: bool
) -> tuple[Pass, ...]:
    size = [digit.contracted for digit in digits]
    passes = []
    for group in ranges:
        products, peak = _products(digits, group)
        before = math.prod(size[group.start : group.stop])
        for index in group:
            size[index] = digits[index].produced
        trail = math.prod(size[group.stop :])
        kind = Kind.RowsAndLead if group.stop == len(digits) else Kind.Trail
        passes.append(
            Pass(
                kind=Kind.Rows if rows_mode else kind,
                products=products,
                lead=math.prod(size[: group.start]),
                group=before,
                produced=math.prod(size[group.start : group.stop]),
                trail=trail,
                peak=peak,
            )
        )
    return tuple(passes)


def _row_tile(setting: Setting, passes: tuple[Pass, ...], middle: int, vectors: int) -> int:
    """Rows that keep the middle in the second-level cache and the lanes full."""
    if setting.rows is not None:
        return setting.rows
    lanes = setting.width * vectors
    if passes[0].kind is Kind.Rows or len(passes) == 1:
        return lanes if middle else max(lanes, _MOST_ROWS)
    fits = setting.target.shared_bytes // (4 * middle * setting.bytes)
    full = max(-(-lanes // item.lead) for item in passes if item.kind is Kind.RowsAndLead)
    return max(1, min(_MOST_ROWS, max(fits, full)))
