"""Planners judge what may be cheapest, and nothing that they leave out could have been."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

import kronop
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contraction import cost, mma_choice
from kronop.families.kron.cuda import pass_choice, pass_cost, passes
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.tile import KronTile
from kronop.families.ksparse import chains
from kronop.families.ksparse.cuda import chain_choice, chain_cost
from kronop.families.ksparse.cuda import choice as ksparse_choice
from kronop.families.ksparse.cuda.chain_pair import pairs
from kronop.target import Target
from tests import support

_ROWS = (None, 1, 30, 2000, 10**6)
_CHAINS = (
    ((2, 48, 192, 1), (1, 192, 48, 2)),
    ((6, 64, 64, 1), (1, 768, 192, 2)),
    ((2, 20, 16, 3), (4, 16, 10, 3)),
)


def test_the_cheapest_are_those_that_judging_all_would_give() -> None:
    chance = random.Random(0)
    for _ in range(200):
        costs = [chance.randint(1, 9) for _ in range(chance.randint(0, 12))]
        floors = [cost - chance.choice((0, 0, 1, 3)) for cost in costs]
        may = [chance.random() < 0.7 for _ in costs]
        most, limit = chance.randint(1, 4), chance.choice((5, 100))

        def judge(place: int, costs=costs, may=may) -> float | None:
            return costs[place] if may[place] else None

        found = cheapest(range(len(costs)), floors.__getitem__, judge, most=most, limit=limit)
        every = sorted((cost, place) for place, cost in enumerate(costs) if may[place])
        wanted = [item for item in every[:most] if item[0] <= limit]
        assert found[: len(wanted)] == wanted
        alike = cheapest(range(len(costs)), floors.__getitem__, judge, slack=1.5)
        assert [item for item in every if item[0] <= 1.5 * every[0][0]] == [
            item for item in alike if item[0] <= 1.5 * every[0][0]
        ]


def test_few_of_many_are_judged() -> None:
    judged: list[int] = []

    def judge(place: int) -> float:
        judged.append(place)
        return float(place)

    assert cheapest(range(1000), lambda place: place - 0.5, judge) == [(0.0, 0)]
    assert judged == [0]


def _for(target: str, operation: Any) -> Any:
    """Its description, for another target's own instruction."""
    description, parsed = operation.description, Target.parse(target)
    instruction = operation.kind.emitter(parsed).instruction(description.X.element, parsed)
    return replace(description, math=instruction)


def _kron(chance: random.Random, target: str) -> Any:
    sizes = chance.choice((range(2, 5), range(2, 20), range(2, 64)))
    factors = [(chance.choice(sizes), chance.choice(sizes)) for _ in range(chance.randint(1, 5))]
    factors = chance.choice((factors, factors[:1] * len(factors), [(2, 2)] * 9))
    options = {"layout": chance.choice([*kronop.Layout]), "side": chance.choice([*kronop.Side])}
    element = chance.choice(support.ELEMENTS)
    return _for(target, support.kron_operation("x86-avx2", element, factors, **options))


@pytest.mark.parametrize("seed", range(24))
def test_no_tile_of_a_pass_costs_less_than_its_floor(seed: int) -> None:
    chance = random.Random(seed)
    target = chance.choice(("sm_80", "sm_90a"))
    description, rows = _kron(chance, target), chance.choice(_ROWS)
    of = Target.parse(target)
    for asked in passes._windows(description, of, rows, []).values():
        least = pass_cost.least_of_pass(asked.work, of, rows)
        choices, _ = pass_choice.every_choice(asked)
        for choice in choices:
            assert least <= choice.cost
            if isinstance(choice.way, KronTile | KronMma):
                assert 0 < pass_cost.least(choice.way, of, rows) <= choice.cost
        first = pass_choice.cheapest_choice(asked)[0][0]
        assert (first, first.cost) == (choices[0], choices[0].cost)


@pytest.mark.parametrize("seed", range(8))
def test_no_tile_of_a_contraction_costs_less_than_its_floor(seed: int) -> None:
    chance = random.Random(seed)
    target = chance.choice(("sm_80", "sm_90a"))
    sizes = ((1, 4), (16, 64, 100), (16, 64, 256), (1, 2, 48))
    element = chance.choice(support.ELEMENTS[:4])
    pattern = tuple(map(chance.choice, sizes))
    last = {"batch_last": chance.random() < 0.5}
    description = _for(target, support.ksparse_operation("x86-avx2", element, pattern, **last))
    rows, of = ksparse_choice.all_rows(description, chance.choice(_ROWS)), Target.parse(target)
    designs = list(mma_choice.proposed(ksparse_choice.contraction(description), None))
    assert designs
    for design in designs:
        assert 0 < cost.least_of_mma(design, rows, of) <= design.seconds(rows, of)


@pytest.mark.parametrize("patterns", _CHAINS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_no_tile_of_a_pair_costs_less_than_its_floor(target: str, patterns: Any) -> None:
    operation = support.chain_operation("x86-avx2", kronop.float16, patterns)
    description, of = _for(target, operation), Target.parse(target)
    first, second = (chains.product(description, index) for index in (0, 1))
    checked = 0
    for rows, pair in itertools.product((None, 30), pairs(first, second)):
        for design in chain_choice.proposed(pair, of):
            if design.status(of):
                least = chain_cost.least_of_pair(design, rows, of)
                assert 0 < least <= chain_cost.of_pair(design, rows, of)
                checked += 1
    assert checked
