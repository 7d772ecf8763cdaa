"""Splitting a Kronecker matmul into passes: candidates, legality, cost, best.

A pass takes a contiguous group of digits: on a tile in shared memory, or, for one digit that is too
large for that, as a tiled contraction. Fewer passes mean less traffic; a group must fit the chip.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.emit.cuda import contract_step, operands
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

Groups = tuple[tuple[int, int], ...]


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
    groupings = _ranked_groups(description, target, rows, rejected)
    if not groupings:
        return ()
    options = _options(description, groupings[0], target, rows, rejected)
    return tuple(item[0] for item in options)


def variants(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> list[tuple[Pass, ...]]:
    """What `split` gives, then other groups of digits and tiles of the passes by their cost."""
    found: dict[tuple[Pass, ...], float] = {}
    for groups in _ranked_groups(description, target, rows, []):
        options = _options(description, groups, target, rows, [])
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
) -> list[list[Pass]]:
    """For each pass in launch order its ways to run, the cheapest first; none if one has none."""
    digits = description.contractions
    order = sorted(groups, key=lambda item: shrinking(_product(digits[item[0] : item[1]])))
    options = []
    sizes = [p for p, _ in digits]
    for index, (first, end) in enumerate(order):
        shape = PassShape(
            group=digits[first:end], left=math.prod(sizes[:first]), right=math.prod(sizes[end:])
        )
        ends = _ends(description, index == 0, index == len(order) - 1)
        choices, status = _choices(Key(description), shape, ends, target, rows)
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


def _ranked_groups(
    description: KronMatmulDescription,
    target: Target,
    rows: int | None,
    rejected: list[tuple[str, str]],
) -> list[Groups]:
    """The cheapest cuts of the digits into groups: dynamic programming over the last group."""
    digits = description.contractions
    best: list[list[tuple[float, Groups]]] = [[(0.0, ())]]
    after = [math.prod(p for p, _ in digits[index:]) for index in range(len(digits) + 1)]
    reasons: dict[tuple[int, int], str] = {}
    for end in range(1, len(digits) + 1):
        found: list[tuple[float, Groups]] = []
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
            choice, status = choose(description, shape, ends, target, rows)
            if choice is None:
                reasons[first, end] = status.reason
                # A larger group wants no less of anything.
                if end - first > 1:
                    break
            else:
                found += [
                    (cost + choice.cost, (*groups, (first, end))) for cost, groups in best[first]
                ]
        best.append(sorted(found, key=lambda item: item[0])[:_MOST_GROUPINGS])
    largest = sorted(reasons.items(), key=lambda item: item[0][0] - item[0][1])[:4]
    rejected += [
        (f"digits {first} to {end - 1} in one pass", reason) for (first, end), reason in largest
    ]
    if not best[-1]:
        # The reason that counts is why some digit cannot even stand alone.
        alone = next(key for key in reasons if key[1] - key[0] == 1)
        rejected.append((f"digit {alone[0]} alone", reasons[alone]))
    return [groups for _, groups in best[-1]]


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


@functools.lru_cache(maxsize=4096)
def _choices(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    accumulator = key.math.element_accumulator
    status = Status.reject("no tile")
    found: list[TileShape | contract_step.Tile] = []
    splits = operands.splits_of(key.math)
    if splits is not None:
        status = _choose_mma(key, shape, ends, splits, target, rows, found)
    # A tile names its instruction: no kernel for other cores stands in for it.
    simt = splits is None or key.tile is None
    for shape_of_tile in tiles.simt_tiles(key, shape, ends, accumulator) if simt else ():
        fits = _fits(key, shape, ends, shape_of_tile, accumulator, target)
        if fits:
            found.append(shape_of_tile)
        elif not found:
            status = fits
    large = max(shape.group[0]) > mma.MOST_CONTRACTED
    # Of few rows a tile of phases, which holds whole digits, leaves multiprocessors without work.
    few = rows is not None and max(shape.group[0]) >= _LEAST_OF_FEW
    phases = any(isinstance(item, MmaTile) for item in found) and not few
    if len(shape.group) == 1 and (large or (simt and not phases)):
        work = contract_pass.contraction(key.by_columns, key.factor_alignment, shape, ends, rows)
        accepted, rejected = contract_step.candidates(work, key.math, target, key.tile)
        found += [item for _, item in accepted[:_MOST_VARIANTS]]
        if rejected and not accepted:
            status = Status.reject(f"{status.reason}; as a contraction: {rejected[0][1]}")
    choices = [
        Choice(tile=item, cost=_cost(key, shape, ends, item, target, rows)) for item in found
    ]
    return _ranked(choices, accumulator), Status.accept() if found else status


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


def _choose_mma(
    key: Key,
    shape: PassShape,
    ends: Ends,
    splits: bool,
    target: Target,
    rows: int | None,
    found: list[TileShape | contract_step.Tile],
) -> Status:
    """Adds the tiles that `kron_mma` can run; the last reason where there are none."""
    accumulator = key.math.element_accumulator
    status = Status.reject("no tile")
    for candidate in tiles.mma_tiles(key, shape, ends, accumulator, rows is not None):
        status = _obeys(key, shape, ends, candidate)
        digits = mma.merge(shape, candidate.merged)
        status = status and mma_resources.fits(
            mma.alone(digits), candidate, splits, accumulator, target
        )
        if status:
            found.append(candidate)
    return Status.accept() if found else status


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
    work = multiply_adds(sorted(shape.group, key=shrinking), 1, 1) / shape.group_in
    arithmetic = work * _BYTES_OF_MULTIPLY_ADD * accumulator.bytes / 4 * ragged
    phases = len(tile.phases_of(shape, candidate, accumulator)) * 0.6 * accumulator.bytes / 4
    blocks = _simt_blocks(shape, candidate, accumulator, target)
    resident = min(blocks * candidate.threads, 512) / 512
    # Two or more resident blocks overlap one's memory with another's arithmetic.
    exposed = 1.0 if blocks < 2 else 0.4
    slow, fast = max(memory, arithmetic + phases), min(memory, arithmetic + phases)
    return (slow + exposed * fast + factors) * (1 + 0.15 * (1 - resident)) * SIMT_OVERHEAD


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
