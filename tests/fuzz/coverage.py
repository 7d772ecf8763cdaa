"""Which styles of steps the generator's cases reach on a GPU: planning needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

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
        is_for_few = plan.steps != operation.plan.steps
        for step in plan.steps:
            for design, said in plans.words(step.design, plan.target).items():
                found |= {f"{design}: {word}" for word in (*said, *["few rows"] * is_for_few)}
    return found


def tally(names: Iterable[str], settings: Settings) -> tuple[Counter[str], list[str]]:
    """How many of these cases reach each feature, and few of them that together reach all."""
    found = {name: features(make(name, settings)) for name in names}
    count: Counter[str] = Counter()
    for reached in found.values():
        count.update(reached)
    missing, few = set(count), []
    while missing:
        name = max(found, key=lambda name: len(found[name] & missing))
        few.append(name)
        missing -= found[name]
    return count, few
