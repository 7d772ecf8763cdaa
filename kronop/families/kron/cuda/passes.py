"""Splitting a Kronecker matmul into passes: candidates, legality, cost, best.

A pass contracts adjacent digits: on a tile in shared memory, or, if it is one digit
too large for a tile, as a tiled contraction. Fewer passes mean less memory traffic, but the tile
of many digits may not fit in shared memory.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.emit.cuda import operands
from kronop.families.kron.cuda import few_rows, half, pass_cost, tile
from kronop.families.kron.cuda.pass_choice import (
    MOST_VARIANTS,
    Asked,
    Choice,
    cheapest_choice,
    every_choice,
    is_possible,
)
from kronop.families.kron.cuda.pass_design import KronPass, TiledPass
from kronop.families.kron.cuda.shapes import Ends, PassShape, PassWork, product, shrinking
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.target import Target

# How many cuts of the digits into passes the tuner may choose from.
_MOST_CUTS = 4

Cut = tuple[tuple[int, int], ...]
Rejected = list[tuple[str, str]]
Windows = dict[tuple[int, int], Asked]
# Ways to run a pass, the cheapest first, or the reason why there is none.
_Judge = Callable[[Asked], "tuple[tuple[Choice, ...], Status]"]


def work_of(description: KronMatmulDescription, shape: PassShape, ends: Ends) -> PassWork:
    return PassWork(
        math=description.math,
        shape=shape,
        ends=ends,
        by_columns=(description.F.layout is RowMajor) == (description.side is Side.Right),
        factor_alignment=description.F.alignment,
    )


def ends_of(description: KronMatmulDescription) -> Ends:
    """The ends of the whole operation: X and Y."""
    right = description.side is Side.Right
    x, y = description.X, description.Y
    return Ends(
        source=x.element,
        output=y.element,
        source_alignment=x.alignment,
        output_alignment=y.alignment,
        source_by_rows=(x.layout is RowMajor) != right,
        output_by_rows=(y.layout is RowMajor) != right,
    )


@functools.lru_cache(maxsize=64)
def split(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> tuple[tuple[KronPass, ...], tuple[tuple[str, str], ...]]:
    """The passes in launch order, and (name, reason) of what was rejected.

    There are no passes if nothing fits. For `rows` rows, the passes for many rows are kept unless
    others are much faster.
    """
    rejected: Rejected = []
    passes = _cheapest(description, target, None, rejected)
    if rows is not None and passes and not all(_are_many(item, target, rows) for item in passes):
        few = _cheapest(description, target, rows, [])

        def seconds(ways: tuple[KronPass, ...]) -> float:
            return sum(pass_cost.seconds(item, rows, target) for item in ways)

        if few and operands.gains_much(seconds(few), seconds(passes)):
            passes = few
    return passes, tuple(rejected)


def _are_many(way: KronPass, target: Target, rows: int) -> bool:
    """Whether `rows` rows fill the GPU so well that the cost per row of a pass is that of many."""
    return isinstance(way, TiledPass) and few_rows.is_many(
        way.tiles(rows), way.blocks(target), target
    )


def _cheapest(
    description: KronMatmulDescription, target: Target, rows: int | None, rejected: Rejected
) -> tuple[KronPass, ...]:
    """The passes that cost least.

    Evaluating a pass is slow, so each pass starts with a lower bound of its cost. The passes of the
    cheapest cut are evaluated, the cheapest cut is searched for again, and so on: a cut that stays
    the cheapest with true costs alone is the best one.
    """
    windows = _windows(description, target, rows, rejected)
    costs = {
        place: pass_cost.least_of_pass(asked.work, target, rows) for place, asked in windows.items()
    }
    # Repeated factors give many equal passes: one evaluation serves all of them.
    alike: dict[Asked, list[tuple[int, int]]] = {}
    for place, asked in windows.items():
        alike.setdefault(asked, []).append(place)
    judged: set[tuple[int, int]] = set()
    while ways := _ranked_cuts(len(description.contractions), costs, 1):
        unknown = [place for place in ways[0] if place not in judged]
        if not unknown:
            options = _options(description, ways[0], target, rows, rejected, cheapest_choice)
            return tuple(item[0].way for item in options)
        for asked in {windows[place] for place in unknown}:
            costs |= dict.fromkeys(alike[asked], _cost_of(asked))
            judged.update(alike[asked])
    return ()


def variants(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> list[tuple[KronPass, ...]]:
    """The passes that `split` gives, then other cuts into passes and other tiles, the cheapest
    first."""
    found: dict[tuple[KronPass, ...], float] = {}
    windows = _windows(description, target, rows, [])
    costs = {place: _cost_of(asked) for place, asked in windows.items()}
    for cut in _ranked_cuts(len(description.contractions), costs, _MOST_CUTS):
        options = _options(description, cut, target, rows, [], every_choice)
        # Every cut gets about as many variants: a cut into more passes gets fewer tiles for each.
        most = max(2, round(MOST_VARIANTS ** (1 / max(len(options), 1))))
        chosen = itertools.product(*(item[:most] for item in options))
        for choices in itertools.islice(chosen, 2 * MOST_VARIANTS) if options else ():
            passes = tuple(item.way for item in choices)
            found[passes] = sum(item.cost for item in choices)
    best = split(description, target, rows)[0]
    found.pop(best, None)
    return [best, *sorted(found, key=lambda passes: found[passes])]


def _options(
    description: KronMatmulDescription,
    cut: Cut,
    target: Target,
    rows: int | None,
    rejected: Rejected,
    judge: _Judge,
) -> list[list[Choice]]:
    """For each pass in launch order, the choices that `judge` finds; empty if a pass has none."""
    digits = description.contractions
    order = sorted(cut, key=lambda item: shrinking(product(digits[item[0] : item[1]])))
    options = []
    sizes = [p for p, _ in digits]
    for index, (first, end) in enumerate(order):
        shape = PassShape(
            factors=digits[first:end], left=math.prod(sizes[:first]), right=math.prod(sizes[end:])
        )
        ends = _ends(description, index == 0, index == len(order) - 1)
        work = work_of(description, shape, ends)
        choices, status = judge(Asked(work=work, given=description.tile, target=target, rows=rows))
        if not choices:
            rejected.append((f"digits {first} to {end - 1}", status.reason))
            return []
        options.append(
            [replace(item, way=replace(item.way, work=work, first=first)) for item in choices]
        )
        sizes[first:end] = [q for _, q in digits[first:end]]
    return options


def _ends(description: KronMatmulDescription, is_first: bool, is_last: bool) -> Ends:
    """The ends of one pass: X, Y, or intermediates, which are dense and have the order of X."""
    ends = ends_of(description)
    between = _between(description)
    widest = operands.vector_of(between)
    if not is_first:
        ends = replace(ends, source=between, source_alignment=widest)
    if not is_last:
        ends = replace(
            ends, output=between, output_alignment=widest, output_by_rows=ends.source_by_rows
        )
    return ends


def _between(description: KronMatmulDescription) -> DataType:
    """The type of intermediates: the accumulator's, or the 16-bit type of the operands, to which
    the next pass would round them anyway."""
    math = description.math
    rounds = operands.splits_of(math) is not None and math.element_a.bytes == half.BYTES
    return math.element_a if rounds else math.element_accumulator


def _windows(
    description: KronMatmulDescription, target: Target, rows: int | None, rejected: Rejected
) -> Windows:
    """The digits [first, end) that one pass can contract, after the passes within it."""
    digits = description.contractions
    found: Windows = {}
    refused: Windows = {}
    for end in range(1, len(digits) + 1):
        for first in range(end - 1, max(-1, end - 1 - tile.MOST_FACTORS), -1):
            work = _work_of_window(description, first, end, rows)
            asked = Asked(work=work, given=description.tile, target=target, rows=rows)
            if is_possible(asked):
                found[first, end] = asked
                continue
            refused[first, end] = asked
            # A pass of more digits needs no less memory and registers: it can't fit either.
            if end - first > 1:
                break
    largest = sorted(refused, key=lambda place: place[0] - place[1])[:4]
    names = [(f"digits {first} to {end - 1} in one pass", (first, end)) for first, end in largest]
    if not _ranked_cuts(len(digits), dict.fromkeys(found, 0.0), 1):
        # No cut into passes exists because this digit exceeds even a pass of its own.
        alone = next(place for place in refused if place[1] - place[0] == 1)
        names.append((f"digit {alone[0]} alone", alone))
    rejected += [(name, every_choice(refused[place])[1].reason) for name, place in names]
    return found


def _work_of_window(
    description: KronMatmulDescription, first: int, end: int, rows: int | None
) -> PassWork:
    """The work of a pass over these digits, for the estimate, before the other passes are known."""
    digits, ends = description.contractions, ends_of(description)
    # With many rows, the digits before the pass don't matter to the cost: 1 makes more passes
    # equal. They do if the tile's columns are the rows of X, as its rows are then other digits.
    alone = rows is None and not ends.source_by_rows
    left = 1 if alone else math.prod(p for p, _ in digits[:first])
    right = math.prod(p for p, _ in digits[end:])
    if end - first < len(digits):
        # Some other pass comes before or after this one, so an intermediate output is assumed.
        ends = replace(ends, output=_between(description))
    return work_of(description, PassShape(factors=digits[first:end], left=left, right=right), ends)


def _ranked_cuts(digits: int, costs: Mapping[tuple[int, int], float], most: int) -> list[Cut]:
    """The cheapest cuts of the digits into passes: dynamic programming over the last pass."""
    best: list[list[tuple[float, Cut]]] = [[(0.0, ())]]
    for end in range(1, digits + 1):
        found = [
            (cost + costs[first, end], first, cut)
            for first in range(end - 1, -1, -1)
            if (first, end) in costs
            for cost, cut in best[first]
        ]
        # Only cuts that are kept are built: with 70 digits, building all takes long.
        kept = heapq.nsmallest(most, found, key=lambda item: item[0])
        best.append([(cost, (*cut, (first, end))) for cost, first, cut in kept])
    return [cut for _, cut in best[-1]]


def _cost_of(asked: Asked) -> float:
    return cheapest_choice(asked)[0][0].cost
