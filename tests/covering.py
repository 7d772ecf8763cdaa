"""Few cases that show every pair of choices, in place of all combinations."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

_SAMPLE = 250


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


def combinations(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    """Combinations of the choices, each by its name, with every pair of them."""
    places = [range(len(of_one)) for of_one in choices.values()]
    most = list(itertools.product(*places))
    sample = random.Random(0).sample(most, min(_SAMPLE, len(most)))
    found = covering({case: case for case in sample})
    absent = set().union(*map(pairs, most)) - set().union(*map(pairs, found))
    assert not absent, f"a larger sample is wanted for {len(absent)} pairs"
    return [
        {name: of_one[at] for (name, of_one), at in zip(choices.items(), case, strict=True)}
        for case in found
    ]
