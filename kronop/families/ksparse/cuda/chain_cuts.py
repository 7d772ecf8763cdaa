"""How a chain is divided into steps: single products, or two of them in one launch (fused)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Status
from kronop.emit.cuda.operands import gains_much
from kronop.emit.plan import Plan
from kronop.families.ksparse import chains
from kronop.families.ksparse.cuda import chain_cost, choice
from kronop.families.ksparse.cuda.chain_choice import Fused, candidates, chain_step
from kronop.families.ksparse.cuda.chain_cost import OF_A_LAUNCH
from kronop.families.ksparse.description import KSparseChainDescription
from kronop.frozen import dataclass
from kronop.target import Target

# Cycles of a launch so expensive that the cut with the fewest launches is the cheapest; and how
# many choices of a step the tuner gets.
_OF_A_DEAR_LAUNCH, _MOST_PLACES = 1e15, 64
# For each piece of the chain: (number of factors, rank of its choice, 0 the best).
_Cut = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A chain to be divided into pieces of one or two factors, for `rows` rows or for many."""

    description: KSparseChainDescription
    target: Target
    rows: int | None

    @property
    def factors(self) -> int:
        return len(self.description.patterns)


@functools.lru_cache(maxsize=256)
def _fused(work: Work, at: int, most: int) -> list[Fused]:
    """The `most` best tiles of the fused pair of factors `at` and `at` + 1. The first is the one to
    use: that for many rows, unless another gains much."""
    if work.description.tile is not None:
        return []
    one, other = (chains.product(work.description, index) for index in (at, at + 1))
    found = candidates(one, other, work.target, work.rows, most)
    if work.rows is None or not found:
        return found
    _, usual = _fused(replace(work, rows=None), at, 1)[0]
    took = chain_cost.of_pair(usual, work.rows, work.target)
    if gains_much(found[0][0], took):
        return found
    return [(took, usual), *(item for item in found if item[1] != usual)]


def _cost_of(work: Work, at: int, factors: int) -> float:
    """Modelled cycles of a piece of `factors` factors; infinite if no kernel can run it."""
    if factors == 1:
        product = chains.product(work.description, at)
        took, item = choice.modelled(product, work.target, work.rows)
        return took - OF_A_LAUNCH * item.product.counts_call  # `_cost` adds all launches.
    fused = _fused(work, at, 1)
    return fused[0][0] if fused else math.inf


def _cost(work: Work, cut: _Cut) -> float:
    """Modelled cycles of all pieces with their launches."""
    starts = itertools.accumulate((factors for factors, _ in cut), initial=0)
    return sum(
        OF_A_LAUNCH + _cost_of(work, at, factors)
        for at, (factors, _) in zip(starts, cut, strict=False)
    )


def _cheapest(work: Work, of_a_launch: float) -> _Cut:
    """The cheapest cut, by dynamic programming, if each piece costs `of_a_launch` cycles more."""
    best: list[tuple[float, _Cut]] = [(0.0, ())]
    for end in range(1, work.factors + 1):
        ways = []
        for factors in (1, 2)[:end]:
            before, cut = best[end - factors]
            took = before + of_a_launch + _cost_of(work, end - factors, factors)
            ways.append((took, (*cut, (factors, 0))))
        best.append(min(ways))
    return best[-1][1]


def _cuts(work: Work) -> Iterator[_Cut]:
    """Ways to divide the chain, the best first; then the best one with other tiles."""
    best = _cheapest(work, OF_A_LAUNCH)
    if work.rows is not None:
        usual = _cheapest(replace(work, rows=None), OF_A_LAUNCH)
        if not gains_much(_cost(work, best), _cost(work, usual)):
            best = usual
    apart, fewest = ((1, 0),) * work.factors, _cheapest(work, _OF_A_DEAR_LAUNCH)
    yield from dict.fromkeys((best, apart, fewest))
    for place in range(1, _MOST_PLACES):
        for index, (factors, _) in enumerate(best):
            yield (*best[:index], (factors, place), *best[index + 1 :])


def _piece(work: Work, at: int, factors: int, place: int) -> Plan | None:
    """Choice `place` for `factors` factors from `at` on; None if there are fewer choices."""
    one, last = (chains.product(work.description, index) for index in (at, at + factors - 1))
    if factors == 1:
        found = choice.plans(one, work.target, place + 1, work.rows)
        return found[place] if place < len(found) else None
    fused = _fused(work, at, _MOST_PLACES if place else 1)
    if place >= len(fused):
        return None
    step = chain_step(one, last, fused[place][1], work.target)
    return Plan(target=work.target, steps=(step,))


def supports(description: KSparseChainDescription, target: Target) -> Status:
    """Whether every factor has a plan of its own, or the reason of the first that has none."""
    every = range(len(description.patterns))
    statuses = (choice.supports(chains.product(description, index), target) for index in every)
    return next((status for status in statuses if not status), Status.accept())


def plans(
    description: KSparseChainDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The plan with the least modelled time, then other cuts of the chain, then other tiles."""
    work = Work(description, target, rows)
    first, *others = itertools.islice(_plans(work), count)
    return (replace(first, rejected=_beaten(work)), *others)


def _plans(work: Work) -> Iterator[Plan]:
    """The plans of all cuts whose pieces have so many choices."""
    for cut in _cuts(work):
        starts = itertools.accumulate((factors for factors, _ in cut), initial=0)
        pieces = [
            (factors, own)
            for at, (factors, place) in zip(starts, cut, strict=False)
            if (own := _piece(work, at, factors, place))
        ]
        if len(pieces) == len(cut):
            yield chains.plan(work.description, pieces)


def _beaten(work: Work) -> tuple[tuple[str, str], ...]:
    """The other cuts of the chain, each with its modelled time."""
    cuts = [cut for cut in itertools.islice(_cuts(work), 3) if not any(place for _, place in cut)]
    best = _cost(work, cuts[0])
    return tuple(
        (
            " + ".join("a fused pair" if factors > 1 else "a product" for factors, _ in cut),
            f"{_cost(work, cut):.0f} cycles, the best {best:.0f}",
        )
        for cut in cuts[1:]
    )
