"""Splitting a Kronecker matmul into passes: candidates, legality, cost, best.

A pass takes a contiguous group of digits: on a tile in shared memory, or, for one digit that is too
large for that, as a tiled contraction. Fewer passes mean less traffic; a group must fit the chip.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.emit.cuda import contract_step, operands
from kronop.emit.cuda.cheapest import ROUNDED, cheapest
from kronop.emit.cuda.contract import ContractTile
from kronop.emit.cuda.contract_cost import SIMT_OVERHEAD
from kronop.emit.cuda.contract_mma import ContractMmaTile
from kronop.families.kron.cuda import (
    contract_pass,
    few_rows,
    half,
    mma,
    mma_cost,
    mma_resources,
    tile,
    tiles,
)
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.shapes import Ends, PassShape, Shape, multiply_adds, shrinking
from kronop.families.kron.cuda.tile import TileShape
from kronop.families.kron.cuda.tiles import Key
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.target import Target

# NOTE: one H200 copies 4.28 TB/s and does about 25 T multiply-adds/s in float32: 0.17 bytes each.
_BYTES_OF_MULTIPLY_ADD = 0.17
# What of the shorter one of memory and arithmetic is not hidden by the other, where blocks overlap.
_LEAST_EXPOSED = 0.4
_GOOD_RUN_BYTES = 64
_WHOLE_LINES = 128
# What the tuner may choose from: ways to group digits, and about so many tilings of each.
_MOST_GROUPINGS = 4
_MOST_VARIANTS = 32
# NOTE: costs are no better than that; of staged tiles within it the smallest was fastest in
# float32: 1024 x 8^6 took 1.13 ms with tiles of 1 x 64 x 64, 1.25 with those of 2 (in float64 64^3
# it was not: 1.29 against 1.14).
_AS_GOOD = 1.01
# A digit from which on few rows may go through a contraction.
_LEAST_OF_FEW = 64
_DIVISIBLE = math.lcm(*range(1, 65))

Groups = tuple[tuple[int, int], ...]
# Ways to run a pass, the cheapest first, or the reason why there is none.
_Judge = Callable[[Key, PassShape, Ends, Target, int | None], "tuple[tuple[Choice, ...], Status]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one pass runs: a tile of one of the kernels.

    The cost is in bytes per element of X; where rows are counted, in cycles of the whole pass.
    """

    tile: TileShape | MmaTile | contract_step.Tile
    cost: float = field(compare=False)


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
        took, least = (
            sum(_cost(key, item.shape, item.ends, item.choice.tile, target, rows) for item in way)
            for way in (passes, few)
        )
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
            _blocks(Key(description), item.shape, item.choice.tile, target),
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
    costs = {place: _floor(description, *windows[place], target, rows) for place in windows}
    judged: set[tuple[int, int]] = set()
    while ways := _ranked_groups(len(description.contractions), costs, 1):
        unknown = [place for place in ways[0] if place not in judged]
        if not unknown:
            options = _options(description, ways[0], target, rows, rejected, _cheapest_choice)
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
        options = _options(description, groups, target, rows, [], _choices)
        # About as many for each way to group: one pass of many tiles, or few tiles of each pass.
        most = max(2, round(_MOST_VARIANTS ** (1 / max(len(options), 1))))
        tiles = itertools.product(*(item[:most] for item in options))
        for passes in itertools.islice(tiles, 2 * _MOST_VARIANTS) if options else ():
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
            if _may(key, _seen(shape, ends, rows), ends, target, rows):
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
        (name, choose(description, *refused[place], target, rows)[1].reason)
        for name, place in names
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
    return _cheapest_choice(Key(description), shape, ends, target, rows)[0][0].cost


def _floor(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    target: Target,
    rows: int | None,
) -> float:
    """What no tile costs less than, in the unit of `_cost`: its traffic, and where there are no
    tensor cores its arithmetic."""
    traffic = _traffic(shape, ends)
    if operands.splits_of(description.math) is None:
        size = description.math.element_accumulator.bytes
        traffic = _least_overlapped(traffic, _arithmetic(shape, size))
    traffic *= ROUNDED
    if rows is None:
        return traffic
    elements = rows * shape.columns_in / target.cores
    return few_rows.CYCLES_OF_CALL + traffic * few_rows.CYCLES_OF_A_BYTE * elements / 128


def choose(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    target: Target,
    rows: int | None = None,
) -> tuple[Choice | None, Status]:
    """The cheapest way to run a pass, or the reason why there is none."""
    choices, status = _choices(Key(description), shape, ends, target, rows)
    return (choices[0] if choices else None), status


