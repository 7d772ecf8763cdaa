"""Random sizes on both sides of every threshold in the planners."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.fuzz.draw import Draw

Pattern = tuple[int, int, int, int]

_SMALL = tuple(range(1, 10))
_EDGES = (7, 8, 9, 15, 16, 17, 18, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65)
_LARGE = (66, 96, 97, 100, 113, 126, 127, 128, 129, 130, 191, 192, 255, 256, 257, 300)
# Digits too large for the tile of a warp: these factors are planned as contractions.
_HUGE = (129, 130, 191, 192, 255, 256, 257, 300)
_EVEN = (8, 16, 16, 24, 32, 48, 64, 64, 96, 128, 128, 192, 256, 256)
_EQUAL = (2, 2, 3, 4, 4, 5, 7, 8, 8, 9, 16, 17, 31, 32, 33, 64, 127, 128, 130)
_LANES = (2, 3, 4, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 48, 64, 65)
# Patterns for styles that hardly any others reach: kernels that write their results in two halves,
# kernels whose last block of lanes is incomplete, and gradients with several teams.
HALVED = ((1, 128, 256, 4), (1, 192, 256, 4), (1, 96, 256, 8))
PARTIAL = ((2, 96, 16, 17), (1, 64, 16, 33), (3, 200, 16, 18))
IN_TEAMS = ((1, 192, 512, 1), (1, 192, 512, 2), (1, 576, 512, 1), (4, 576, 640, 1))
_SOME_ROWS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 256, 257, 512, 1000)
_MANY_LANES = (64, 96, 128, 192, 255, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a case's sizes.

    Attributes:
        features: features of a row, including intermediate results.
        weights: elements of one weight.
        elements: elements of X or of a result.
        products: multiplications of a call.
    """

    features: int
    weights: int
    elements: int
    products: int


CPU = Limits(features=5_000, weights=60_000, elements=150_000, products=10_000_000)
# For products on a GPU with NumPy tensors, since NumPy on the CPU computes their reference.
STAGED = Limits(features=270_000, weights=4_000_000, elements=300_000, products=50_000_000)
GPU = Limits(features=270_000, weights=4_000_000, elements=12_000_000, products=6_000_000_000)


def _size(draw: Draw) -> int:
    return draw.pick(draw.weighed({_SMALL: 5, _EDGES: 4, _LARGE: 3}))


def factors(draw: Draw, limits: Limits) -> tuple[tuple[int, int], ...]:
    """(rows, columns) of the factors of a Kronecker product."""
    kind = draw.weighed({"equal": 4, "large": 5, "mixed": 4, "single": 2})
    if kind == "equal":
        size = draw.pick(_EQUAL)
        most = max(1, int(math.log(limits.features, size) + 1e-9))
        return ((size, size),) * draw.whole(min(2, most), min(most, 12))
    if kind == "single":
        wanted = [(_size(draw), _size(draw))]
    elif kind == "large":
        large = draw.pick(_HUGE if draw.chance(0.6) else _LARGE)
        wanted = [draw.pick(((large, large), (large, _size(draw)), (_size(draw), large)))]
        wanted += [_shape(draw, draw.pick((_SMALL, _SMALL, _EDGES))) for _ in range(2)]
        wanted = draw.shuffled(wanted[: draw.whole(2, 3)])
    else:
        wanted = [
            _shape(draw, draw.pick((_SMALL, _SMALL, _EDGES))) for _ in range(draw.whole(2, 6))
        ]
    return _within(wanted, limits.features)


def _shape(draw: Draw, sizes: tuple[int, ...]) -> tuple[int, int]:
    rows = draw.pick(sizes)
    return (rows, rows) if draw.chance(0.5) else (rows, draw.pick(sizes))


def _within(wanted: list[tuple[int, int]], most: int) -> tuple[tuple[int, int], ...]:
    """The largest factors whose product, and all intermediate results, have at most `most`
    features."""
    kept: list[int] = []
    size = 1
    for index in sorted(range(len(wanted)), key=lambda index: -max(wanted[index])):
        if not kept or size * max(wanted[index]) <= most:
            kept.append(index)
            size *= max(wanted[index])
    return tuple(wanted[index] for index in sorted(kept))


