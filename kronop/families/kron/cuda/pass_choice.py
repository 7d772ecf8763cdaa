"""How a pass of a Kronecker matmul may run: tiles of the kernels, legality, the cheapest."""

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
    """How one pass runs.

    The cost is in bytes per element of X; where rows are counted, in cycles of the whole pass.
    """

    way: KronPass
    cost: float = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pass to be planned, by a tile where one is given; for `rows` rows, or for many."""

    work: PassWork
    given: TileDescription | None
    target: Target
    rows: int | None

    def __hash__(self) -> int:
        return hash((self.work, self.rows))


def every_choice(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    return _ways(_seen(asked))


def _seen(asked: Asked) -> Asked:
    """The pass as its tiles see it: all that so many digits lie behind it, they see as the least of
    these, so that it is judged once.

    Tiles of columns ask which sizes up to 64 divide them, and what part of the last tile is there:
    of multiples of 64, all of it. (A single digit may be a contraction, which counts them.)
    """
    work = asked.work
    shape = work.shape
    counts = asked.rows is not None or work.ends.source_by_rows or len(shape.group) == 1
    # A tile of the user's may have more columns.
    if counts or asked.given is not None or shape.right % 64:
        return asked
    seen = replace(shape, right=math.gcd(shape.right, _DIVISIBLE))
    return replace(asked, work=replace(work, shape=seen))


@functools.lru_cache(maxsize=4096)
def _ways(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    found, status = [], Status.reject("no tile")
    for way, told in _tried(asked):
        if told and way is not None:
            cost = pass_cost.cost(way, asked.target, asked.rows)
            found.append(Choice(way=way, cost=cost))
        status = told
    return _ranked(found), Status.accept() if found else status


def cheapest_choice(asked: Asked) -> tuple[tuple[Choice, ...], Status]:
    """The first of `every_choice` alone."""
    # A single digit may be a contraction, which is found by other rules.
    if len(asked.work.shape.group) == 1 or not _may(_seen(asked)):
        return every_choice(asked)
    return (_least(_seen(asked)),), Status.accept()


@functools.lru_cache(maxsize=4096)
def _least(asked: Asked) -> Choice:
    """The cheapest way to run a pass that has one: only tiles that may cost least are judged."""
    target, rows = asked.target, asked.rows
    offered: list[KronTile | KronMma] = [
        item
        for item in _mma_tiles(asked)
        if item.tile.style.status(item.columns, item.threads, target)
    ]
    offered += _simt_tiles(asked)

    def judge(item: KronTile | KronMma) -> float | None:
        return pass_cost.cost(item, target, rows) if _status(asked, item) else None

    found = cheapest(
        offered, lambda item: pass_cost.least(item, target, rows), judge, slack=_AS_GOOD
    )
    return _ranked([Choice(way=item, cost=took) for took, item in found])[0]


@functools.lru_cache(maxsize=4096)
def _may(asked: Asked) -> bool:
    """Whether there is any way to run a pass: a small part of what all of them take to judge."""
    return any(told for _, told in _tried(asked))


def _tried(asked: Asked) -> Iterator[tuple[KronPass | None, Status]]:
    """Ways with whether they can run a pass; where none can, the last reason is that to give."""
    phases, status = False, Status.reject("no tile")
    for way in _mma_tiles(asked):
        status = _status(asked, way)
        phases = phases or bool(status)
        yield way, status
    for tile in _simt_tiles(asked):
        status = _status(asked, tile)
        yield tile, status
    group = asked.work.shape.group
    large = max(group[0]) > mma_style.MOST_CONTRACTED
    # Of few rows a tile of phases, which holds whole digits, leaves multiprocessors without work.
    few = asked.rows is not None and max(group[0]) >= _LEAST_OF_FEW
    if len(group) == 1 and (large or (_may_be_simt(asked) and not (phases and not few))):
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
    """A tile names its instruction: no kernel for other cores stands in for it."""
    return asked.given is None or splits_of(asked.work.math) is None


def _ranked(found: list[Choice]) -> tuple[Choice, ...]:
    """The cheapest first; of staged tiles of columns that are as good, the smallest."""
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
    """Whether a tile is there for the pass, and keeps to the sizes of the description's tile."""
    given, work = asked.given, asked.work
    if given is not None:
        across = design.rows if work.ends.source_by_rows else design.columns
        held = across * math.prod(max(digit) for digit in work.shape.group)
        most = given.threadblock_shape[1]
        if held > most:
            return Status.reject(
                f"a block holds {held} elements of a row, threadblock_shape gives {most};"
                " raise Tile_N"
            )
        if given.stages != 1:
            return Status.reject(
                f"a pass over tiles of digits does not prefetch, got {given.stages} stages;"
                " use stages 1"
            )
    return design.status(asked.target)


def is_possible(asked: Asked) -> bool:
    """Whether there is any way to run a pass."""
    return _may(_seen(asked))
