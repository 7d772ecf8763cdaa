"""Ways to run a pass of a Kronecker matmul: tiles of the kernels, legality, the cheapest."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import field, replace

from kronop.artifacts import Status
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.operands import splits_of
from kronop.families.kron.cuda import contract_choice, mma_style, pass_cost, tiles
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.pass_design import KronPass
from kronop.families.kron.cuda.shapes import PassWork
from kronop.families.kron.cuda.tile import KronTile
from kronop.frozen import dataclass
from kronop.target import Target

# About how many tilings of a pass the tuner may choose from.
MOST_VARIANTS = 32
# NOTE: the model can't tell costs apart within this factor. Of staged tiles within it, the smallest
# was the fastest in float32: 1024 x 8^6 took 1.13 ms with tiles of 1 x 64 x 64, and 1.25 ms with
# those of 2 rows. In float64 it was not: 64^3 took 1.29 against 1.14 ms.
_AS_GOOD = 1.01
# The smallest digit that may be a contraction if rows are few.
_LEAST_OF_FEW = 64
_DIVISIBLE = math.lcm(*range(1, 65))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A way to run one pass, with its cost.

    The cost is in bytes per element of X for many rows, and in cycles of the whole pass for a given
    number of rows.
    """

    way: KronPass
    cost: float = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pass to be planned, with the user's tile if one is given, for `rows` rows or for many."""

    work: PassWork
    given: TileDescription | None
    target: Target
    rows: int | None

    def __hash__(self) -> int:
        return hash((self.work, self.rows))


