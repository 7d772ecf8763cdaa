"""How a pass of a Kronecker matmul may run: tiles of the kernels, legality, the cheapest."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contraction import choice
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.operands import splits_of
from kronop.families.kron.cuda import contract_pass, mma, mma_resources, pass_cost, tile, tiles
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.shapes import Ends, PassShape
from kronop.families.kron.cuda.tile import TileShape
from kronop.families.kron.cuda.tiles import Key
from kronop.target import Target

# About so many tilings of a pass are there for the tuner to choose from.
MOST_VARIANTS = 32
# NOTE: costs are no better than that; of staged tiles within it the smallest was fastest in
# float32: 1024 x 8^6 took 1.13 ms with tiles of 1 x 64 x 64, 1.25 with those of 2 (in float64 64^3
# it was not: 1.29 against 1.14).
_AS_GOOD = 1.01
# A digit from which on few rows may go through a contraction.
_LEAST_OF_FEW = 64
_DIVISIBLE = math.lcm(*range(1, 65))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one pass runs: a tile of one of the kernels.

    The cost is in bytes per element of X; where rows are counted, in cycles of the whole pass.
    """

    tile: TileShape | MmaTile | ContractDesign
    cost: float = field(compare=False)


def every_choice(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    return _ways(key, _seen(key, shape, ends, rows), ends, target, rows)


def _seen(key: Key, shape: PassShape, ends: Ends, rows: int | None) -> PassShape:
    """The pass as its tiles see it: all that so many digits lie behind it, they see as the least of
    these, so that it is judged once.

    Tiles of columns ask which sizes up to 64 divide them, and what part of the last tile is there:
    of multiples of 64, all of it. (A single digit may be a contraction, which counts them.)
    """
    counts = rows is not None or ends.source_by_rows or len(shape.group) == 1
    # A tile of the user's may have more columns.
    if counts or key.tile is not None or shape.right % 64:
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
        Choice(tile=item, cost=pass_cost.cost(key, shape, ends, item, target, rows))
        for item in found
    ]
    return _ranked(choices, accumulator), Status.accept() if found else status


def cheapest_choice(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> tuple[tuple[Choice, ...], Status]:
    """The first of `every_choice` alone."""
    # A single digit may be a contraction, which is found by other rules.
    if len(shape.group) == 1 or not _may(key, _seen(key, shape, ends, rows), ends, target, rows):
        return every_choice(key, shape, ends, target, rows)
    return (_least(key, _seen(key, shape, ends, rows), ends, target, rows),), Status.accept()


@functools.lru_cache(maxsize=4096)
def _least(key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None) -> Choice:
    """The cheapest way to run a pass that has one: only tiles that may cost least are judged."""
    accumulator, splits = key.math.element_accumulator, splits_of(key.math)
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
        return pass_cost.cost(key, shape, ends, item, target, rows) if may else None

    found = cheapest(
        offered,
        lambda item: pass_cost.least(key, shape, ends, item, bool(splits), target, rows),
        cost,
        slack=_AS_GOOD,
    )
    return _ranked([Choice(tile=item, cost=took) for took, item in found], accumulator)[0]


def _may_run(
    key: Key, shape: PassShape, ends: Ends, candidate: TileShape, target: Target
) -> Status:
    if isinstance(candidate, MmaTile):
        splits = bool(splits_of(key.math))
        return _fits_mma(key, shape, ends, candidate, splits, target)
    return _fits(key, shape, ends, candidate, key.math.element_accumulator, target)


@functools.lru_cache(maxsize=4096)
def _may(key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None) -> bool:
    """Whether there is any way to run a pass: a small part of what all of them take to judge."""
    return any(told for _, told in _tried(key, shape, ends, target, rows))


def _tried(
    key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None
) -> Iterator[tuple[TileShape | ContractDesign | None, Status]]:
    """Tiles with whether they can run a pass; where none can, the last reason is that to give."""
    accumulator = key.math.element_accumulator
    splits = splits_of(key.math)
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
        work = contract_pass.contraction(
            key.math, key.by_columns, key.factor_alignment, shape, ends
        )
        every_row = contract_pass.all_rows(shape, rows)
        accepted, rejected = choice.candidates(work, every_row, target, key.tile, MOST_VARIANTS)
        yield from ((item, Status.accept()) for _, item in accepted)
        if rejected and not accepted:
            yield (
                None,
                Status.reject(f"{status.reason}; as a contraction: {rejected[0][1]}"),
            )


def _ranked(found: list[Choice], accumulator: DataType) -> tuple[Choice, ...]:
    """The cheapest first; of staged tiles of columns that are as good, the smallest."""
    ranked = sorted(found, key=lambda item: item.cost)[:MOST_VARIANTS]
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


def _fits(
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape,
    accumulator: DataType,
    target: Target,
) -> Status:
    return _obeys(key, shape, ends, candidate) and tile.fits(shape, candidate, accumulator, target)


def is_possible(key: Key, shape: PassShape, ends: Ends, target: Target, rows: int | None) -> bool:
    """Whether there is any way to run a pass."""
    return _may(key, _seen(key, shape, ends, rows), ends, target, rows)
