"""Ways to run one pass over digits on the vectors of a CPU, and their modelled costs.

Order of digits. Contracting digit 1 (P1 -> Q1) and then 2 of a tensor with R other elements takes
R (P1 P2 Q1 + Q1 P2 Q2) multiply-adds, the other order R (P1 P2 Q2 + P1 Q1 Q2). Dividing both by
R P1 P2 Q1 Q2 shows that the first is no more than the second if 1/Q1 - 1/P1 >= 1/Q2 - 1/P2. So the
order of descending 1/Q - 1/P is best: exchanging neighbours that violate it is a gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kronop.emit.x86.planning import LEAST_VECTOR
from kronop.families.kron.x86.kron_cost import (
    BEYOND,
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
from kronop.frozen import dataclass
from kronop.machine import CPU_LINE, LEAST_LEVEL_1_BYTES

# (modelled cycles of a row, the pass).
Way = tuple[float, Pass]
# Most cache lines of the lanes if they are rows.
MOST_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a pass, before its lanes and tiles are chosen.

    Attributes:
        digits: all digits of the row.
        products: (digit, left, right) of each product of the pass.
        lead, contracted, produced, trail, peak: as in `Pass`.
        is_first, is_last: whether the pass reads X, and whether it writes Y.
    """

    digits: tuple[Digit, ...]
    products: tuple[tuple[int, int, int], ...]
    lead: int
    contracted: int
    produced: int
    trail: int
    peak: int
    is_first: bool
    is_last: bool


def shapes_of(digits: tuple[Digit, ...], ranges: tuple[range, ...]) -> list[Shape]:
    """The shapes of the passes over these ranges of digits, in order."""
    size = [digit.contracted for digit in digits]
    shapes: list[Shape] = []
    for part in ranges:
        products, peak = products_of(digits, part)
        before = math.prod(size[part.start : part.stop])
        for index in part:
            size[index] = digits[index].produced
        shapes.append(
            Shape(
                digits=digits,
                products=products,
                lead=math.prod(size[: part.start]),
                contracted=before,
                produced=math.prod(size[part.start : part.stop]),
                trail=math.prod(size[part.stop :]),
                peak=peak,
                is_first=not shapes,
                is_last=len(shapes) == len(ranges) - 1,
            )
        )
    return shapes


def products_of(
    digits: tuple[Digit, ...], part: range
) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """(digit, left, right) of a pass's products in the best order, and the most elements that a
    state holds."""
    size = {index: digits[index].contracted for index in part}
    peak = math.prod(size.values())
    products = []
    for index in sorted(part, key=lambda item: (-digits[item].priority, -item)):
        left = math.prod(size[item] for item in part if item < index)
        right = math.prod(size[item] for item in part if item > index)
        products.append((index, left, right))
        size[index] = digits[index].produced
        peak = max(peak, math.prod(size.values()))
    return tuple(products), peak


