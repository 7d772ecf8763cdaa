"""Which styles of steps the generator's cases reach on a GPU: planning needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.fuzz import plans
from tests.fuzz.case import Case
from tests.fuzz.generate import Settings, make


def features(case: Case) -> set[str]:
    """What the plans of a case's calls have: "design: one word of its style"; and whether it is
    for few rows. Backwards, whose plans are made while they run, have none."""
    if case.problem.backward:
        return set()
    found: set[str] = set()
    for call in case.calls:
        operation = plans.operation_of(case.problem, call)
        plan = operation.plan_for(plans.rows_of(case.problem, call))
        reached = plans.reached(plan)
        if plan.steps != operation.plan.steps:
            reached |= {f"{item.split(': ')[0]}: few rows" for item in reached}
        found |= reached
    return found


def tally(names: Iterable[str], settings: Settings) -> tuple[Counter[str], list[str]]:
    """How many of these cases reach each feature, and few of them that together reach all."""
    found = {name: features(make(name, settings)) for name in names}
    return Counter(item for reached in found.values() for item in reached), few_of(found)


def few_of(found: Mapping[str, set[str]]) -> list[str]:
    """Few of the names whose sets together have all that the sets have."""
    missing: set[str] = set().union(*found.values())
    few = []
    while missing:
        name = max(found, key=lambda name: len(found[name] & missing))
        few.append(name)
        missing -= found[name]
    return few
