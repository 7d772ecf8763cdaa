"""Few cases that show every pair of choices, in place of all combinations."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

_TRIES = 60


def pairs(case: Sequence[Any]) -> set[tuple[tuple[int, Any], tuple[int, Any]]]:
    """All pairs of the choices of a case, each with its place."""
    return set(itertools.combinations(enumerate(case), 2))


def covering(cases: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """Some of the cases, which have all pairs of choices that any of them has.

    Those with the most pairs that are still missing come first.
    """
    shown = {case: pairs(choices) for case, choices in cases.items()}
    missing, chosen = set().union(*shown.values()), []
    while missing:
        best = max(shown, key=lambda case: len(shown[case] & missing))
        missing -= shown.pop(best)
        chosen.append(best)
    return chosen


def combinations(*, full: bool = False, **choices: Sequence[Any]) -> list[dict[str, Any]]:
    """Combinations of the choices, each by its name: with every pair of them, or all."""
    sizes = [len(of_one) for of_one in choices.values()]
    found = itertools.product(*map(range, sizes)) if full else _pairwise(sizes)
    return [
        {name: of_one[at] for (name, of_one), at in zip(choices.items(), case, strict=True)}
        for case in found
    ]


def spread(*, full: bool = False, **choices: Sequence[Any]) -> list[dict[str, Any]]:
    """Every one of the first choices, with the others in turn, each by its name; or all of them
    together. The others show their own combinations, as far as there are first choices for them."""
    if full:
        return combinations(full=True, **choices)
    (name, first), *others = choices.items()
    return [{name: choice, **_in_turn(place, others)} for place, choice in enumerate(first)]


def _in_turn(place: int, choices: Sequence[tuple[str, Sequence[Any]]]) -> dict[str, Any]:
    """Those of one place. Where two would go round in step, one is late by one each time round."""
    chosen, combined = {}, 1
    for name, of_one in choices:
        size = len(of_one)
        in_step = math.gcd(combined, size) > 1
        late = place // math.lcm(combined, size) if in_step else 0
        chosen[name] = of_one[(place + late) % size]
        combined *= size
    return chosen


def _pairwise(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Places of choices: each case has the first pair that is missing, and most of some tries."""
    chance, cases = random.Random(0), []
    missing = {
        ((i, first), (j, second)): None
        for (i, many), (j, others) in itertools.combinations(enumerate(sizes), 2)
        for first, second in itertools.product(range(many), range(others))
    }
    while missing:
        wanted = dict(next(iter(missing)))
        tries = [
            tuple(wanted.get(place, chance.randrange(size)) for place, size in enumerate(sizes))
            for _ in range(_TRIES)
        ]
        best = max(tries, key=lambda case: sum(pair in missing for pair in pairs(case)))
        for pair in pairs(best):
            missing.pop(pair, None)
        cases.append(best)
    return cases