def ways_of(shape: Shape, rows: int, setting: Setting) -> Iterator[tuple[Kind, int]]:
    """(kind, lanes) of the ways to consider for a pass; if `rows` is not 0, lanes that are rows are
    so many."""
    if rows:
        bound = MOST_LINES * max(setting.width, CPU_LINE // setting.bytes)
        yield Kind.Rows, min(bound, math.ceil(rows / setting.width) * setting.width)
        return
    if shape.trail > 1:
        line = max(setting.width, CPU_LINE // setting.bytes)
        most = dict.fromkeys(max(setting.width, count * line) for count in (1, 2, 4, 8))
        lanes = dict.fromkeys(_evenly(shape.trail, limit, setting.width) for limit in most)
        yield from ((Kind.Trail, count) for count in lanes)
        return
    yield from ((Kind.RowsAndLead, lanes) for lanes in (setting.width, 2 * setting.width))
    if all(
        (shape.digits[index].produced if right == 1 else right) * setting.bytes >= LEAST_VECTOR
        for index, _, right in shape.products
    ):
        fit = LEAST_LEVEL_1_BYTES // 4 // (shape.peak * setting.bytes)
        yield from ((Kind.Whole, lanes) for lanes in {1, max(1, min(shape.lead, fit))})


def _evenly(count: int, most: int, width: int) -> int:
    """Lanes of a block, in whole vectors and at most `most`, that divide `count` into about equal
    blocks; at most `count`, unless that is less than a vector."""
    each = math.ceil(count / math.ceil(count / most))
    return min(math.ceil(each / width), max(1, count // width)) * width


def _tiled(
    shape: Shape, kind: Kind, lanes: int, keeps: bool, setting: Setting
) -> tuple[tuple[Product, ...], float]:
    """(products, cycles of a block); with `keeps`, products overwrite their operands if
    possible."""
    digits, products = shape.digits, list[Product]()
    arithmetic = 0.0
    for index, left, right in shape.products:
        digit = digits[index]
        # The first product reads its operands from elsewhere, so it can't overwrite them. Tiles
        # with vectors along the outputs overlap at a row's end, so they can't either.
        stays = keeps and bool(products) and digit.contracted == digit.produced
        stays = stays and not (kind is Kind.Whole and right == 1)
        holding = _tiles(digit, kind, left, right, lanes, True, setting) if stays else []
        every = holding or _tiles(digit, kind, left, right, lanes, False, setting)
        tile, cycles = min(every, key=lambda item: item[1])
        products.append(
            Product(digit=index, left=left, right=right, tile=tile, in_place=bool(holding))
        )
        arithmetic += cycles + CALL
    # Data that is only read or written once takes cache space too, hence 1.5 states for one. The
    # last product mostly writes its results directly, so two products need one state. If lanes are
    # strided, the cache lines that they are read from and written to have to stay near as well.
    straight = len(products) <= 2 and kind in (Kind.Whole, Kind.Trail)
    states = 1.5 if straight or all(product.in_place for product in products[1:]) else 2
    parts = states if kind is Kind.Whole else states + 2
    level = residence(parts * shape.peak * lanes * setting.bytes, setting)
    moved = sum(_moved(item, digits[item.digit], level) for item in products)
    return tuple(products), arithmetic + moved * lanes / setting.width * level


def _moved(product: Product, digit: Digit, level: float) -> int:
    """Numbers that a product reads from the state's level of the caches, or writes there.

    Tiles of the next outputs read the same operands again. They are still near, unless the state
    exceeds the near caches and the operands are runs of it, far apart: runs whose distance is a
    power of two map to few sets of a cache.

    NOTE: two factors of 512 x 512 in float64 and of 1024 x 1024 in float32, in one pass: 20 and 39
    GFLOP/s with whole fibers, 3 and 2 with lanes of rows; in two passes 33 and 74. NumPy's two
    matrix products: 28 and 70 (one thread of a Zen 3, 512 KB of level-2 cache).
    """
    reads = 1
    if product.right > 1 and level >= BEYOND:
        reads = math.ceil(digit.produced / product.tile.rows)
    return product.left * product.right * (digit.contracted * reads + digit.produced)


def _tiles(
    digit: Digit, kind: Kind, left: int, right: int, lanes: int, whole: bool, setting: Setting
) -> list[tuple[Tile, float]]:
    """The possible tiles of a product, each with the cycles of a block; `whole` is as for
    `lane_tile`."""
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


def with_lanes(
    shape: Shape, kind: Kind, lanes: int, rows: int, far: float, setting: Setting
) -> Way:
    """The pass with `lanes` lanes; `far`: cycles of a vector in an intermediate between passes."""
    products, block = min(
        (_tiled(shape, kind, lanes, keeps, setting) for keeps in (False, True)),
        key=lambda item: item[1],
    )
    lead, trail = shape.lead, shape.trail
    ends = (shape.is_first, setting.x_by_rows), (shape.is_last, setting.y_by_rows)
    read, write = (
        transfer(kind, lanes, lead, trail, *end, setting, writes) + (0.0 if end[0] else far)
        for end, writes in zip(ends, (False, True), strict=True)
    )
    short, ragged = _incomplete(shape, kind, lanes, rows, setting)
    read, write = read + short, write + ragged
    block += (shape.contracted * read + shape.produced * write) * lanes / setting.width
    made = Pass(
        kind=kind,
        products=products,
        lead=shape.lead,
        contracted=shape.contracted,
        produced=shape.produced,
        trail=shape.trail,
        peak=shape.peak,
        lanes=lanes,
    )
    return block * _blocks(shape, kind, lanes, rows, setting), made


def _incomplete(
    shape: Shape, kind: Kind, lanes: int, rows: int, setting: Setting
) -> tuple[float, float]:
    """Cycles that incomplete blocks add to (loading, storing) a vector, because they access single
    numbers. The last block still loads whole vectors, because it overlaps the previous one."""
    count = {Kind.Trail: shape.trail, Kind.Rows: min(rows, setting.typical_rows)}.get(kind, lanes)
    single = setting.width * SINGLE
    if count < lanes:
        return single, single
    return 0.0, single / math.ceil(count / lanes) if count % lanes else 0.0


def _blocks(shape: Shape, kind: Kind, lanes: int, rows: int, setting: Setting) -> float:
    """Blocks of a pass for each row."""
    rows = min(rows, setting.typical_rows)
    if kind is Kind.Whole:
        return shape.lead / lanes
    if kind is Kind.Trail:
        return shape.lead * -(-shape.trail // lanes)
    if kind is Kind.RowsAndLead:
        return -(-rows * shape.lead // lanes) / rows
    return shape.lead * shape.trail * -(-rows // lanes) / rows