def pattern(draw: Draw, limits: Limits) -> Pattern:
    """(a, b, c, d) of a Kronecker-sparse factor."""
    kind = draw.weighed({"small": 2, "lanes": 4, "blocks": 3, "even": 5, "many": 2, "any": 2})
    a = draw.weighed({1: 4, 2: 3, 3: 1, 4: 1, 6: 1})
    if kind == "small":
        found = (a, draw.pick(_SMALL), draw.pick(_SMALL), draw.pick(_SMALL))
    elif kind == "lanes":
        b = draw.pick((8, 16, 32, 64)) + draw.whole(-1, 1)
        c = draw.pick((63, 64, 64, 65, 96, 96, 97, 128, 192, 200))
        found = (a, *draw.pick(((b, c), (b, c), (c, b))), draw.pick(_LANES))
    elif kind == "blocks":
        found = (a, _size(draw), _size(draw), 1)
    elif kind == "even":
        lanes = draw.weighed({1: 6, 2: 2, 4: 2, 8: 2, 16: 2, 64: 1})
        found = (a, draw.pick(_EVEN), draw.pick(_EVEN), lanes)
    elif kind == "many":
        small = draw.pick((_SMALL, _EDGES, _EVEN))
        found = (a, draw.pick(small), draw.pick(small), draw.pick(_MANY_LANES))
    else:
        found = (a, _size(draw), _size(draw), draw.pick((*_SMALL, *_LANES)))
    return _shrunk(found, limits)


def _shrunk(found: Pattern, limits: Limits) -> Pattern:
    """The pattern with fewer blocks, then lanes, then outputs, until it is within the limits."""
    a, b, c, d = found
    while a * max(b, c) * d > limits.features or a * b * c * d > limits.weights:
        if a > 1:
            a = 1
        elif d > 2:
            d = (d + 1) // 2
        else:
            b, c = (b + 1) // 2, (c + 1) // 2
    return a, b, c, d


def chain(draw: Draw, limits: Limits) -> tuple[Pattern, ...]:
    """The patterns of a chain of factors, in the order in which they are applied."""
    if draw.chance(0.5):
        return _butterfly(draw, limits)
    patterns = [pattern(draw, limits)]
    for _ in range(draw.whole(1, 2)):
        a, b, _, d = patterns[-1]
        features = a * b * d
        lanes = draw.pick([size for size in range(1, 130) if features % size == 0])
        rest = features // lanes
        blocks = [size for size in range(1, rest + 1) if rest % size == 0 and rest // size <= 300]
        groups = draw.pick(blocks)
        c = rest // groups
        b = _size(draw)
        while groups * b * lanes > limits.features or groups * b * c * lanes > limits.weights:
            b = (b + 1) // 2
            if b == 1:
                break
        patterns.append((groups, b, c, lanes))
    return tuple(patterns)


def _butterfly(draw: Draw, limits: Limits) -> tuple[Pattern, ...]:
    """Monarch and butterfly factors: blocks of neighboring features, then of distant ones."""
    sizes = (2, 4, 8, 16, 16, 24, 32, 32, 48, 64, 17, 31)
    while True:
        p, q, r, s = (draw.pick(sizes) for _ in range(4))
        groups = draw.pick((1, 1, 2, 3))
        # The first factor has p blocks of q features; the second combines one of each block.
        first, second = (groups * p, r, q, 1), (groups, s, p, r)
        fits = max(groups * p * max(q, r), groups * s * r) <= limits.features
        if fits and max(math.prod(first), math.prod(second)) <= limits.weights:
            break
    patterns = [first, second]
    if draw.chance(0.3):
        patterns.append((1, draw.pick((3, 16, 33)), groups * s, r))
    if math.prod(patterns[-1]) > limits.weights:
        patterns = patterns[:2]
    return tuple(patterns)


def rows(draw: Draw, features: int, products: int, limits: Limits, tidy: bool) -> int:
    """The number of rows of a call: one, a few, or as many as the limits allow.

    `features` and `products` are those of one row. Tidy calls have many rows, usually a multiple
    of 64.
    """
    most = max(1, min(limits.elements // max(1, features), limits.products // max(1, products)))
    kind = draw.weighed({"one": 3, "few": 3, "some": 4, "many": 4})
    if tidy:
        kind = draw.weighed({"some": 1, "many": 4})
    if kind == "one":
        return 1
    if kind == "few":
        return min(most, draw.whole(2, 12))
    if kind == "some":
        return min(most, draw.pick(_SOME_ROWS))
    count = min(most, draw.pick((1000, 5000, 30_000, 100_000)))
    # If rows are the contiguous dimension, their number decides how wide accesses may be.
    whole = count // 64 * 64 if tidy or draw.chance(0.5) else 0
    return whole or max(1, count - draw.pick((0, 1, 4, 7, 63)))


def split_rows(draw: Draw, count: int, most: int) -> tuple[int, ...]:
    """One to three dimensions with about this many rows together."""
    if draw.chance(0.75) or most == 1:
        return (count,)
    outer = draw.pick((1, 2, 3, 5))
    if most == 2 or draw.chance(0.6):
        return (outer, max(1, count // outer))
    return (outer, 2, max(1, count // outer // 2))