def _choices(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    return _ways(key, _seen(shape, ends, rows), ends, target, rows)


def _seen(shape: PassShape, ends: Ends, rows: int | None) -> PassShape:
    """The pass as its tiles see it: all that so many digits lie behind it, they see as the least of
    these, so that it is judged once.

    Tiles of columns ask which sizes up to 64 divide them, and what part of the last tile is there:
    of multiples of 64, all of it. (A single digit may be a contraction, which counts them.)
    """
    if rows is not None or ends.source_by_rows or len(shape.group) == 1 or shape.right % 64:
        return shape
    return replace(shape, right=math.gcd(shape.right, _DIVISIBLE))


@functools.lru_cache(maxsize=4096)
def _ways(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    found, status = [], Status.reject("no tile")
    for candidate, told in _tried(key, shape, ends, target, rows):
        if told and candidate is not None:
            found.append(candidate)
        status = told
    accumulator = key.math.element_accumulator
    choices = [
        Choice(tile=item, cost=_cost(key, shape, ends, item, target, rows)) for item in found
    ]
    return _ranked(choices, accumulator), Status.accept() if found else status


def _cheapest_choice(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    """The first of `_choices` alone."""
    # A single digit may be a contraction, which is found by other rules.
    if len(shape.group) == 1 or not _may(key, _seen(shape, ends, rows), ends, target, rows):
        return _choices(key, shape, ends, target, rows)
    return (_least(key, _seen(shape, ends, rows), ends, target, rows),), Status.accept()


@functools.lru_cache(maxsize=4096)
def _least(key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None) -> Choice:
    """The cheapest way to run a pass that has one: only tiles that may cost least are judged."""
    accumulator, splits = key.math.element_accumulator, operands.splits_of(key.math)
    offered: list[TileShape] = []
    if splits is not None:
        offered += (
            item
            for item in tiles.mma_tiles(key, shape, ends, accumulator, rows is not None)
            if mma_resources.serves(mma.merge(shape, item.merged), item, accumulator, target)
        )
    if splits is None or key.tile is None:
        offered += tiles.simt_tiles(key, shape, ends, accumulator)

    def cost(item: TileShape) -> float | None:
        may = _may_run(key, shape, ends, item, target)
        return _cost(key, shape, ends, item, target, rows) if may else None

    found = cheapest(
        offered,
        lambda item: _floor_of_tile(key, shape, ends, item, bool(splits), target, rows),
        cost,
        slack=_AS_GOOD,
    )
    return _ranked([Choice(tile=item, cost=took) for took, item in found], accumulator)[0]


def _may_run(
    key: Key, shape: PassShape, ends: Ends, candidate: TileShape, target: Target
) -> Status:
    if isinstance(candidate, MmaTile):
        splits = bool(operands.splits_of(key.math))
        return _fits_mma(key, shape, ends, candidate, splits, target)
    return _fits(key, shape, ends, candidate, key.math.element_accumulator, target)


@functools.lru_cache(maxsize=4096)
def _may(key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None) -> bool:
    """Whether there is any way to run a pass: a small part of what all of them take to judge."""
    return any(told for _, told in _tried(key, shape, ends, target, rows))


def _tried(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> Iterator[tuple[TileShape | contract_step.Tile | None, Status]]:
    """Tiles with whether they can run a pass; where none can, the last reason is that to give."""
    accumulator = key.math.element_accumulator
    splits = operands.splits_of(key.math)
    phases, status = False, Status.reject("no tile")
    if splits is not None:
        for candidate in tiles.mma_tiles(key, shape, ends, accumulator, rows is not None):
            status = _may_run(key, shape, ends, candidate, target)
            phases = phases or bool(status)
            yield candidate, status
    # A tile names its instruction: no kernel for other cores stands in for it.
    simt = splits is None or key.tile is None
    for shape_of_tile in tiles.simt_tiles(key, shape, ends, accumulator) if simt else ():
        status = _may_run(key, shape, ends, shape_of_tile, target)
        yield shape_of_tile, status
    large = max(shape.group[0]) > mma.MOST_CONTRACTED
    # Of few rows a tile of phases, which holds whole digits, leaves multiprocessors without work.
    few = rows is not None and max(shape.group[0]) >= _LEAST_OF_FEW
    if len(shape.group) == 1 and (large or (simt and not (phases and not few))):
        work = contract_pass.contraction(key.by_columns, key.factor_alignment, shape, ends, rows)
        accepted, rejected = contract_step.candidates(
            work, key.math, target, key.tile, _MOST_VARIANTS
        )
        yield from ((item, Status.accept()) for _, item in accepted)
        if rejected and not accepted:
            yield (
                None,
                Status.reject(f"{status.reason}; as a contraction: {rejected[0][1]}"),
            )


def _ranked(found: list[Choice], accumulator: DataType) -> tuple[Choice, ...]:
    """The cheapest first; of staged tiles of columns that are as good, the smallest."""
    ranked = sorted(found, key=lambda item: item.cost)[:_MOST_VARIANTS]
    best = ranked[0].tile if ranked and accumulator.bytes == 4 else None
    if isinstance(best, MmaTile) and best.columns > 1 and best.staged_in:
        alike = {
            place: item.tile
            for place, item in enumerate(ranked)
            if item.cost <= _AS_GOOD * ranked[0].cost
            and isinstance(item.tile, MmaTile)
            and replace(item.tile, rows=best.rows, columns=best.columns) == best
        }
        place = min(alike, key=lambda place: alike[place].rows * alike[place].columns)
        ranked.insert(0, ranked.pop(place))
    return tuple(ranked)


def _obeys(key: Key, shape: PassShape, ends: Ends, candidate: TileShape) -> Status:
    """Whether a pass keeps to the sizes of the description's tile."""
    if key.tile is not None:
        across = candidate.rows if ends.source_by_rows else candidate.columns
        held, most = (
            across * math.prod(max(digit) for digit in shape.group),
            key.tile.threadblock_shape[1],
        )
        if held > most:
            return Status.reject(
                f"a block holds {held} elements of a row, threadblock_shape gives {most};"
                " raise Tile_N"
            )
        if key.tile.stages != 1:
            return Status.reject(
                f"a pass over tiles of digits does not prefetch, got {key.tile.stages} stages;"
                " use stages 1"
            )
    return Status.accept()


def _fits_mma(
    key: Key, shape: PassShape, ends: Ends, candidate: MmaTile, splits: bool, target: Target
) -> Status:
    """Whether `kron_mma` can run a pass with that tile."""
    digits = mma.alone(mma.merge(shape, candidate.merged))
    accumulator = key.math.element_accumulator
    return _obeys(key, shape, ends, candidate) and mma_resources.fits(
        digits, candidate, splits, accumulator, target
    )


def _cost(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape | contract_step.Tile,
    target: Target,
    rows: int | None,
) -> float:
    """Of many rows in bytes per element of X, of `rows` rows in cycles."""
    accumulator = key.math.element_accumulator
    if isinstance(candidate, ContractTile | ContractMmaTile):
        return contract_pass.cost(key, shape, ends, candidate, target, rows)
    if isinstance(candidate, MmaTile):
        partial = _partial(shape, ends, candidate)
        splits, digits = bool(operands.splits_of(key.math)), mma.merge(shape, candidate.merged)
        cost = mma_cost.cycles(digits, ends, candidate, splits, accumulator, target, partial)
        cost /= few_rows.CYCLES_OF_A_BYTE
    else:
        cost = _tile_cost(shape, ends, candidate, accumulator, target)
    if rows is None:
        return cost
    elements = candidate.rows * candidate.columns * shape.group_in
    steady = cost * few_rows.CYCLES_OF_A_BYTE * elements / 128
    count = few_rows.tiles_of(rows, shape, ends, candidate)
    if isinstance(candidate, MmaTile):
        start, alone = mma_cost.lone(digits, ends, candidate, splits, accumulator, target)
        count, steady = count * candidate.cluster, steady / candidate.cluster
    else:
        start, alone = 0.0, steady * _blocks(key, shape, candidate, target)
    times = few_rows.TileTimes(start=start, alone=alone, steady=steady)
    return few_rows.cycles(count, times, target)


def _floor_of_tile(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape,
    splits: bool,
    target: Target,
    rows: int | None,
) -> float:
    """What `_cost` of a tile of digits is no less than, told in a fraction of the time."""
    accumulator, blocks = key.math.element_accumulator, 1
    if isinstance(candidate, MmaTile):
        partial, blocks = _partial(shape, ends, candidate), candidate.cluster
        digits = mma.merge(shape, candidate.merged)
        cost = mma_cost.least_cycles(digits, ends, candidate, splits, accumulator, target, partial)
        cost /= few_rows.CYCLES_OF_A_BYTE
    else:
        ragged = _ragged(shape, ends, candidate)
        arithmetic = _arithmetic(shape, accumulator.bytes) * ragged
        cost = _least_overlapped(_traffic(shape, ends) * ragged, arithmetic)
    cost *= ROUNDED
    if rows is None:
        return cost
    elements = candidate.rows * candidate.columns * shape.group_in
    steady = cost * few_rows.CYCLES_OF_A_BYTE * elements / 128
    count = few_rows.tiles_of(rows, shape, ends, candidate) * blocks
    times = few_rows.TileTimes(start=0.0, alone=0.0, steady=steady / blocks)
    return few_rows.cycles(count, times, target)


def _traffic(shape: PassShape, ends: Ends) -> float:
    """Bytes of memory for an element of X, and for what it produces."""
    return ends.source.bytes + ends.output.bytes * shape.group_out / shape.group_in


def _least_overlapped(memory: float, arithmetic: float) -> float:
    """What of both ordinary cores take at least, where all else is free."""
    slow, fast = max(memory, arithmetic), min(memory, arithmetic)
    return (slow + _LEAST_EXPOSED * fast) * SIMT_OVERHEAD


def _partial(shape: PassShape, ends: Ends, candidate: TileShape) -> float:
    """How much longer memory takes for short runs and for columns that do not exist."""
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = _ragged(shape, ends, candidate)
    partial = math.pow(max(1.0, _WHOLE_LINES / (run * ends.source.bytes)), 0.4)
    if candidate.columns > 1:
        bytes_of_run = candidate.columns * ends.source.bytes
        partial *= 1.15 if bytes_of_run % 32 else 1.05 if bytes_of_run <= _WHOLE_LINES else 1.0
    return partial * ragged


def _ragged(shape: PassShape, ends: Ends, candidate: TileShape) -> float:
    """How much more tiles hold than there is, across the digits around the group."""
    if ends.source_by_rows:
        exist, size = shape.left * shape.right, candidate.rows
    else:
        exist, size = shape.right, candidate.columns
    return operands.cover(exist, size) * size / exist


def _fits(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape,
    accumulator: DataType,
    target: Target,
) -> Status:
    return _obeys(key, shape, ends, candidate) and tile.fits(shape, candidate, accumulator, target)


def _tile_cost(
    shape: PassShape, ends: Ends, candidate: TileShape, accumulator: DataType, target: Target
) -> float:
    """Time in bytes per element of X: traffic, arithmetic, and what does not overlap."""
    x, y = ends.source.bytes, ends.output.bytes * shape.group_out / shape.group_in
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = _ragged(shape, ends, candidate)
    partial = math.sqrt(max(1.0, _GOOD_RUN_BYTES / (run * ends.source.bytes)))
    if candidate.columns > 1 and candidate.columns * ends.source.bytes % 32:
        partial *= 1.15
    vectors = tile.vectors(shape, ends, candidate)
    narrow = 1 + 0.02 * sum(operands.VECTOR_BYTES / (4 * size) for size in vectors)
    memory = (x + y) * partial * narrow
    layout = tile.layout_of(shape, candidate, accumulator)
    elements = shape.group_in * candidate.columns * candidate.rows
    factors = layout.factor_elements * 0.5 * accumulator.bytes / elements
    arithmetic = _arithmetic(shape, accumulator.bytes) * ragged
    phases = len(tile.phases_of(shape, candidate, accumulator)) * 0.6 * accumulator.bytes / 4
    blocks = _simt_blocks(shape, candidate, accumulator, target)
    resident = min(blocks * candidate.threads, 512) / 512
    # Two or more resident blocks overlap one's memory with another's arithmetic.
    exposed = 1.0 if blocks < 2 else _LEAST_EXPOSED
    slow, fast = max(memory, arithmetic + phases), min(memory, arithmetic + phases)
    return (slow + exposed * fast + factors) * (1 + 0.15 * (1 - resident)) * SIMT_OVERHEAD


def _arithmetic(shape: PassShape, accumulator_bytes: int) -> float:
    """Multiply-adds of ordinary cores, in bytes per element of X."""
    work = multiply_adds(sorted(shape.group, key=shrinking), 1, 1) / shape.group_in
    return work * _BYTES_OF_MULTIPLY_ADD * accumulator_bytes / 4


def _blocks(key: Key, shape: PassShape, candidate: TileShape, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    accumulator = key.math.element_accumulator
    if isinstance(candidate, MmaTile):
        splits, digits = bool(operands.splits_of(key.math)), mma.merge(shape, candidate.merged)
        return mma_resources.blocks_of(digits, candidate, splits, accumulator, target)
    return _simt_blocks(shape, candidate, accumulator, target)


def _simt_blocks(
    shape: PassShape, candidate: TileShape, accumulator: DataType, target: Target
) -> int:
    wanted = tile.shared_bytes(
        tile.layout_of(shape, candidate, accumulator), candidate, accumulator
    )
    registers = tile.registers(shape, accumulator)
    return operands.resident_blocks(candidate.threads, registers, wanted, target)