def every_choice(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    return _ways(_seen(asked))


def _cost(asked: Asked, way: KronPass) -> float:
    """The cost by which a way is ranked: see `Choice`."""
    if asked.rows is None:
        return pass_cost.of_element(way, asked.target)
    return pass_cost.cycles(way, asked.rows, asked.target)


def _seen(asked: Asked) -> Asked:
    """The pass with the smallest number of columns that gives the same tiles and costs.

    Passes that only differ in the number of columns behind the digits are then equal, and evaluated
    once. Tiles of columns depend on which sizes up to 64 divide the columns, and on how full the
    last tile is, which is always full if 64 divides them. A single digit keeps its columns, because
    it may be a contraction, whose cost depends on their number.
    """
    work = asked.work
    shape = work.shape
    counts = asked.rows is not None or work.ends.source_by_rows or len(shape.factors) == 1
    # The user's tile may have more than 64 columns.
    if counts or asked.given is not None or shape.right % 64:
        return asked
    seen = replace(shape, right=math.gcd(shape.right, _DIVISIBLE))
    return replace(asked, work=replace(work, shape=seen))


@functools.lru_cache(maxsize=4096)
def _ways(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    found, status = [], Status.reject("no tile")
    for way, told in _tried(asked):
        if told and way is not None:
            found.append(Choice(way=way, cost=_cost(asked, way)))
        status = told
    return _ranked(found), Status.accept() if found else status


def cheapest_choice(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    """The first choice of `every_choice` alone, found faster."""
    # A single digit may be a contraction, for which there is no lower bound here.
    if len(asked.work.shape.factors) == 1 or not _may(_seen(asked)):
        return every_choice(asked)
    return (_least(_seen(asked)),), Status.accept()


@functools.lru_cache(maxsize=4096)
def _least(asked: Asked) -> Choice:
    """The cheapest way to run a pass that has one. Tiles are evaluated in the order of their lower
    bounds, until the best cost found is below the remaining bounds."""
    target, rows = asked.target, asked.rows
    offered: list[KronTile | KronMma] = [
        item
        for item in _mma_tiles(asked)
        if item.tile.style.status(item.columns, item.threads, target)
    ]
    offered += _simt_tiles(asked)

    def judge(item: KronTile | KronMma) -> float | None:
        return _cost(asked, item) if _status(asked, item) else None

    found = cheapest(
        offered, lambda item: pass_cost.least(item, target, rows), judge, slack=_AS_GOOD
    )
    return _ranked([Choice(way=item, cost=took) for took, item in found])[0]


@functools.lru_cache(maxsize=4096)
def _may(asked: Asked) -> bool:
    """Whether there is any way to run a pass; much faster than evaluating all ways."""
    return any(told for _, told in _tried(asked))


def _tried(asked: Asked) -> Iterator[tuple[KronPass | None, Status]]:
    """Each way to run a pass, with its status. If all are rejected, users get the last reason."""
    phases, status = False, Status.reject("no tile")
    for way in _mma_tiles(asked):
        status = _status(asked, way)
        phases = phases or bool(status)
        yield way, status
    for tile in _simt_tiles(asked):
        status = _status(asked, tile)
        yield tile, status
    factors = asked.work.shape.factors
    large = max(factors[0]) > mma_style.MOST_CONTRACTED
    # A tile of phases has whole digits, so few rows of large digits make too few tiles to occupy
    # all multiprocessors.
    few = asked.rows is not None and max(factors[0]) >= _LEAST_OF_FEW
    if len(factors) == 1 and (large or (_may_be_simt(asked) and not (phases and not few))):
        for product, told in contract_choice.offered(
            asked.work, asked.given, asked.target, asked.rows, MOST_VARIANTS
        ):
            also = f"{status.reason}; as a contraction: {told.reason}"
            yield product, told or Status.reject(also)


def _mma_tiles(asked: Asked) -> Iterator[KronMma]:
    if splits_of(asked.work.math) is not None:
        yield from tiles.mma_tiles(asked.work, asked.given, asked.rows is not None)


def _simt_tiles(asked: Asked) -> list[KronTile]:
    return tiles.simt_tiles(asked.work, asked.given) if _may_be_simt(asked) else []


def _may_be_simt(asked: Asked) -> bool:
    """Whether the ordinary cores may run the pass: not if the user's tile asks for tensor cores."""
    return asked.given is None or splits_of(asked.work.math) is None


def _ranked(found: list[Choice]) -> tuple[Choice, ...]:
    """The choices, the cheapest first. Among staged tiles of columns whose costs are equal within
    the model's accuracy, the smallest goes first."""
    ranked = sorted(found, key=lambda item: item.cost)[:MOST_VARIANTS]
    best = ranked[0].way if ranked else None
    if (
        isinstance(best, KronMma)
        and best.work.accumulator.bytes == 4
        and best.columns > 1
        and best.tile.style.staged_in
    ):
        alike = {
            place: item.way
            for place, item in enumerate(ranked)
            if item.cost <= _AS_GOOD * ranked[0].cost
            and isinstance(item.way, KronMma)
            and item.way.runs == best.runs
            and item.way.tile.style == best.tile.style
            and item.way.threads == best.threads
        }
        place = min(alike, key=lambda place: alike[place].rows * alike[place].columns)
        ranked.insert(0, ranked.pop(place))
    return tuple(ranked)


def _status(asked: Asked, design: KronTile | KronMma) -> Status:
    """Whether the kernel can run the pass with this tile, and the tile has the sizes that the
    user's tile fixes."""
    given, work = asked.given, asked.work
    if given is not None:
        across = design.rows if work.ends.source_by_rows else design.columns
        held = across * math.prod(max(digit) for digit in work.shape.factors)
        most = given.threadblock_shape[1]
        if held > most:
            return Status.reject(
                f"a block holds {held} elements of a row, threadblock_shape gives {most};"
                " raise Tile_N"
            )
        if given.stages not in (None, 1):
            return Status.reject(
                f"a pass over tiles of digits does not prefetch, got {given.stages} stages;"
                " use stages 1"
            )
    return design.status(asked.target)


def is_possible(asked: Asked) -> bool:
    """Whether there is any way to run a pass."""
    return _may(_seen(asked))
