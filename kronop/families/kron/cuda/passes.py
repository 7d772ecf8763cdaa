"""Splitting a Kronecker matmul into passes: candidates, legality, cost, best.

A pass takes a contiguous group of digits: on a tile in shared memory, or, for one digit that is too
large for that, as a tiled contraction. Fewer passes mean less traffic; a group must fit the chip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.emit.cuda import operands
from kronop.families.kron.cuda import few_rows, half, pass_cost, tile
from kronop.families.kron.cuda.pass_choice import (
    MOST_VARIANTS,
    Choice,
    cheapest_choice,
    every_choice,
    is_possible,
)
from kronop.families.kron.cuda.shapes import Ends, PassShape, Shape, shrinking
from kronop.families.kron.cuda.tile import TileShape
from kronop.families.kron.cuda.tiles import Key
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.target import Target

# Ways to group digits that the tuner may choose from.
_MOST_GROUPINGS = 4

Groups = tuple[tuple[int, int], ...]
# Ways to run a pass, the cheapest first, or the reason why there is none.
_Judge = Callable[[Key, PassShape, Ends, Target, int | None], "tuple[tuple[Choice, ...], Status]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of a plan: digits [first, first + len(shape.group))."""

    first: int
    shape: PassShape
    ends: Ends
    choice: Choice


def ends_of(description: KronMatmulDescription) -> Ends:
    """What the operation as a whole reads and writes."""
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


def split(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> tuple[tuple[Pass, ...], tuple[tuple[str, str], ...]]:
    """The passes in launch order, and what was rejected; no passes where nothing fits.

    Those for `rows` rows are those for many, unless others gain much.
    """
    rejected: list[tuple[str, str]] = []
    passes = _cheapest(description, target, None, rejected)
    if rows is not None and passes and not _are_many(description, passes, target, rows):
        few = _cheapest(description, target, rows, [])
        key = Key(description)

        def cost(way: tuple[Pass, ...]) -> float:
            return sum(
                pass_cost.cost(key, item.shape, item.ends, item.choice.tile, target, rows)
                for item in way
            )

        took, least = cost(passes), cost(few)
        if few and took > operands.GAIN_OF_FEW_ROWS * least:
            passes = few
    return passes, tuple(rejected)


def _are_many(
    description: KronMatmulDescription, passes: tuple[Pass, ...], target: Target, rows: int
) -> bool:
    """Whether rows beyond these change nothing for any of the passes."""
    return all(
        isinstance(item.choice.tile, TileShape)
        and few_rows.is_many(
            few_rows.tiles_of(rows, item.shape, item.ends, item.choice.tile),
            pass_cost.blocks(Key(description), item.shape, item.choice.tile, target),
            target,
        )
        for item in passes
    )


def _cheapest(
    description: KronMatmulDescription,
    target: Target,
    rows: int | None,
    rejected: list[tuple[str, str]],
) -> tuple[Pass, ...]:
    """The passes that cost least.

    Only passes that the best way so far takes are judged: the others count with the least that they
    could cost, until a way whose passes were all judged is still the best.
    """
    windows = _windows(description, target, rows, rejected)
    costs = {
        place: pass_cost.least_of_pass(description.math, *windows[place], target, rows)
        for place in windows
    }
    judged: set[tuple[int, int]] = set()
    while ways := _ranked_groups(len(description.contractions), costs, 1):
        unknown = [place for place in ways[0] if place not in judged]
        if not unknown:
            options = _options(description, ways[0], target, rows, rejected, cheapest_choice)
            return tuple(item[0] for item in options)
        for place in unknown:
            costs[place] = _cost_of(description, *windows[place], target, rows)
        judged.update(unknown)
    return ()


def variants(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> list[tuple[Pass, ...]]:
    """What `split` gives, then other groups of digits and tiles of the passes by their cost."""
    found: dict[tuple[Pass, ...], float] = {}
    windows = _windows(description, target, rows, [])
    costs = {place: _cost_of(description, *windows[place], target, rows) for place in windows}
    for groups in _ranked_groups(len(description.contractions), costs, _MOST_GROUPINGS):
        options = _options(description, groups, target, rows, [], every_choice)
        # About as many for each way to group: one pass of many tiles, or few tiles of each pass.
        most = max(2, round(MOST_VARIANTS ** (1 / max(len(options), 1))))
        tiles = itertools.product(*(item[:most] for item in options))
        for passes in itertools.islice(tiles, 2 * MOST_VARIANTS) if options else ():
            found[passes] = sum(item.choice.cost for item in passes)
    best = split(description, target, rows)[0]
    found.pop(best, None)
    return [best, *sorted(found, key=lambda passes: found[passes])]


def _options(
    description: KronMatmulDescription,
    groups: Groups,
    target: Target,
    rows: int | None,
    rejected: list[tuple[str, str]],
    judge: _Judge,
) -> list[list[Pass]]:
    """For each pass in launch order its ways to run as `judge` gives them; none if one has none."""
    digits = description.contractions
    order = sorted(groups, key=lambda item: shrinking(_product(digits[item[0] : item[1]])))
    options = []
    sizes = [p for p, _ in digits]
    for index, (first, end) in enumerate(order):
        shape = PassShape(
            group=digits[first:end], left=math.prod(sizes[:first]), right=math.prod(sizes[end:])
        )
        ends = _ends(description, index == 0, index == len(order) - 1)
        choices, status = judge(Key(description), shape, ends, target, rows)
        if not choices:
            rejected.append((f"digits {first} to {end - 1}", status.reason))
            return []
        options.append(
            [Pass(first=first, shape=shape, ends=ends, choice=choice) for choice in choices]
        )
        sizes[first:end] = [q for _, q in digits[first:end]]
    return options


def _product(group: Sequence[Shape]) -> Shape:
    return math.prod(p for p, _ in group), math.prod(q for _, q in group)


def _ends(description: KronMatmulDescription, is_first: bool, is_last: bool) -> Ends:
    """Intermediates are dense and keep the order of X."""
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
    """The type of intermediates: the accumulator's; or what the tensor cores will round it to."""
    math = description.math
    rounds = operands.splits_of(math) is not None and math.element_a.bytes == half.BYTES
    return math.element_a if rounds else math.element_accumulator


def _windows(
    description: KronMatmulDescription,
    target: Target,
    rows: int | None,
    rejected: list[tuple[str, str]],
) -> dict[tuple[int, int], tuple[PassShape, Ends]]:
    """Every run of digits [first, end) that a pass can take, larger ones after smaller ones."""
    digits, key = description.contractions, Key(description)
    found: dict[tuple[int, int], tuple[PassShape, Ends]] = {}
    refused: dict[tuple[int, int], tuple[PassShape, Ends]] = {}
    after = [math.prod(p for p, _ in digits[index:]) for index in range(len(digits) + 1)]
    for end in range(1, len(digits) + 1):
        for first in range(end - 1, max(-1, end - 1 - tile.MOST_FACTORS), -1):
            ends = ends_of(description)
            # Many rows need no others; columns that are rows of X stand beside all other digits.
            left = (
                1
                if rows is None and not ends.source_by_rows
                else math.prod(p for p, _ in digits[:first])
            )
            shape = PassShape(group=digits[first:end], left=left, right=after[end])
            if end - first < len(digits):
                # Another pass reads what this one writes, or wrote what it reads.
                ends = replace(ends, output=_between(description))
            if is_possible(key, shape, ends, target, rows):
                found[first, end] = shape, ends
                continue
            refused[first, end] = shape, ends
            # A larger group wants no less of anything.
            if end - first > 1:
                break
    largest = sorted(refused, key=lambda place: place[0] - place[1])[:4]
    names = [(f"digits {first} to {end - 1} in one pass", (first, end)) for first, end in largest]
    if not _ranked_groups(len(digits), dict.fromkeys(found, 0.0), 1):
        # The reason that counts is why some digit cannot even stand alone.
        alone = next(place for place in refused if place[1] - place[0] == 1)
        names.append((f"digit {alone[0]} alone", alone))
    rejected += [
        (name, every_choice(key, *refused[place], target, rows)[1].reason) for name, place in names
    ]
    return found


def _ranked_groups(digits: int, costs: Mapping[tuple[int, int], float], most: int) -> list[Groups]:
    """The cheapest cuts of the digits into groups: dynamic programming over the last group."""
    best: list[list[tuple[float, Groups]]] = [[(0.0, ())]]
    for end in range(1, digits + 1):
        found = [
            (cost + costs[first, end], (*groups, (first, end)))
            for first in range(end - 1, -1, -1)
            if (first, end) in costs
            for cost, groups in best[first]
        ]
        best.append(sorted(found, key=lambda item: item[0])[:most])
    return [groups for _, groups in best[-1]]


def _cost_of(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    target: Target,
    rows: int | None,
) -> float:
    return cheapest_choice(Key(description), shape, ends, target, rows)[0][0].cost
